/** Names of run statuses, as people and programs read them, and what they have in common. */
import { RunStatus } from "../gen/codec.ts";

export const runStatusNames = {
  [RunStatus.running]: "running",
  [RunStatus.completed]: "completed",
  [RunStatus.failed]: "failed",
  [RunStatus.cancelled]: "cancelled",
  [RunStatus.terminated]: "terminated",
  [RunStatus.timedOut]: "timed_out",
  [RunStatus.blocked]: "blocked",
  [RunStatus.paused]: "paused",
  [RunStatus.compensating]: "compensating",
} as const;

/** Of a run whose end is not decided: its code may go on. */
export const openStatuses: readonly RunStatus[] = [RunStatus.running, RunStatus.blocked, RunStatus.paused];
/** Of a run that holds its name: it is open, or its end comes after its compensations. */
export const liveStatuses: readonly RunStatus[] = [...openStatuses, RunStatus.compensating];
