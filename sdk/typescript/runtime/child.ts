/**
 * Children: runs that a workflow starts and goes on beside. A child is a run like any other, with an
 * address, a history and workers of its own; what ties it to its parent is what becomes of it when
 * the parent ends, and its end, which the parent is told.
 */
import { checkAddress, checkDuration, checkFields, checkName, checkText, describe } from "./checks.ts";
import { engine } from "./engine.ts";
import type { Workflow } from "./workflow.ts";
import { workflowMark } from "./workflow.ts";

/** How a child is started, and what ties it to its parent. */
export interface SpawnSettings {
  /**
   * Name of the child: an instance of the own namespace, or `namespace:instance`. Left out: a name
   * made of the parent's, the same whenever the parent is rebuilt.
   */
  readonly instance?: string;
  /** What happens where a run of that name is live. Left out: `attach`, which makes it no child. */
  readonly contention?: "attach" | "reject" | "queue" | "supersede";
  /** Why the live run is ended: needed with `supersede`, and kept in that run's history. */
  readonly overrideReason?: string;
  /**
   * What becomes of the child when the parent ends, however that does: it is terminated at once, asked
   * to cancel, or left alone. Left out: `terminate`.
   */
  readonly parentClosePolicy?: "terminate" | "cancel" | "abandon";
  /**
   * What a cancellation of the scope in which it is spawned does to it: `try-cancel` asks it to cancel,
   * and whoever waits for it goes on at once; `wait-completed` asks it too, and whoever waits goes on
   * when it has ended; `abandon` leaves it alone. Left out: `try-cancel`.
   */
  readonly cancellationType?: "try-cancel" | "wait-completed" | "abandon";
  /** A second start of the name with this key is the first one, sent again. */
  readonly idempotencyKey?: string;
  /** Milliseconds that the child may take in all. Left out: no limit. */
  readonly deadlineMs?: number;
  /** Milliseconds that it may wait in the queue of its name. Left out: as long as it takes. */
  readonly requestBudgetMs?: number;
}

/** What came of a start. */
export interface ChildStart {
  /** Of the run; 0 = it waits in the queue of its name. */
  readonly generation: number;
  /** Of a start that waited, as in `12@default:order-1`; 0 = it did not wait. */
  readonly ticket: number;
  /** A run of that name was there already: it is no child, and its own starter's policies hold. */
  readonly attached: boolean;
}

/**
 * A run that was spawned. What it does is about that run, whatever has its name later.
 *
 * Its promises reject with `CancelledError` when the scope that waits is cancelled, and with
 * `RunError` where the start was refused: of type `InstanceLiveError`, `WorkflowNotDeployedError`,
 * `IdempotencyConflictError`, `LimitError`.
 */
export interface ChildHandle<O = unknown> {
  /** `namespace:instance`. */
  readonly run: string;
  /** Waits until the child runs, or waits in the queue of its name. */
  started(): Promise<ChildStart>;
  /**
   * Waits for its result. Rejects with `RunError` when it ends without one, as `resultOf()` does. It may
   * be asked again, after a cancellation too.
   */
  result(): Promise<O>;
  /** As `sendSignal()`: resolves when the signal is in the child's history. */
  signal(name: string, payload?: unknown): Promise<void>;
  /**
   * Asks it to cancel; the request is in its history when this resolves. A start that waits leaves the
   * queue. Rejects with `RunError` of type `RunClosedError` when it has ended.
   */
  cancel(reason?: string): Promise<void>;
}

/**
 * Starts a run of a workflow, once, and goes on: `await child.result()` is what waits for it.
 *
 * ```ts
 * const parcels = order.parcels.map((parcel) => spawn(ship, parcel, { instance: `parcel-${parcel.id}` }));
 * const shipped = await Promise.all(parcels.map((parcel) => parcel.result()));
 * ```
 *
 * `workflow` is one that the same bundle exports, which then runs on the parent's code; or a name:
 * what is not in the bundle, or in another namespace, runs on what is deployed there then. `input`
 * travels as JSON. Throws `CancelledError` where a cancellation waits to be delivered.
 */
export function spawn<I, O>(workflow: Workflow<I, O>, input: I, settings?: SpawnSettings): ChildHandle<O>;
export function spawn<O = unknown>(workflow: string, input?: unknown, settings?: SpawnSettings): ChildHandle<O>;
export function spawn(workflow: unknown, input?: unknown, settings: SpawnSettings = {}): ChildHandle {
  if (typeof workflow === "string") checkName("Workflow", workflow);
  else if (typeof workflow !== "function" || !(workflowMark in workflow))
    throw new TypeError(`spawn() takes a workflow made by durable(), or the name of one, got ${describe(workflow)}`);
  checkSettings(settings);
  const child = engine("spawn()").spawn(workflow, input, settings);
  return Object.freeze({
    ...child,
    signal(name: string, payload?: unknown) {
      checkName("Signal", name);
      return child.signal(name, payload);
    },
    cancel(reason = "") {
      checkText("Reason of a cancellation", reason);
      return child.cancel(reason);
    },
  });
}

const words = {
  contention: ["attach", "reject", "queue", "supersede"],
  parentClosePolicy: ["terminate", "cancel", "abandon"],
  cancellationType: ["try-cancel", "wait-completed", "abandon"],
} as const;
const settingNames: readonly string[] = [
  "instance",
  "overrideReason",
  "idempotencyKey",
  "deadlineMs",
  "requestBudgetMs",
  ...Object.keys(words),
];

function checkSettings(settings: SpawnSettings): void {
  const what = "Setting of spawn()";
  if (settings === null || typeof settings !== "object")
    throw new TypeError(`Settings of spawn() must be an object, got ${describe(settings)}`);
  checkFields(what, settings, settingNames);
  for (const [name, known] of Object.entries(words)) {
    const value = settings[name as keyof typeof words];
    if (value !== undefined && !(known as readonly unknown[]).includes(value))
      throw new TypeError(`${what}: ${name} must be one of ${known.join(", ")}, got ${describe(value)}`);
  }
  if (settings.instance !== undefined) checkAddress(settings.instance);
  if (settings.idempotencyKey !== undefined) checkName("Idempotency key: its", settings.idempotencyKey);
  if (settings.overrideReason !== undefined) checkText(`${what}: overrideReason`, settings.overrideReason);
  if ((settings.contention === "supersede") !== ((settings.overrideReason ?? "").trim() !== ""))
    throw new TypeError(`${what}: contention "supersede" and an overrideReason, why the live run is ended, belong together`);
  for (const name of ["deadlineMs", "requestBudgetMs"] as const)
    if (settings[name] !== undefined) checkDuration(`${what}: ${name}`, settings[name]);
}
