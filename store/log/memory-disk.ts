/** What outlives a crash of a log in memory: each shard's records and state as of the frames that landed. */
import { crc32 } from "node:zlib";
import { asIndex, assert, type Index, type ShardId, unreachable } from "#core/base";
import { CorruptionError } from "../corruption-error.ts";
import type { HardState, LogBase, LogRecord } from "./log-store.ts";
import type { ReadBounds } from "./record-places.ts";
import { noBase, noState } from "./shard-log.ts";

export interface StoredRecord extends LogRecord {
  readonly checksum: number;
}

/** What a write brings to the disk. */
export type StoredFrame =
  | { readonly kind: "record" | "archive"; readonly record: StoredRecord }
  | { readonly kind: "state"; readonly shard: ShardId; readonly state: HardState }
  | { readonly kind: "base" | "compacted"; readonly shard: ShardId; readonly base: LogBase }
  | { readonly kind: "released"; readonly shard: ShardId; readonly through: Index }
  | { readonly kind: "removed"; readonly shard: ShardId; readonly state: HardState };

/** What a shard has beside the records of its log. */
export interface ShardFacts {
  base: LogBase;
  state: HardState;
  isRemoved: boolean;
  released: Index;
  /** Records of elsewhere, and those that a base took out of the log; by index. */
  readonly archive: Map<number, StoredRecord>;
  readonly retired: Map<number, StoredRecord>;
}

const allOfIt: ReadBounds = { base: 0, end: Number.POSITIVE_INFINITY, released: 0 };

/** One disk is opened by one store at a time. */
export class MemoryDisk {
  /** The shards' logs, in index order without gaps. */
  readonly shards = new Map<ShardId, StoredRecord[]>();
  readonly facts = new Map<ShardId, ShardFacts>();
  /** No space: writes wait, and land when it is false again. */
  isFull = false;
  /** The next write fails with it, which poisons the log. */
  failure: Error | undefined;

  /** Flips one bit of a durable record's body. */
  damage(shard: ShardId, index: Index): void {
    const body = this.find(shard, index)?.body;
    assert(body !== undefined && body.length > 0, `record ${index} of shard ${shard} has bytes to damage`);
    body[0] = (body[0] as number) ^ 1;
  }

  /** The record as reads have it: of the log within its bounds, else of the archive. */
  find(shard: ShardId, index: number, { base, end, released }: ReadBounds = allOfIt): StoredRecord | undefined {
    const records = this.shards.get(shard) ?? [];
    const facts = this.facts.get(shard);
    const own = index < end ? records[index - (records[0]?.index ?? 0)] : undefined;
    if (own !== undefined && index > base) return own;
    return index <= released ? undefined : (facts?.archive.get(index) ?? own ?? facts?.retired.get(index));
  }

  land(frame: StoredFrame): void {
    if ("record" in frame) {
      const { record } = frame;
      if (frame.kind === "record") this.landRecord(record);
      else this.landArchive(record);
      return;
    }
    const facts = this.factsOf(frame.shard);
    switch (frame.kind) {
      case "state":
        facts.state = frame.state;
        return;
      case "compacted":
        facts.base = frame.base;
        return this.retire(frame.shard, frame.base.index);
      case "released":
        return this.release(facts, frame.through);
      case "base":
        facts.base = frame.base;
        facts.isRemoved = false;
        return this.retire(frame.shard, Number.POSITIVE_INFINITY);
      case "removed":
        facts.base = noBase;
        facts.isRemoved = true;
        facts.state = frame.state;
        return this.retire(frame.shard, Number.POSITIVE_INFINITY);
      default:
        unreachable(frame);
    }
  }

  /** Bytes of the shard's records that are not released. */
  liveBytes(shard: ShardId): number {
    const facts = this.facts.get(shard);
    let bytes = 0;
    for (const records of [this.shards.get(shard) ?? [], facts?.archive.values() ?? [], facts?.retired.values() ?? []]) {
      for (const { body } of records) bytes += body.length;
    }
    return bytes;
  }

  /** Records of the log up to `through` are archive now. */
  private retire(shard: ShardId, through: number): void {
    const records = this.shards.get(shard) ?? [];
    const { retired, released } = this.factsOf(shard);
    const gone = records.filter((record) => record.index <= through);
    for (const record of gone) if (record.index > released) retired.set(record.index, record);
    this.shards.set(shard, records.slice(gone.length));
  }

  private release(facts: ShardFacts, through: Index): void {
    facts.released = asIndex(Math.max(facts.released, through));
    for (const records of [facts.archive, facts.retired]) for (const index of records.keys()) if (index <= through) records.delete(index);
  }

  private landArchive(record: StoredRecord): void {
    const { archive, released } = this.factsOf(record.shard);
    if (record.index > released) archive.set(record.index, record);
  }

  private landRecord(record: StoredRecord): void {
    const records = this.shards.get(record.shard) ?? [];
    const first = records[0]?.index ?? record.index;
    // The later record wins, and all behind it goes.
    records.length = record.index - first;
    records.push(record);
    this.shards.set(record.shard, records);
  }

  private factsOf(shard: ShardId): ShardFacts {
    let facts = this.facts.get(shard);
    if (facts === undefined) {
      facts = { base: noBase, state: noState, isRemoved: false, released: asIndex(0), archive: new Map(), retired: new Map() };
      this.facts.set(shard, facts);
    }
    return facts;
  }
}

/** The record without its checksum, which it must have. */
export function checked(record: StoredRecord): LogRecord {
  const { checksum, ...plain } = record;
  const got = crc32(record.body);
  if (got === checksum) return plain;
  const damage = { file: "memory", offset: 0, shard: record.shard, index: record.index, got: `checksum ${got}`, want: `${checksum}` };
  throw new CorruptionError("read the log", damage, "the simulated disk damaged it");
}
