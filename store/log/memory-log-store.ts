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
import { CorruptionError } from "../corruption-error.ts";
import type { LogRecord, LogStore } from "./log-store.ts";
import { notHere } from "./segment-reader.ts";

interface StoredRecord extends LogRecord {
  readonly checksum: number;
}

/** What outlives a crash. One disk is opened by one store at a time. */
export class MemoryDisk {
  readonly shards = new Map<ShardId, StoredRecord[]>();
  /** No space: writes wait, and land when it is false again. */
  isFull = false;
  /** The next write fails with it, which poisons the log. */
  failure: Error | undefined;

  /** Flips one bit of a durable record's body. */
  damage(shard: ShardId, index: Index): void {
    const body = find(this, shard, index)?.body;
    assert(body !== undefined && body.length > 0, `record ${index} of shard ${shard} has bytes to damage`);
    body[0] = (body[0] as number) ^ 1;
  }
}

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

export class MemoryLogStore implements LogStore {
  onDurable = () => {};
  onPoison: (cause: Error) => void = () => {};
  private readonly disk: MemoryDisk;
  private readonly schedule: LogSchedule;
  private readonly appended = new Map<ShardId, Index>();
  private readonly writer = new Writer();
  private opened: { shard: ShardId; index: Index; term: Term } | undefined;
  private filling: StoredRecord[] = [];
  private flying: StoredRecord[] = [];
  private isUrgent = false;
  private isArmed = false;
  private isRiding = false;
  private isDead = false;

  constructor(disk = new MemoryDisk(), schedule: LogSchedule = realSchedule) {
    this.disk = disk;
    this.schedule = schedule;
    for (const [shard, records] of disk.shards) this.appended.set(shard, (records.at(-1) as StoredRecord).index);
  }

  begin(shard: ShardId, index: Index, term: Term): Writer {
    assert(this.opened === undefined, "a record is ended before the next one begins");
    const last = this.appended.get(shard);
    assert(last === undefined || index === last + 1, `records are appended in order: shard ${shard} is at ${last}, got ${index}`);
    this.appended.set(shard, index);
    this.opened = { shard, index, term };
    this.writer.at = 0;
    return this.writer;
  }

  end(): void {
    assert(this.opened !== undefined, "a record that ends has begun");
    const body = this.writer.finish();
    this.filling.push({ ...this.opened, body, checksum: crc32(body) });
    this.opened = undefined;
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

  durableIndex(shard: ShardId): Index {
    return this.disk.shards.get(shard)?.at(-1)?.index ?? asIndex(0);
  }

  lastIndex(shard: ShardId): Index {
    return this.appended.get(shard) ?? asIndex(0);
  }

  async read(shard: ShardId, index: Index): Promise<LogRecord> {
    const record = find(this.disk, shard, index);
    if (record === undefined) throw notHere(shard, index);
    return checked(record);
  }

  async *scan(shard: ShardId, from: Index): AsyncGenerator<LogRecord> {
    yield* this.replay(shard, from);
  }

  *replay(shard: ShardId, from: Index): Generator<LogRecord> {
    for (const record of this.disk.shards.get(shard)?.slice() ?? []) if (record.index >= from) yield checked(record);
  }

  async close(): Promise<void> {
    if (this.isDead) return;
    if (!this.disk.isFull) {
      this.land(this.flying);
      this.land(this.filling);
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
    const bytes = this.flying.reduce((sum, record) => sum + record.body.length, 0);
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
    this.onDurable();
    if (this.isUrgent) this.kick(true);
  };

  private land(records: readonly StoredRecord[]): void {
    for (const record of records) {
      const stored = this.disk.shards.get(record.shard);
      if (stored === undefined) this.disk.shards.set(record.shard, [record]);
      else stored.push(record);
    }
  }

  /** A callback of a store that crashed does nothing. */
  private alive(run: () => void): () => void {
    return () => {
      if (!this.isDead) run();
    };
  }
}

function find(disk: MemoryDisk, shard: ShardId, index: Index): StoredRecord | undefined {
  const records = disk.shards.get(shard);
  return records?.[index - (records[0] as StoredRecord).index];
}

function checked(record: StoredRecord): LogRecord {
  const { checksum, ...plain } = record;
  const got = crc32(record.body);
  if (got === checksum) return plain;
  const damage = { file: "memory", offset: 0, shard: record.shard, index: record.index, got: `checksum ${got}`, want: `${checksum}` };
  throw new CorruptionError("read the log", damage, "the simulated disk damaged it");
}
