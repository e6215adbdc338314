/** Names of run statuses, as people and programs read them. */
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
