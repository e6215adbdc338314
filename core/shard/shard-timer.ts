/** A reminder: something may have to happen to a run at a time. */
import type { Partition } from "#core/base";

export interface ShardTimer {
  readonly atMs: number;
  readonly partition: Partition;
  readonly what:
    | "resend"
    | "timer"
    | "retry"
    | "start-to-close"
    | "schedule-to-close"
    | "heartbeat"
    | "deadline"
    | "budget"
    | "schedule"
    | "channel"
    | "key"
    | "orphan"
    | "replay"
    | "unwind"
    | "stream";
  /** Of a `budget`, the start's ticket. */
  readonly op: number;
  readonly attempt: number;
  readonly delivery: number;
  readonly generation: number;
  /** The receiver, of a `resend`. */
  readonly peer?: Partition;
}
