/**
 * The simulator's own copy of what the cluster decided: every committed record of every shard,
 * decoded and checked as soon as the first member knows that it is committed, and beside it every
 * record that some leader appended, whether it was ever committed or not.
 */
import { asShardId, type Index, inRange, type Key, keyOfDigest, type Partition, type ShardId, type Term, wholeRange } from "#core/base";
import { decodeBody } from "#core/run";
import { decodeEvent, decodeRecord, fromBytes, type LeaseGranted, type Record as LogBody } from "#proto";
import { keyOf } from "../../node/cluster/shard-map.ts";
import { bunHasher, digest, nobleHasher } from "../hashers.ts";
import { checkAppended, checkEvent, checkLease, fitsLease } from "./check/appended.ts";
import { Channels } from "./check/channels.ts";
import { Children } from "./check/children.ts";
import { Keys } from "./check/keys.ts";
import { Messages } from "./check/messages.ts";
import { PlacementWatch } from "./check/placement.ts";
import { Schedules } from "./check/schedules.ts";
import { ShardRecord } from "./check/shards.ts";
import { type JournalEvent, RunModel } from "./model.ts";
import { claim } from "./violation.ts";

export interface AppendedRecord {
  readonly shard: ShardId;
  readonly index: number;
  readonly body: Uint8Array;
}

export interface CommittedEntry {
  readonly index: Index;
  readonly term: Term;
  readonly kind: "data" | "config";
  readonly data: Uint8Array;
}

export class PartitionJournal {
  readonly partition: string;
  readonly key: Key;
  readonly events: JournalEvent[] = [];
  readonly model = new RunModel();

  constructor(partition: string) {
    this.partition = partition;
    this.key = keyOf(partition as Partition);
  }
}

/** What is committed of one shard. */
export class ShardJournal {
  readonly shard: ShardId;
  /** Its log begins behind this. */
  readonly base: number;
  readonly entries: CommittedEntry[] = [];
  readonly record: ShardRecord;

  constructor(shard: ShardId, base: number, record: ShardRecord) {
    this.shard = shard;
    this.base = base;
    this.record = record;
  }

  get lastIndex(): number {
    return this.base + this.entries.length;
  }

  entry(index: number): CommittedEntry | undefined {
    return this.entries[index - this.base - 1];
  }
}

/** One in so many hashes is made a second time, by an independent hasher. */
const nobleEvery = 16;

export class Journal {
  readonly shards = new Map<ShardId, ShardJournal>();
  readonly partitions = new Map<string, PartitionJournal>();
  readonly messages = new Messages();
  readonly schedules = new Schedules();
  readonly channels = new Channels();
  readonly children = new Children();
  readonly keys = new Keys();
  readonly placement = new PlacementWatch();
  /** Highest physical time that any machine can have. */
  clockBoundMs: () => number = () => Number.POSITIVE_INFINITY;
  /** A committed entry was taken in. */
  onCommitted: (shard: ShardJournal, entry: CommittedEntry) => void = () => {};
  /** Sums up all logs: equal for equal simulations. */
  hash = 0x811c9dc5;
  eventCount = 0;
  /** All that leaders appended, by hash. */
  private readonly branches = new Map<number, JournalEvent>();
  private hashes = 0;

  constructor() {
    const first = asShardId(1);
    this.shards.set(asShardId(0), new ShardJournal(asShardId(0), 0, new ShardRecord(asShardId(0), { first: 1, last: 0 })));
    this.shards.set(first, new ShardJournal(first, 0, new ShardRecord(first, wholeRange)));
  }

  of(partition: string): PartitionJournal {
    const found = this.partitions.get(partition);
    if (found !== undefined) return found;
    const made = new PartitionJournal(partition);
    this.partitions.set(partition, made);
    return made;
  }

  lastIndex(shard: ShardId): number {
    return this.shards.get(shard)?.lastIndex ?? 0;
  }

  /** Records of all shards. */
  get recordCount(): number {
    let sum = 0;
    for (const { entries } of this.shards.values()) sum += entries.length;
    return sum;
  }

  /** The event of these bytes, which some leader must have appended. */
  appendedEvent(bytes: Uint8Array): JournalEvent | undefined {
    return this.branches.get(keyOfDigest(digest(bytes, bunHasher)));
  }

  before(e: JournalEvent): JournalEvent | undefined {
    return this.branches.get(keyOfDigest(e.prevHash));
  }

