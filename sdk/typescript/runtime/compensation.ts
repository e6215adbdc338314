/**
 * Compensation that survives the workflow: what undoes a step is registered before the step, and held by the engine.
 *
 * When the run's end is decided (it failed, was cancelled or terminated, passed its deadline or was superseded) what is
 * registered is executed, newest first, whether or not the workflow's code is there to see it.
 */
import { type ActivityOptions, checkOptions } from "./activity.ts";
import { checkName, describe } from "./checks.ts";
import { engine } from "./engine.ts";

/** When a compensation is owed: unless the run completes, or however it ends. */
export type Trigger = "on-failure" | "always";

export interface CompensationOptions extends ActivityOptions {
  /** Left out: `on-failure`. A run that completes drops those, unexecuted. */
  readonly trigger?: Trigger;
}

export interface Compensation {
  /**
   * Takes it off the stack: the step that it undoes is final. Returns false where there is nothing to take off: it was
   * cancelled before, or the run's end is decided and the stack sealed.
   */
  cancel(): boolean;
}

/**
 * Registers activity `name` with `input` as the undo of what the workflow does next. The registration is durable before
 * that: nothing that the workflow asks for after it is executed without it. It does not wait, so there is nothing to await.
 *
 * ```ts
 * const charge = `${order.id}-charge`;
 * compensate("refund_card", charge);
 * await activity("charge_card", charge);
 * ```
 *
 * An undo must bear being executed when its step never happened, and more than once: every execution has the same
 * `idempotencyKey`, `RUN/GENERATION/undo/NUMBER` unless `options` name another. It is retried as `options.retry` says, 10
 * executions in all where that gives no number; one that fails for good lands among the dead letters (`hop dlq`), the
 * others are executed all the same, and the run ends as it would have. Throws `TypeError` and `RangeError` for arguments
 * that are not allowed.
 */
export function compensate(name: string, input?: unknown, options: CompensationOptions = {}): Compensation {
  checkName("Activity", name);
  if (options === null || typeof options !== "object")
    throw new TypeError(`Options of compensation "${name}" must be an object, got ${describe(options)}`);
  const { trigger = "on-failure", ...rest } = options;
  if (trigger !== "on-failure" && trigger !== "always")
    throw new TypeError(`Option of compensation "${name}": trigger must be "on-failure" or "always", got ${describe(trigger)}`);
  checkOptions(name, rest);
  const cancel = engine("compensate()").compensate(name, input, trigger, rest);
  return Object.freeze({ cancel });
}
