/** How runs end, as programs read it. */
import { type Failure, RunStatus, runStatusNames, type Outcome as WireOutcome } from "#proto";
import { HopError, WorkflowFailedError } from "./errors.ts";
import { fromPayload } from "./payload.ts";

export type StatusName =
  | "running"
  | "completed"
  | "failed"
  | "cancelled"
  | "terminated"
  | "timed_out"
  | "blocked"
  | "paused"
  | "compensating"
  | "queued"
  | "unknown";

const names: Readonly<Record<number, StatusName>> = { ...runStatusNames, [RunStatus.queued]: "queued" };

export const statusName = (status: number): StatusName => names[status] ?? "unknown";

/** `value` is set when `status` is "completed", `failure` when its code or a limit ended the run. */
export interface Outcome {
  readonly status: StatusName;
  readonly value: unknown;
  readonly failure: Failure | undefined;
}

export async function readOutcome(wire: WireOutcome | undefined, fetchBlob: (sha256: Uint8Array) => Promise<Uint8Array>): Promise<Outcome> {
  if (wire === undefined) return { status: "unknown", value: undefined, failure: undefined };
  const status = statusName(wire.status);
  const value = status === "completed" ? await fromPayload(wire.result, fetchBlob) : undefined;
  return { status, value, failure: wire.failure };
}

/** The value of a completed run. Throws `WorkflowFailedError`, or `HopError` BUDGET_EXPIRED for one that still runs. */
export function completedValue(run: string, outcome: Outcome): unknown {
  const { status, value, failure } = outcome;
  if (status === "completed") return value;
  if (status === "running") throw new HopError("BUDGET_EXPIRED", `Run ${run} has not ended within the time to wait; it goes on`);
  if (status === "paused") throw new HopError("BUDGET_EXPIRED", `Run ${run} is paused, and has not ended within the time to wait`);
  if (status === "compensating")
    throw new HopError(
      "BUDGET_EXPIRED",
      `Run ${run} has not ended within the time to wait: its end is decided, and its compensations are executed first`,
    );
  if (status === "queued") throw new HopError("BUDGET_EXPIRED", `Start ${run} still waits in the queue of its name`);
  if (status === "unknown") throw new HopError("INTERNAL", `Run ${run} has a status that this client does not know`);
  throw new WorkflowFailedError(run, status, failure);
}