  /** A leader appended a record. */
  appended({ shard, index, body }: AppendedRecord): void {
    if (shard === 0) return;
    const record = fromBytes(decodeRecord, body);
    const events = record.event.map((bytes) => this.decode(shard, index, bytes, record));
    for (const e of events) {
      checkAppended(e, this.clockBoundMs());
      this.branches.set(keyOfDigest(e.hash), e);
    }
  }

  /** The next committed entry of a shard, as the first member to know of it has it. */
  commit(shard: ShardId, entry: CommittedEntry): void {
    const at = this.shards.get(shard);
    claim("eachKeyOwnedOnce", at !== undefined, () => `shard ${shard} commits entry ${entry.index}, but no split made it`);
    claim("noAckedEventLost", entry.index === at.lastIndex + 1, () => `entry ${entry.index} of shard ${shard} follows ${at.lastIndex}`);
    at.entries.push(entry);
    const { data } = entry;
    for (let i = 0; i < data.length; i += 7) this.hash = Math.imul(this.hash ^ (data[i] as number), 0x01000193);
    if (entry.kind === "data" && data.length > 0) {
      const record = fromBytes(decodeRecord, data);
      if (shard === 0) this.placement.fold(record);
      else this.fold(at, entry, record);
    }
    this.onCommitted(at, entry);
  }

  private fold(at: ShardJournal, { index }: CommittedEntry, record: LogBody): void {
    if (record.change !== undefined) return this.change(at, index, record.change);
    // A record does not say whether a lease came before or after its events: either is fine.
    const early = record.lease.filter((lease) => fitsLease(this.of(lease.partition).model, lease));
    for (const lease of early) this.lease(at, index, lease);
    this.messages.beforeEvents(record);
    for (const [i, bytes] of record.event.entries()) this.event(at, index, bytes, record, i);
    for (const lease of record.lease) if (!early.includes(lease)) this.lease(at, index, lease);
    this.messages.afterEvents(record);
    this.children.afterEvents(record);
  }

  private change(at: ShardJournal, index: number, change: NonNullable<LogBody["change"]>): void {
    at.record.fold(index, change, {
      placement: this.placement,
      lastIndex: (shard) => this.lastIndex(shard),
      recordOf: (shard) => this.shards.get(shard)?.record,
      born: (shard, record) => this.shards.set(shard, new ShardJournal(shard, 1, record)),
    });
  }

  private lease(at: ShardJournal, index: number, lease: LeaseGranted): void {
    const { model } = this.of(lease.partition);
    checkLease(model, lease);
    model.foldLease(index, lease);
    this.owned(at, index, lease.partition);
  }

  /** I16, I14: a record about a partition is committed only in the log of the shard that owns it there. */
  private owned(at: ShardJournal, index: number, partition: string): void {
    const { range, frozenInto } = at.record;
    const isOwned = inRange(range, this.of(partition).key) && frozenInto === 0;
    claim(
      "eachKeyOwnedOnce",
      isOwned,
      () => `entry ${index} of shard ${at.shard} is about ${partition}, which the shard does not own there`,
    );
  }

  private event(at: ShardJournal, index: number, bytes: Uint8Array, record: LogBody, i: number): void {
    const e = this.decode(at.shard, index, bytes, record);
    const partition = this.of(e.partition);
    this.owned(at, index, e.partition);
    const previous = { index: record.previous[i] ?? 0, shard: record.previousShard[i] || at.shard };
    checkEvent(partition, e, previous);
    this.messages.event(partition, e);
    this.schedules.event(partition, e);
    this.channels.event(partition, e);
    this.children.event(partition, e);
    this.keys.event(partition, e);
    partition.events.push(e);
    partition.model.fold(e);
    this.eventCount++;
  }

  private decode(shard: ShardId, index: number, bytes: Uint8Array, record: LogBody): JournalEvent {
    const hash = digest(bytes, ++this.hashes % nobleEvery === 0 ? nobleHasher : bunHasher);
    const known = this.branches.get(keyOfDigest(hash));
    if (known !== undefined && known.shard === shard && known.index === index) return known;
    const raw = fromBytes(decodeEvent, bytes);
    const event = decodeBody(raw.kind, raw.payload);
    claim("chainAndMmrUnbroken", event !== undefined, () => `${raw.partition} holds an event of unknown kind ${raw.kind}`);
    return {
      partition: raw.partition,
      shard,
      index,
      seq: raw.seq,
      timeMs: raw.timeMs,
      logical: raw.logical,
      kind: raw.kind,
      event,
      bytes,
      hash,
      prevHash: raw.prevHash,
      issuer: raw.identity?.issuer ?? "",
      deliveredSeq: record.deliveredSeq,
    };
  }
}
