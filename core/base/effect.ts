/**
 * Everything Core can ask of its shell, and what must be true before the shell may do it.
 *
 * A shell runs effects in the order given; one whose barrier is not reached waits, and those of
 * one barrier keep their order.
 */
import type { ActivityOptions, ChannelReply, Envelope, EnvelopeReply, Failure, Outcome, Payload, ScheduleReply } from "#proto";
import type { Rejection } from "./errors.ts";
import type { Index, Partition, RequestId, RunId, Seq, SessionId, ShardId } from "./ids.ts";

/**
 * `now`: at once, even on uncommitted events (workflow code is pure, so running it early shows
 * nothing to anyone). `committed`: when the log holds `index` durably on a quorum.
 */
export type Barrier = { readonly until: "now" } | { readonly until: "committed"; readonly index: Index };

export const now: Barrier = { until: "now" };

/** Names one delivery of one attempt of one activity of one generation. */
export interface Token {
  readonly run: RunId;
  readonly generation: number;
  readonly op: number;
  readonly attempt: number;
  readonly delivery: number;
  /** Of the leadership lease under which it was offered. */
  readonly epoch: number;
}

/** Deliver events to a run that the session holds, or begin a run there (`start`). */
export interface ActivateEffect {
  readonly kind: "activate";
  readonly session: SessionId;
  readonly handle: number;
  readonly activation: number;
  /** Canonical bytes in log order; views into the log's buffer where `after` is `now`. */
  readonly events: readonly Uint8Array[];
  readonly start?: { readonly run: RunId; readonly bundle: Uint8Array; readonly type: string };
  readonly after: Barrier;
}

/** Rebuild a run on a session: read its history in [firstSeq, endSeq) and send it. */
export interface ReplayEffect {
  readonly kind: "replay";
  readonly session: SessionId;
  readonly handle: number;
  readonly activation: number;
  readonly partition: Partition;
  readonly bundle: Uint8Array;
  readonly type: string;
  readonly firstSeq: Seq;
  readonly endSeq: Seq;
  /** Log index of the record that holds event endSeq − 1. */
  readonly lastIndex: Index;
  /** Shard whose log `lastIndex` is an index of. */
  readonly lastShard: ShardId;
  readonly readOnly: boolean;
  readonly after: Barrier;
}

export interface TaskEffect {
  readonly kind: "task";
  readonly session: SessionId;
  readonly number: number;
  readonly token: Token;
  readonly name: string;
  readonly input: Payload | undefined;
  readonly options: ActivityOptions | undefined;
  readonly heartbeat: Payload | undefined;
  readonly workflowType: string;
  readonly after: Barrier;
}

/** What a start has come to. `generation` is 0 where it waits, or left the queue without a run. */
export interface Started {
  readonly run: RunId;
  readonly generation: number;
  readonly attached: boolean;
  /** Left out: it was not queued. */
  readonly ticket?: number;
}

/** What a method of a run answered. With `failure` there is no result; `rejected`: the input did not pass. */
export interface MethodOutcome {
  readonly result: Payload | undefined;
  readonly failure: Failure | undefined;
  readonly rejected: boolean;
}

export type Reply =
  /** `place` in the queue, from 1; left out: it does not wait. */
  | (Started & { readonly kind: "started"; readonly place?: number; readonly outcome?: Outcome })
  | { readonly kind: "signalled"; readonly seq: Seq }
  | { readonly kind: "outcome"; readonly outcome: Outcome; readonly generation: number }
  | { readonly kind: "queried"; readonly result: Payload | undefined }
  | ({ readonly kind: "called"; readonly seq: Seq } & MethodOutcome)
  | { readonly kind: "resumed"; readonly bundle: Uint8Array }
  | { readonly kind: "scheduled"; readonly answer: ScheduleReply }
  | { readonly kind: "channelled"; readonly answer: ChannelReply }
  | { readonly kind: "done" }
  | { readonly kind: "enveloped"; readonly answer: EnvelopeReply }
  | {
      readonly kind: "rejected";
      readonly rejection: Rejection;
      /** The start was taken and only its outcome is missing: ask for that, do not start again. */
      readonly started?: Started;
    };

export type Effect =
  | ActivateEffect
  | ReplayEffect
  | TaskEffect
  | { readonly kind: "cancel-task"; readonly session: SessionId; readonly token: Token; readonly reason: string; readonly after: Barrier }
  | {
      readonly kind: "query";
      readonly session: SessionId;
      readonly query: number;
      readonly handle: number;
      readonly name: string;
      readonly input: Payload | undefined;
      readonly after: Barrier;
    }
  | { readonly kind: "drop"; readonly session: SessionId; readonly handle: number; readonly after: Barrier }
  | { readonly kind: "reply"; readonly request: RequestId; readonly reply: Reply; readonly after: Barrier }
  /**
   * Bring the envelope to the leader of the shard that owns partition `to`, which may be this one,
   * as input `envelope`; its reply, or why there is none, comes back as input `envelope-answered`.
   * It may be lost: Core sends again what stays unanswered. It leaves only under a valid leader
   * lease: who was deposed unknowingly must not offer what its successor settled long ago.
   */
  | { readonly kind: "send"; readonly to: Partition; readonly envelope: Envelope; readonly after: Barrier }
  /** Step with a `tick` at this time (milliseconds since 1970), or as soon after as can be. */
  | { readonly kind: "arm-timer"; readonly atMs: number; readonly after: Barrier };
