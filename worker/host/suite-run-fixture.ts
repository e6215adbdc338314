/**
 * One run of a guest host as a test drives it: its deliveries, its history so far, and commands in
 * a form that can be compared. The mode's bundle brings the workflows named here.
 */
import { type CommandInit, CommandKind } from "#proto";
import type { Activation, Delivery, GuestHost, GuestRun } from "./guest-host.ts";

/**
 * - `echo(x)` returns its input.
 * - `steps({n})` awaits activity `step` with `{i}` n times and returns the list of results.
 * - `tree(spec)` awaits a tree: `{all|race|any|settled: [tree…]}`, `{seq: [tree…]}` or a number k,
 *   which is activity `leaf` with k. Before each leaf's command it draws one random number into
 *   its input: `{k, random}`. Returns `{value}` or `{error}` and goes through activity `after`.
 * - `waiter({n})` takes n signals `go` and returns their values.
 * - `timed(ms)` takes signal `go` within ms; returns `"timeout"` when none came.
 * - `cart()` declares queries `count` and `items`, and `act`, which tries to call an activity;
 *   each signal `add` adds its value; signal `done` ends it.
 * - `cleanup()` awaits activity `work` and timer 1000 at once; in its finally it awaits activity
 *   `tidy`, then ends by the error it met.
 * - `stubborn()` awaits activity `work`, catches the cancellation and returns "went on".
 * - `guarded()` awaits activity `first` and then activity `second` in a shield, then activity `third`.
 * - `talks({to})` sends run `to` the signal `go` with `{n: 1}` and returns its result; an error on
 *   the way is returned as `{name, run, type, message, details}`.
 * - `streams()` yields the chunks 1 and 2, one after the other, and returns "done", or what a chunk that nobody takes
 *   fails with, as `{name, message}`.
 * - `saga({fails})` registers `free_lease` with "o-1" (always, operation 1) and `refund` with "o-1" (3 executions, key
 *   "mine", operation 2), awaits activity `charge` with "o-1", and takes the first back, twice. Then it throws a TypeError
 *   "no such luck", or returns what the two said.
 * - `fails()` throws a TypeError "no such luck" whose cause is an Error "bad day".
 * - `relays()` awaits activity `step` and lets its error pass.
 * - `clock()` returns `[now, now after sleep 1000, random, random, uuid]`.
 * - `spin()` loops for ever; `microspin()` does so over microtasks.
 * - `hoard()` fills a growing list for ever. `explode()` asks for one huge block of memory.
 */
export const suiteWorkflows = [
  "echo",
  "steps",
  "tree",
  "waiter",
  "timed",
  "cart",
  "cleanup",
  "stubborn",
  "guarded",
  "talks",
  "streams",
  "saga",
  "fails",
  "relays",
  "clock",
  "spin",
  "microspin",
  "hoard",
  "explode",
] as const;

export interface SuiteBench {
  readonly host: GuestHost;
  /** Hash of the bundle with the suite's workflows. */
  readonly bundle: string;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();
export const encode = (value: unknown): Uint8Array => (value === undefined ? new Uint8Array(0) : encoder.encode(JSON.stringify(value)));
export const decode = (bytes: Uint8Array | undefined): unknown =>
  bytes === undefined || bytes.length === 0 ? undefined : JSON.parse(decoder.decode(bytes));

let nextKey = 1;
/** A key that no other run of the process has. */
export const newKey = (): number => nextKey++;
export const startMs = 1_700_000_000_000;

/** A run of a bench, with its history so far. */
export class SuiteRun {
  readonly run: GuestRun;
  readonly history: Delivery[] = [];
  readonly commands: CommandInit[] = [];
  #nowMs = startMs;

  private readonly bench: SuiteBench;

