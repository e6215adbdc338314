/**
 * What services and worker streams see of a shard that this node hosts.
 *
 * All calls are made on the node's one thread; callbacks come when the barrier of their effect
 * is reached, or with UNAVAILABLE reasons when the shard stops.
 */
import type { KeyRange, Partition, Reply, RequestId, Seq, SessionId } from "#core/base";
import type { SessionCapacity } from "#core/dispatch";
import type { Command } from "#core/shard";
import type { DescribeReply, Envelope, Hello, Identity, ServerItemInit, WorkerItem } from "#proto";

/** The sending half of a worker's stream. */
export interface WorkerLink {
  /** Encodes the item at once (its bytes may be views that change later) and sends it with the tick's frame. */
  send(item: ServerItemInit): void;
  /** Ends the stream: the worker reconnects. */
  close(reason: string): void;
}

export interface ShardPort {
  /** Keys that are decided here. */
  readonly range: KeyRange;
  /** Whether a read here, now, sees everything that was acknowledged anywhere. */
  isCurrent(): boolean;
  /** Decides a command; `done` is called exactly once unless the request is forgotten. */
  command(identity: Identity, command: Command, done: (reply: Reply) => void): RequestId;
  /** The caller no longer waits. What was decided stays decided. */
  forget(request: RequestId): void;
  /** Takes messages of a partition to one of this shard. `done` is called once, with a reply of kind `enveloped` or `rejected`. */
  envelope(envelope: Envelope, done: (reply: Reply) => void): RequestId;

  /** A worker's stream said hello. `capacity` is the stream's, shared by all shards that it joins. */
  join(hello: Hello, link: WorkerLink, capacity: SessionCapacity): SessionId;
  /** A slot of the worker is free, and `SessionCapacity.owed` names this shard. False: it can't take it now, and asks again by itself. */
  capacityFreed(session: SessionId): boolean;
  leave(session: SessionId): void;
  receive(session: SessionId, item: WorkerItem): void;

  /** Whether the partition's key is in the shard's range, as of everything decided here. */
  owns(partition: Partition): boolean;
  /** Event bytes of a partition from `fromSeq` on, durable ones only, in chunks and in order. */
  history(partition: Partition, fromSeq: Seq): AsyncIterable<Uint8Array[]>;
  /** Resolves when the partition has a durable event at `seq`, or the run has ended, or `signal` aborts. */
  changed(partition: Partition, seq: Seq, signal: AbortSignal): Promise<void>;
  /** State of a run, or undefined when there is no such run. */
  describe(partition: Partition): DescribeReply | undefined;
  /** Resolves when everything appended so far is durable, or all of one partition. Rejects with NO_SPACE where a full disk keeps it from becoming so. */
  settled(partition?: Partition): Promise<void>;
}
