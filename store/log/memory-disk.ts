/** What outlives a crash of a log in memory: each shard's records and state as of the frames that landed. */
import { crc32 } from "node:zlib";
import { assert, type Index, type ShardId } from "#core/base";
import { CorruptionError } from "../corruption-error.ts";
import type { HardState, LogBase, LogRecord } from "./log-store.ts";
import { noBase, noState } from "./shard-log.ts";

export interface StoredRecord extends LogRecord {
  readonly checksum: number;
}

/** What a write brings to the disk. */
export type StoredFrame =
  | { readonly kind: "record" | "archive"; readonly record: StoredRecord }
  | { readonly kind: "state"; readonly shard: ShardId; readonly state: HardState }
  | { readonly kind: "base"; readonly shard: ShardId; readonly base: LogBase }
  | { readonly kind: "removed"; readonly shard: ShardId; readonly state: HardState };

/** What a shard has beside the records of its log. */
export interface ShardFacts {
  base: LogBase;
  state: HardState;
  isRemoved: boolean;
  /** Records of elsewhere, and those that a base took out of the log; by index. */
  readonly archive: Map<number, StoredRecord>;
  readonly retired: Map<number, StoredRecord>;
}

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

  /** The record as reads have it: of the log below `logEnd`, else of the archive. */
  find(shard: ShardId, index: number, logEnd = Number.POSITIVE_INFINITY): StoredRecord | undefined {
    const records = this.shards.get(shard) ?? [];
    const facts = this.facts.get(shard);
    const own = index < logEnd ? records[index - (records[0]?.index ?? 0)] : undefined;
    return own ?? facts?.archive.get(index) ?? facts?.retired.get(index);
  }

  land(frame: StoredFrame): void {
    if ("record" in frame) {
      const { record } = frame;
      if (frame.kind === "record") this.landRecord(record);
      else this.factsOf(record.shard).archive.set(record.index, record);
      return;
    }
    const facts = this.factsOf(frame.shard);
    if (frame.kind !== "base") facts.state = frame.state;
    if (frame.kind === "state") return;
    for (const record of this.shards.get(frame.shard) ?? []) facts.retired.set(record.index, record);
    this.shards.set(frame.shard, []);
    facts.base = frame.kind === "base" ? frame.base : noBase;
    facts.isRemoved = frame.kind === "removed";
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
      facts = { base: noBase, state: noState, isRemoved: false, archive: new Map(), retired: new Map() };
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