  constructor(bench: SuiteBench, type: string, options: { seed?: number; name?: string; lane?: "dense" | "isolate" } = {}) {
    this.bench = bench;
    const key = newKey();
    const lane = options.lane === undefined ? {} : { lane: options.lane };
    this.run = {
      key,
      run: options.name ?? `suite:r${key}`,
      generation: 1,
      type,
      bundle: bench.bundle,
      seed: options.seed ?? 4711,
      ...lane,
    };
    bench.host.open(this.run);
  }

  at(): number {
    return ++this.#nowMs;
  }

  /** Delivers and returns the commands; throws when the activation is not "ok". */
  async deliver(...deliveries: readonly Delivery[]): Promise<CommandInit[]> {
    const activation = await this.activate(...deliveries);
    if (activation.kind !== "ok") throw new Error(`${activation.kind}: ${activation.message}`);
    return activation.commands;
  }

  async activate(...deliveries: readonly Delivery[]): Promise<Activation> {
    this.history.push(...deliveries);
    const activation = await this.bench.host.activate(this.run.key, deliveries);
    if (activation.kind === "ok") this.commands.push(...activation.commands);
    return activation;
  }

  start(input?: unknown): Promise<CommandInit[]> {
    return this.deliver(this.starting(input));
  }

  starting(input?: unknown): Delivery {
    return { kind: "start", nowMs: this.at(), input: encode(input) };
  }

  resolved(op: number, value?: unknown): Delivery {
    return { kind: "resolve", nowMs: this.at(), op, value: encode(value) };
  }

  rejected(op: number, type = "Error", message = "no"): Delivery {
    return { kind: "reject", nowMs: this.at(), op, failure: { type, message } };
  }

  signalled(name: string, value?: unknown): Delivery {
    return { kind: "signal", nowMs: this.at(), name, value: encode(value) };
  }

  cancelled(reason = ""): Delivery {
    return { kind: "cancel", nowMs: this.at(), reason };
  }

  async query(name: string, input?: unknown) {
    return this.bench.host.query(this.run.key, name, encode(input));
  }

  /** The same history in another run, in batches of `size`; returns its commands. */
  async replay(size: number): Promise<CommandInit[]> {
    const again = new SuiteRun(this.bench, this.run.type, {
      seed: this.run.seed,
      name: this.run.run,
      ...(this.run.lane === undefined ? {} : { lane: this.run.lane }),
    });
    for (let at = 0; at < this.history.length; at += size) await again.deliver(...this.history.slice(at, at + size));
    again.drop();
    return again.commands;
  }

  drop(): void {
    this.bench.host.drop(this.run.key);
  }
}

/** A command as a test reads it. */
export function brief(command: CommandInit): unknown {
  const { kind, op, name, payload, durationMs, failure } = command;
  const value = decode(payload?.data);
  switch (kind) {
    case CommandKind.activity:
      return ["activity", op, name, value];
    case CommandKind.timer:
      return ["timer", op, durationMs];
    case CommandKind.awaitSignal:
      return ["await-signal", op, name];
    case CommandKind.sendSignal:
      return ["send-signal", op, command.to, name, value];
    case CommandKind.yieldChunk:
      return ["yield-chunk", op, value];
    case CommandKind.awaitResult:
      return ["await-result", op, command.to];
    case CommandKind.compensate:
      return ["compensate", op, name, value, command.trigger ?? 0, command.options?.retry?.attemptsMax ?? 0];
    case CommandKind.withdrawCompensation:
      return ["withdraw-compensation", op];
    case CommandKind.cancelOp:
      return ["cancel-op", op];
    case CommandKind.complete:
      return ["complete", value];
    case CommandKind.fail:
      return ["fail", failure?.type, failure?.message];
    case CommandKind.cancelled:
      return ["cancelled"];
    default:
      throw new Error(`A command of kind ${kind}`);
  }
}

export const briefs = (commands: readonly CommandInit[]): unknown[] => commands.map(brief);

/** Commands in a form that can be compared byte by byte. */
export const exact = (commands: readonly CommandInit[]): string =>
  JSON.stringify(commands, (_key, value: unknown) => (value instanceof Uint8Array ? decoder.decode(value) : value));
