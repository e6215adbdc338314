/**
 * A run that is in memory: its state, its chain head, and what is under way for it.
 *
 * Everything but `run`, `chain` and `appliedIndex` is lost with the process and made anew.
 */
import type { Key, Partition, RequestId, RunId, SessionId } from "#core/base";
import { namespaceOf, runOf } from "#core/base";
import type { Session } from "#core/dispatch";
import type { PartitionChain } from "#core/merkle";
import type { Run } from "#core/run";
import type { Payload } from "#proto";
import type { Confirmation } from "./inbox.ts";
import type { Flight } from "./outbox.ts";

/** One offered or executing delivery of an activity. */
export interface LiveTask {
  readonly op: number;
  readonly attempt: number;
  readonly delivery: number;
  readonly key: string;
  /** Undefined while it waits in the queue or is orphaned. */
  session: Session<LiveRun> | undefined;
  /** The worker that has or had it; empty when that is not known. */
  workerId: string;
  /** Until then a lost worker may come back and keep it; 0 = it has a worker or is queued. */
  orphanUntilMs: number;
  /** Some worker may have it and none claims it: what leaves next is another delivery. */
  isUnclaimed: boolean;
  heartbeatMs: number;
  progress: Payload | undefined;
}

export interface Waiter {
  readonly request: RequestId;
  /** A start that waits for its outcome, or a plain wait. */
  readonly start: boolean;
  readonly attached: boolean;
  /** The queued start that it waits for, which may have begun since; 0 = the newest run. */
  readonly ticket: number;
  /** It is a consumer of the run's stream. */
  readonly consumes?: boolean;
}

export interface WaitingQuery {
  readonly request: RequestId;
  readonly name: string;
  readonly input: Payload | undefined;
  /** Key among the queries that workers were asked; 0 = not sent. */
  asked: number;
  tries: number;
}

export class LiveRun {
  readonly partition: Partition;
  readonly key: Key;
  readonly id: RunId;
  readonly namespace: string;
  readonly run: Run;
  readonly chain: PartitionChain;
  /** The state is the fold of the log through this index. */
  appliedIndex: number;

  session: Session<LiveRun> | undefined = undefined;
  handle = 0;
  activation = 0;
  inFlight = false;
  /** The worker does not hold the run yet: it is being rebuilt there. */
  building = false;
  /** One above the last sequence that the activation in flight carries. */
  throughSeq = 0;
  /** The guest has seen all events below this, and what it asked for then is recorded. */
  seenSeq = 0;
  /** Events of this step, views into the log's buffer. */
  fresh: Uint8Array[] = [];
  /** Events that came while an activation was in flight, copied. */
  undelivered: Uint8Array[] = [];
  /** Failed activations in a row. */
  strikes = 0;

  readonly tasks = new Map<number, LiveTask>();
  /** Operations whose next attempt was decided in this life: nobody can have its first delivery yet. */
  readonly retries = new Set<number>();
  /** Tasks that were given up while compensations were owed, by their keys, and may still be executing there until then. */
  readonly stopping = new Map<string, { readonly session: SessionId | undefined; readonly untilMs: number }>();
  /** Envelopes under way, by receiver. */
  readonly flights = new Map<Partition, Flight>();
  /** Messages of the run that flights were made for; later ones may have none. */
  postedCount = 0;
  /** What senders said of their acks. */
  readonly confirmations = new Map<Partition, Confirmation>();
  waiters: Waiter[] = [];
  /** Who waits for the answer of a method call, by the call's number. */
  readonly callers = new Map<number, RequestId[]>();
  queries: WaitingQuery[] = [];
  /** When the stream's last consumer left, or this leader began; of a connected stream without one. */
  consumedMs = 0;
  touchedMs = 0;

  constructor(partition: Partition, key: Key, run: Run, chain: PartitionChain, appliedIndex: number) {
    this.partition = partition;
    this.key = key;
    this.id = runOf(partition);
    this.namespace = namespaceOf(this.id);
    this.run = run;
    this.chain = chain;
    this.appliedIndex = appliedIndex;
  }
}

/** A worker has something to do for it, or somebody waits for it. */
export const isInUse = ({ inFlight, tasks, waiters, callers, queries }: LiveRun): boolean =>
  inFlight || tasks.size > 0 || waiters.length > 0 || callers.size > 0 || queries.length > 0;
