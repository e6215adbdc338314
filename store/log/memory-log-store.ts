/**
 * The log in memory, for the simulator: as durable as its simulated disk.
 *
 * It commits in groups exactly like the real one, but when a write lands is up to the schedule
 * it is given. `crash` drops what had not landed, or keeps a whole-record prefix of the write
 * in flight.
 */
import { crc32 } from "node:zlib";
import { asIndex, assert, HopError, type Index, type Prng, type ShardId, type Term } from "#core/base";
import { Writer } from "#proto";
import { BoundedEntries } from "./bounded-entries.ts";
import { type EntryKind, type HardState, type LogEntry, type LogRecord, type LogStore, type LogUsage, scanBytes } from "./log-store.ts";
import { checked, MemoryDisk, type StoredFrame, type StoredRecord } from "./memory-disk.ts";
import { ReleasedError } from "./released-error.ts";
import { notHere } from "./segment-reader.ts";
import { noBase, noState, type ShardLog } from "./shard-log.ts";
import { ShardLogs } from "./shard-logs.ts";

export { MemoryDisk } from "./memory-disk.ts";

/** When things happen. `write` calls `done` when `bytes` bytes have landed. */
export interface LogSchedule {
  soon(run: () => void): void;
  after(ms: number, run: () => void): void;
  write(bytes: number, done: () => void): void;
}

const realSchedule: LogSchedule = {
  soon: queueMicrotask,
  after: (ms, run) => void setTimeout(run, ms),
  write: (_bytes, done) => queueMicrotask(done),
};

const rideMs = 2;
const retryMs = 250;
/** What a frame without a body takes. */
const frameBytes = 48;

export class MemoryLogStore extends ShardLogs implements LogStore {
  onDurable = () => {};
  onPoison: (cause: Error) => void = () => {};
  private readonly disk: MemoryDisk;
  private readonly schedule: LogSchedule;
  /** All that was appended and not overwritten, landed or not. */
  private readonly records = new Map<ShardId, StoredRecord[]>();
  private writer = new Writer();
  private opened: { readonly log: ShardLog; readonly index: Index; readonly term: Term; readonly kind: EntryKind } | undefined;
  private filling: StoredFrame[] = [];
  private flying: StoredFrame[] = [];
  private isUrgent = false;
  private isArmed = false;
  private isRiding = false;
  private isDead = false;

  constructor(disk = new MemoryDisk(), schedule: LogSchedule = realSchedule) {
    super();
    this.disk = disk;
    this.schedule = schedule;
    for (const shard of disk.facts.keys()) this.recover(shard);
    for (const shard of disk.shards.keys()) this.recover(shard);
    this.settle();
  }

  begin(shard: ShardId, index: Index, term: Term, kind: EntryKind = "data"): Writer {
    assert(this.opened === undefined, "a record is ended before the next one begins");
    this.opened = { log: this.appending(shard, index, term), index, term, kind };
    // Views into what was encoded stay valid until the flush, and longer.
    this.writer = new Writer(512);
    return this.writer;
  }

  end(): void {
    assert(this.opened !== undefined, "a record that ends has begun");
    const { log, index, term, kind } = this.opened;
    this.opened = undefined;
    const body = this.writer.finish();
    this.add({ shard: log.shard, index, term, kind, body, checksum: crc32(body) });
    if (log.isReplicated !== undefined) log.taken.push({ index, term, kind, data: log.isReplicated ? body.slice() : new Uint8Array(0) });
  }

  append(shard: ShardId, entries: readonly LogEntry[]): void {
    for (const { index, term, kind, data } of entries) {
      this.appending(shard, index, term);
      this.add(stored(shard, { index, term, kind, data }));
    }
  }

  setHardState(shard: ShardId, state: HardState): void {
    const log = this.logOf(shard);
    log.vote(state);
    this.filling.push({ kind: "state", shard, state: log.state });
    this.touch(log);
  }

  setBase(shard: ShardId, index: Index, term: Term): void {
    const { base } = this.rebasing(shard, { index, term });
    this.records.delete(shard);
    this.filling.push({ kind: "base", shard, base });
  }

  compact(shard: ShardId, index: Index): void {
    const log = this.logOf(shard);
    const before = log.base.index;
    if (index === before) return;
    log.compact(index);
    this.records.get(shard)?.splice(0, index - before);
    this.filling.push({ kind: "compacted", shard, base: log.base });
    this.counted(1);
  }

  release(shard: ShardId, through: Index): void {
    if (this.releasing(shard, through)) this.filling.push({ kind: "released", shard, through });
  }

  usage(): LogUsage {
    const shards = new Map<ShardId, number>();
    let bytes = 0;
    for (const shard of new Set([...this.disk.shards.keys(), ...this.disk.facts.keys()])) {
      const live = this.disk.liveBytes(shard);
      if (live > 0) shards.set(shard, live);
      bytes += live;
    }
    return { bytes, liveBytes: bytes, shards, movedBytes: 0, trimmedBytes: 0 };
  }

  remove(shard: ShardId): void {
    const { state } = this.rebasing(shard, noBase, true);
    this.records.delete(shard);
    this.filling.push({ kind: "removed", shard, state });
  }

  ingestArchive(shard: ShardId, records: readonly LogEntry[]): void {
    for (const record of records) this.filling.push({ kind: "archive", record: stored(shard, record) });
    this.counted(records.length);
  }

  entries(shard: ShardId, begin: Index, end: Index, maxBytes: number): LogEntry[] {
    const log = this.appendedLog(shard, begin, end);
    const records = this.records.get(shard) ?? [];
    const out = new BoundedEntries(maxBytes);
    for (let index: number = begin; index < end; index++) {
      const { term, kind, body } = checked(records[index - log.base.index - 1] as StoredRecord);
      if (!out.add({ index: asIndex(index), term, kind, data: body })) break;
    }
    return out.list;
  }

