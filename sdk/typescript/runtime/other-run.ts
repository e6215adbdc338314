/**
 * Other runs: signals to them, and their results. A run is addressed as `namespace:instance`; an
 * address without `:` is an instance of the own namespace. Where a run is does not matter.
 */
import { checkAddress, checkName } from "./checks.ts";
import { engine } from "./engine.ts";
import { nameOf, type SignalType } from "./message-types.ts";

/**
 * Signals another run and waits until the signal is in that run's history: it is received once,
 * whatever fails on the way, and signals of one run to another are received in the order of
 * their sending. The other run need not wait for it yet.
 *
 * `payload` travels as JSON; `undefined` is no payload. Rejects with `RunError` of type
 * `RunNotFoundError` when there is no such run and `RunClosedError` when it has ended, and with
 * `CancelledError` when the run is cancelled meanwhile: the signal is received then all the same.
 */
export function sendSignal(address: string, name: string, payload?: unknown): Promise<void>;
export function sendSignal<T>(address: string, type: SignalType<T>, payload: T): Promise<void>;
export function sendSignal(address: string, named: string | { readonly name: string }, payload?: unknown): Promise<void> {
  const name = nameOf(named);
  checkAddress(address);
  checkName("Signal", name);
  return engine("sendSignal()").sendSignal(address, name, payload);
}

/**
 * Waits for the result of another run: of the one that is live under this address, or else of the
 * last one. It costs nothing while it waits.
 *
 * Rejects with `RunError` when that run ends without a result: `type` and `details` are those of
 * its failure, or `CancelledError`, `TerminatedError`, `DeadlineError`; `RunNotFoundError` when
 * there is no such run; `CallCycleError` when a method's code asks for the end of a run that waits for
 * its answer. Rejects with `CancelledError` when the own run is cancelled meanwhile. Two runs whose own code
 * waits for each other's end wait for ever.
 */
export function resultOf<O = unknown>(address: string): Promise<O> {
  checkAddress(address);
  return engine("resultOf()").resultOf(address) as Promise<O>;
}
