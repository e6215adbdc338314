/** Everything that can happen to a shard. Each input carries the physical clock's milliseconds. */
import {
  channelPartition,
  type Partition,
  type Rejection,
  type RequestId,
  type RunId,
  runPartition,
  type SessionId,
  schedulePartition,
} from "#core/base";
import type { SessionCapacity } from "#core/dispatch";
import type { StartRequest } from "#core/run";
import type {
  Activated,
  ChannelCommand,
  Envelope,
  EnvelopeReply,
  Heartbeat,
  Hello,
  Identity,
  Payload,
  QueryAnswer,
  ScheduleCommand,
  TaskDone,
} from "#proto";

/** `ticket`: one start that was queued, and its run; left out or 0 = the newest run of the name. */
interface Directed {
  readonly run: RunId;
  readonly ticket?: number;
}

/** What a client may ask, validated and with oversized payloads already in the blob store. */
export type Command =
  | (StartRequest & { readonly kind: "start"; readonly run: RunId; readonly awaitResult: boolean })
  | (Directed & { readonly kind: "signal"; readonly name: string; readonly payload: Payload | undefined; readonly id: string })
  | (Directed & { readonly kind: "query"; readonly name: string; readonly input: Payload | undefined })
  /** `id`: sent again with the same one, it is the same call; empty = never. */
  | (Directed & { readonly kind: "call"; readonly name: string; readonly input: Payload | undefined; readonly id: string })
  /** `generation`: also when another followed it; left out or 0 = the newest. */
  | (Directed & { readonly kind: "await-result"; readonly generation?: number })
  /** Waits like `await-result`, and is a consumer of the run's stream meanwhile. */
  | { readonly kind: "consume"; readonly run: RunId; readonly generation: number }
  | (Directed & { readonly kind: "cancel"; readonly reason: string })
  | (Directed & { readonly kind: "terminate"; readonly reason: string })
  | (Directed & { readonly kind: "pause" | "unpause"; readonly reason: string })
  | (Directed & { readonly kind: "resume"; readonly bundle: Uint8Array })
  /** `run` is the schedule's address. */
  | { readonly kind: "schedule"; readonly run: RunId; readonly ask: ScheduleCommand }
  /** `run` is the channel's address. */
  | { readonly kind: "channel"; readonly run: RunId; readonly ask: ChannelCommand }
  | LetterCommand;

export type CommandOf<K extends Command["kind"]> = Extract<Command, { kind: K }>;

/** The partition that decides the command. */
export const partitionOfCommand = ({ kind, run }: Command): Partition =>
  kind === "schedule" ? schedulePartition(run) : kind === "channel" ? channelPartition(run) : runPartition(run);

/** About a compensation that failed for good, whichever run of the name it is of. */
export type LetterCommand =
  | { readonly kind: "replay-letter"; readonly run: RunId; readonly letter: number }
  | { readonly kind: "drop-letter"; readonly run: RunId; readonly letter: number; readonly reason: string };

/** The start that a command is about, where it is about one of a name's. */
export const ticketOf = (command: Command): number => ("ticket" in command ? (command.ticket ?? 0) : 0);

export type Input = { readonly nowMs: number } & (
  | { readonly kind: "command"; readonly request: RequestId; readonly identity: Identity; readonly command: Command }
  /** The client went away or stopped waiting: its reply is not wanted any more. */
  | { readonly kind: "request-gone"; readonly request: RequestId }
  | { readonly kind: "worker-joined"; readonly session: SessionId; readonly hello: Hello; readonly capacity: SessionCapacity }
  /** A slot of the session is free and it is this shard's turn: `SessionCapacity.owed()` named it. */
  | { readonly kind: "capacity-freed"; readonly session: SessionId }
  | { readonly kind: "worker-gone"; readonly session: SessionId }
  | { readonly kind: "draining"; readonly session: SessionId }
  | { readonly kind: "activated"; readonly session: SessionId; readonly message: Activated }
  | { readonly kind: "task-done"; readonly session: SessionId; readonly message: TaskDone }
  | { readonly kind: "heartbeat"; readonly session: SessionId; readonly message: Heartbeat }
  | { readonly kind: "query-answered"; readonly session: SessionId; readonly message: QueryAnswer }
  | { readonly kind: "evicted"; readonly session: SessionId; readonly handle: number }
  /** The shell could not read the history that a `replay` effect asked for, or not reach the session. */
  | { readonly kind: "replay-failed"; readonly session: SessionId; readonly handle: number; readonly activation: number }
  /** Messages of a partition elsewhere, or here, to one of this shard. Answered with a reply of kind `enveloped`. */
  | { readonly kind: "envelope"; readonly request: RequestId; readonly envelope: Envelope }
  /** What came of a `send` effect of partition `from` to partition `to`. */
  | {
      readonly kind: "envelope-answered";
      readonly from: Partition;
      readonly to: Partition;
      readonly answer: EnvelopeReply | { readonly rejection: Rejection };
    }
  | { readonly kind: "tick" }
);

/**
 * By the kind of an input, whether stepping it may append to the log: such a one waits, or is refused, while nothing may
 * be appended. A free slot is among them: a task that is offered anew counts its delivery when it leaves.
 */
export const mayAppend: Readonly<Record<Input["kind"], boolean>> = {
  command: true,
  envelope: true,
  "envelope-answered": true,
  "worker-joined": true,
  "capacity-freed": true,
  activated: true,
  "task-done": true,
  tick: true,
  "request-gone": false,
  "worker-gone": false,
  draining: false,
  heartbeat: false,
  "query-answered": false,
  evicted: false,
  "replay-failed": false,
};