  hasRoom(): boolean {
    return !this.isDead && !this.disk.isFull;
  }

  kick(urgent: boolean): void {
    if (urgent) this.isUrgent = true;
    else if (!this.isUrgent && !this.isRiding) {
      this.isRiding = true;
      this.schedule.after(rideMs, this.alive(this.rideOver));
    }
    if (!this.isUrgent || this.isArmed || this.flying.length > 0) return;
    this.isArmed = true;
    this.schedule.soon(this.alive(this.flush));
  }

  async read(shard: ShardId, index: Index): Promise<LogRecord> {
    const record = this.disk.find(shard, index, this.bounds(shard));
    const released = this.released(shard);
    if (record === undefined) throw index <= released ? new ReleasedError(shard, index, released) : notHere(shard, index);
    return checked(record);
  }

  async *scan(shard: ShardId, from: Index, end?: Index): AsyncGenerator<LogRecord> {
    yield* this.replay(shard, from, end);
  }

  async *scanMany(shard: ShardId, from: Index, end?: Index): AsyncGenerator<readonly LogRecord[]> {
    let [records, bytes]: [LogRecord[], number] = [[], 0];
    for (const record of this.replay(shard, from, end)) {
      records.push(record);
      bytes += record.body.length;
      if (bytes < scanBytes) continue;
      yield records;
      [records, bytes] = [[], 0];
    }
    if (records.length > 0) yield records;
  }

  *replay(shard: ShardId, from: Index, end?: Index): Generator<LogRecord> {
    const range = this.scanRange(shard, from, end);
    const bounds = this.bounds(shard);
    for (const index of this.indexes(shard)) {
      if (index < range.from || index >= range.end) continue;
      const record = this.disk.find(shard, index, bounds);
      if (record !== undefined) yield checked(record);
      else if (index > bounds.released && index <= this.released(shard))
        throw new ReleasedError(shard, asIndex(index), this.released(shard));
    }
  }

  async close(): Promise<void> {
    if (this.isDead) return;
    if (!this.disk.isFull) {
      this.land(this.flying);
      this.land(this.filling);
      this.flying = [];
      this.filling = [];
    }
    this.isDead = true;
  }

  /** The machine stops. With `torn`, records at the front of the write in flight may have reached the disk. */
  crash(torn?: Prng): void {
    if (this.isDead) return;
    this.isDead = true;
    if (torn !== undefined) this.land(this.flying.slice(0, torn.below(this.flying.length + 1)));
  }

  private readonly rideOver = (): void => {
    this.isRiding = false;
    if (this.filling.length > 0) this.kick(true);
  };

  private readonly flush = (): void => {
    this.isArmed = false;
    if (this.flying.length > 0 || this.filling.length === 0) return;
    assert(this.opened === undefined, "no record is open when the log is flushed");
    this.isUrgent = false;
    this.flying = this.filling;
    this.filling = [];
    this.takeOff();
    const bytes = this.flying.reduce((sum, frame) => sum + ("record" in frame ? frame.record.body.length : frameBytes), 0);
    this.schedule.write(bytes, this.alive(this.landed));
  };

  private readonly landed = (): void => {
    if (this.disk.failure !== undefined) {
      const cause = this.disk.failure;
      this.isDead = true;
      return this.onPoison(new HopError("STORE_UNAVAILABLE", `Cannot write the log: ${cause.message}`, { cause }));
    }
    if (this.disk.isFull) return this.schedule.after(retryMs, this.alive(this.landed));
    const batch = this.flying;
    this.flying = [];
    this.land(batch);
    this.touchDown();
    this.onDurable();
    if (this.isUrgent) this.kick(true);
  };

  private land(frames: readonly StoredFrame[]): void {
    for (const frame of frames) this.disk.land(frame);
  }

  private recover(shard: ShardId): void {
    if (this.logs.has(shard)) return;
    const facts = this.disk.facts.get(shard);
    const records = this.disk.shards.get(shard);
    if (facts !== undefined && facts.released > 0) this.releasedTo.set(shard, facts.released);
    // A shard of which there is only archive has no log here.
    if ((records ?? []).length === 0 && facts?.state === noState && facts.base === noBase && !facts.isRemoved) return;
    const log = this.logOf(shard);
    log.rebase(facts?.base ?? noBase, facts?.isRemoved);
    log.state = facts?.state ?? noState;
    for (const { index, term } of records ?? []) log.append(index, term);
    this.records.set(shard, records?.slice() ?? []);
  }

  /** Joins the log, in place of all that it has from its index on. */
  private add(record: StoredRecord): void {
    const { shard, index } = record;
    const records = this.records.get(shard) ?? [];
    records.length = index - this.base(shard).index - 1;
    records.push(record);
    this.records.set(shard, records);
    this.filling.push({ kind: "record", record });
  }

  /** Indexes of a shard that the disk has records of, rising. */
  private indexes(shard: ShardId): number[] {
    const facts = this.disk.facts.get(shard);
    const log = (this.disk.shards.get(shard) ?? []).map((record) => record.index as number);
    if (facts === undefined || facts.archive.size + facts.retired.size === 0) return log;
    return [...new Set([...log, ...facts.archive.keys(), ...facts.retired.keys()])].sort((a, b) => a - b);
  }

  /** A callback of a store that crashed does nothing. */
  private alive(run: () => void): () => void {
    return () => {
      if (!this.isDead) run();
    };
  }
}

function stored(shard: ShardId, { index, term, kind, data }: LogEntry): StoredRecord {
  const body = data.slice();
  return { shard, index, term, kind, body, checksum: crc32(body) };
}
