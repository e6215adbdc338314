/** Records as a shard appends them, with events of several runs, for tests of what reads the log. */
import { asIndex, asShardId, asTerm, type Index, type Partition, Prng, type ShardId } from "#core/base";
import { appendEvent, encodeRaw, PartitionChain } from "#core/merkle";
import {
  EventKind,
  type ExpiredRunInit,
  encodeCancelRequested,
  encodeHistoryExpired,
  encodeRunBlocked,
  encodeRunCompleted,
  encodeRunFailed,
  encodeRunPaused,
  encodeRunResumed,
  encodeRunStarted,
  encodeRunTerminated,
  encodeSearchableSet,
  encodeShardChange,
  encodeSignalReceived,
  type ShardChangeInit,
  toBytes,
} from "#proto";
import type { LogStore } from "./log/log-store.ts";

export const fixtureShard = asShardId(1);
const hasher = { sha256: (data: Uint8Array, out: Uint8Array) => void Bun.SHA256.hash(data, out) };

export interface NewEvent {
  readonly partition: string;
  readonly kind: number;
  readonly payload: Uint8Array;
}

const previousShardTag = 48;
const changeTag = 58;

/** Appends records to one shard and keeps the chains of all its partitions. */
export class RecordWriter {
  readonly chains = new Map<string, PartitionChain>();
  /** Canonical bytes of all events, by partition, of whatever shard. */
  readonly written: Map<string, Uint8Array[]>;
  index: Index = asIndex(0);
  private readonly log: LogStore;
  private readonly shard: ShardId;
  private timeMs = 1_700_000_000_000;

  constructor(log: LogStore, shard = fixtureShard, written = new Map<string, Uint8Array[]>()) {
    this.log = log;
    this.shard = shard;
    this.written = written;
  }

  record(...events: NewEvent[]): void {
    this.index = asIndex(this.index + 1);
    const writer = this.log.begin(this.shard, this.index, asTerm(1));
    const previousShards: number[] = [];
    for (const { partition, kind, payload } of events) {
      const chain = this.chains.get(partition) ?? new PartitionChain(partition as Partition);
      this.chains.set(partition, chain);
      previousShards.push(chain.lastShard);
      const envelope = { timeMs: ++this.timeMs, logical: 0, kind, schemaId: 1, identity: undefined, encode: encodeRaw, payload };
      const bytes = appendEvent({ writer, index: this.index, hasher }, chain, envelope).slice();
      this.written.set(partition, [...(this.written.get(partition) ?? []), bytes]);
    }
    if (previousShards.some((shard) => shard !== 0)) {
      for (const shard of previousShards) {
        writer.varint(previousShardTag);
        writer.varint(shard);
      }
    }
    this.log.end();
  }

  /** A record that changes the shard. */
  change(change: ShardChangeInit): void {
    this.index = asIndex(this.index + 1);
    this.log.begin(this.shard, this.index, asTerm(1)).field(changeTag, toBytes(encodeShardChange, change));
    this.log.end();
  }

  /** The partitions that `moves` picks go on in `to`'s log. */
  hand(to: RecordWriter, moves: (partition: string) => boolean): void {
    to.timeMs = Math.max(to.timeMs, this.timeMs);
    for (const [partition, chain] of this.chains) {
      if (!moves(partition)) continue;
      this.chains.delete(partition);
      const head = chain.head();
      const lastShard = head.lastShard === 0 ? this.shard : head.lastShard;
      to.chains.set(partition, new PartitionChain(partition as Partition, { ...head, lastShard: lastShard === to.shard ? 0 : lastShard }));
    }
  }

  /** Resolves when all of it is durable. */
  async settle(): Promise<void> {
    const durable = Promise.withResolvers<void>();
    this.log.onDurable = () => this.log.durableIndex(this.shard) === this.index && durable.resolve();
    this.log.onPoison = durable.reject;
    this.log.kick(true);
    await durable.promise;
  }
}

export const event = {
  started: (partition: string, generation: number, type = "order"): NewEvent => ({
    partition,
    kind: EventKind.runStarted,
    payload: toBytes(encodeRunStarted, { generation, type, bundle: new Uint8Array(32).fill(generation) }),
  }),
  completed: (partition: string): NewEvent => ({ partition, kind: EventKind.runCompleted, payload: toBytes(encodeRunCompleted, {}) }),
  failed: (partition: string): NewEvent => ({
    partition,
    kind: EventKind.runFailed,
    payload: toBytes(encodeRunFailed, { failure: { type: "OrderError", message: "out of stock" } }),
  }),
  terminated: (partition: string): NewEvent => ({
    partition,
    kind: EventKind.runTerminated,
    payload: toBytes(encodeRunTerminated, { reason: "by hand" }),
  }),
  blocked: (partition: string): NewEvent => ({
    partition,
    kind: EventKind.runBlocked,
    payload: toBytes(encodeRunBlocked, { cause: "divergence", message: "op 1 is a sleep" }),
  }),
  resumed: (partition: string): NewEvent => ({
    partition,
    kind: EventKind.runResumed,
    payload: toBytes(encodeRunResumed, { bundle: new Uint8Array(32).fill(9) }),
  }),
  cancelled: (partition: string): NewEvent => ({
    partition,
    kind: EventKind.cancelRequested,
    payload: toBytes(encodeCancelRequested, { reason: "changed mind" }),
  }),
  paused: (partition: string): NewEvent => ({
    partition,
    kind: EventKind.runPaused,
    payload: toBytes(encodeRunPaused, { reason: "a vendor is down" }),
  }),
  searchable: (partition: string, name: string, value: unknown): NewEvent => ({
    partition,
    kind: EventKind.searchableSet,
    payload: toBytes(encodeSearchableSet, { op: 1, name, value: JSON.stringify(value) }),
  }),
  expired: (partition: string, ...run: ExpiredRunInit[]): NewEvent => ({
    partition,
    kind: EventKind.historyExpired,
    payload: toBytes(encodeHistoryExpired, { run }),
  }),
  signal: (partition: string, bytes = 10): NewEvent => ({
    partition,
    kind: EventKind.signalReceived,
    payload: toBytes(encodeSignalReceived, { name: "s", payload: { data: new Uint8Array(bytes).fill(1) } }),
  }),
};

/** A mixed history of some runs with several generations. */
export function writeLife(writer: RecordWriter, seed: number, records: number): void {
  const prng = new Prng(seed);
  const generation = new Map<string, number>();
  const open = new Set<string>();
  for (let i = 0; i < records; i++) {
    const run = `run/default:order-${prng.below(12)}`;
    if (!open.has(run)) {
      const next = (generation.get(run) ?? 0) + 1;
      generation.set(run, next);
      open.add(run);
      writer.record(event.started(run, next, prng.chance(0.3) ? "refund" : "order"));
      continue;
    }
    const kinds = [
      event.signal,
      event.signal,
      event.signal,
      event.blocked,
      event.resumed,
      event.cancelled,
      event.paused,
      (at: string) => event.searchable(at, "total", prng.chance(0.2) ? null : prng.below(100)),
      (at: string) => event.searchable(at, "customer", `c${prng.below(5)}`),
      event.completed,
      event.failed,
      event.terminated,
    ];
    const make = kinds[prng.below(kinds.length)] as (partition: string) => NewEvent;
    if (kinds.indexOf(make) >= 9) open.delete(run);
    writer.record(event.signal(run), make(run));
  }
}
