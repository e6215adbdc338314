/**
 * The events of a range of records, gathered in log order and put in the order of a segment: by
 * partition, as bytes, then by seq.
 *
 * Each event is hashed and must follow the one before of its partition, in this range or outside of
 * it: a broken chain is never sealed.
 */
import { asIndex, asSeq, asShardId, assert, bytesEqual, type Index, type Partition, type ShardId, toHex } from "#core/base";
import { CodecError, decodeRecord, Reader, type Record } from "#proto";
import { CorruptionError, type Damage } from "../../corruption-error.ts";
import { keyOfName } from "../../event-head.ts";
import { EventFields, endsInPrevHash, suffixBytes } from "./event-fields.ts";
import { packedRecords } from "./record-batch.ts";
import type { Piece, Place, TermStart } from "./summary.ts";

/** More than this in one segment is a mistake of whoever asks: all of it is in memory at once. */
const bytesMax = 1 << 30;

const noHash = new Uint8Array(32);

/** Like a typed array, and grows. */
class Column {
  values = new Float64Array(1 << 12);

  set(row: number, value: number): void {
    if (row >= this.values.length) {
      const grown = new Float64Array(this.values.length * 2);
      grown.set(this.values);
      this.values = grown;
    }
    this.values[row] = value;
  }

  get(row: number): number {
    return this.values[row] as number;
  }
}

interface OpenPiece {
  readonly firstSeq: number;
  readonly prevHash: Uint8Array;
  readonly previous: Place | undefined;
  readonly rows: number[];
}

interface PartitionRows {
  readonly name: Uint8Array;
  readonly pieces: OpenPiece[];
  nextSeq: number;
  lastRow: number;
}

/** Where a row's event is, less its `prev_hash`. */
export interface EventPlace {
  readonly batch: Uint8Array;
  readonly at: number;
  readonly end: number;
}

export interface RowTableOptions {
  readonly shard: ShardId;
  /** Index of the first record. */
  readonly firstIndex: Index;
  /** Events that expired are left out: histories may have gaps. */
  readonly mayLack?: boolean;
}

export class RowTable {
  rows = 0;
  readonly shard: ShardId;
  readonly firstIndex: Index;
  /** Of the last record taken in; `firstIndex` − 1 before. */
  lastIndex: Index;
  readonly terms: TermStart[] = [];
  /** Least and greatest time of an event. */
  firstTimeMs = Number.POSITIVE_INFINITY;
  lastTimeMs = 0;
  private readonly batches: Uint8Array[] = [];
  private batchesBytes = 0;
  private readonly batchOf = new Column();
  private readonly starts = new Column();
  private readonly ends = new Column();
  private readonly indexes = new Column();
  private readonly rowTerms = new Column();
  private hashes = new Uint8Array(1 << 16);
  private readonly partitions = new Map<string, PartitionRows>();
  private readonly fields = new EventFields();
  private readonly mayLack: boolean;

  constructor({ shard, firstIndex, mayLack = false }: RowTableOptions) {
    this.mayLack = mayLack;
    this.shard = shard;
    this.firstIndex = firstIndex;
    this.lastIndex = asIndex(firstIndex - 1);
  }

  /** Takes in a batch of records, which stays as it is from here on. */
  add(batch: Uint8Array): void {
    this.batchesBytes += batch.length;
    assert(
      this.batchesBytes <= bytesMax,
      `records for one segment of shard ${this.shard} have ${this.batchesBytes} bytes, at most ${bytesMax}`,
    );
    this.batches.push(batch);
    for (const { index, term, kind, at, end } of packedRecords(batch)) {
      if (index !== this.lastIndex + 1) throw this.broken(this.lastIndex + 1, `record ${index}`, `record ${this.lastIndex + 1}`);
      this.lastIndex = index;
      if (this.terms.at(-1)?.term !== term) this.terms.push({ first: index, term });
      if (kind !== "data" || at === end) continue;
      this.addRecord(batch, this.recordOf(batch, at, end), term);
    }
  }

  /** All records up to `lastIndex` must have come, and no other. */
  checkEnd(lastIndex: Index): void {
    if (this.lastIndex === lastIndex) return;
    throw this.broken(
      Math.min(this.lastIndex, lastIndex) + 1,
      this.lastIndex < lastIndex ? "no record" : `record ${this.lastIndex}`,
      `a range that ends with ${lastIndex}`,
    );
  }

  event(row: number): EventPlace {
    return { batch: this.batches[this.batchOf.get(row)] as Uint8Array, at: this.starts.get(row), end: this.ends.get(row) };
  }

  hash(row: number): Uint8Array {
    return this.hashes.subarray(row * 32, row * 32 + 32);
  }

  index(row: number): number {
    return this.indexes.get(row);
  }

  term(row: number): number {
    return this.rowTerms.get(row);
  }

  /** Rows in the order of a segment, and what is where in it. */
  sorted(): { order: Uint32Array; pieces: Piece[] } {
    const order = new Uint32Array(this.rows);
    const pieces: Piece[] = [];
    let row = 0;
    for (const { name, pieces: own } of [...this.partitions.values()].sort((a, b) => Buffer.compare(a.name, b.name))) {
      const partition = new TextDecoder().decode(name) as Partition;
      for (const { firstSeq, prevHash, previous, rows } of own) {
        pieces.push({ partition, firstSeq: asSeq(firstSeq), endSeq: asSeq(firstSeq + rows.length), firstRow: row, prevHash, previous });
        order.set(rows, row);
        row += rows.length;
      }
    }
    return { order, pieces };
  }

  private recordOf(batch: Uint8Array, at: number, end: number): Record {
    try {
      return decodeRecord(new Reader(batch, at), end);
    } catch (error) {
      if (!(error instanceof CodecError)) throw error;
      throw this.broken(this.lastIndex, error.message, "an encoded record");
    }
  }

  private addRecord(batch: Uint8Array, record: Record, term: number): void {
    for (const [i, event] of record.event.entries()) {
      const at = event.byteOffset - batch.byteOffset;
      const previous = { shard: asShardId(record.previousShard[i] || this.shard), index: asIndex(record.previous[i] ?? 0) };
      this.addEvent(batch, at, at + event.length, previous);
      this.batchOf.set(this.rows, this.batches.length - 1);
      this.indexes.set(this.rows, this.lastIndex);
      this.rowTerms.set(this.rows, term);
      this.rows++;
    }
  }

  private addEvent(batch: Uint8Array, at: number, end: number, previous: Place): void {
    const restEnd = end - suffixBytes;
    if (!endsInPrevHash(batch, at, end)) throw this.broken(this.lastIndex, "an event that does not end in its prev_hash", "one that does");
    this.readFields(batch, at, restEnd);
    const name = batch.subarray(this.fields.partitionAt, this.fields.partitionEnd);
    const key = keyOfName(name);
    let partition = this.partitions.get(key);
    if (partition === undefined) {
      partition = { name, pieces: [], nextSeq: 0, lastRow: -1 };
      this.partitions.set(key, partition);
    }
    this.follow(partition, batch.subarray(end - 32, end), previous);
    this.starts.set(this.rows, at);
    this.ends.set(this.rows, restEnd);
    this.addHash(batch.subarray(at, end));
    this.firstTimeMs = Math.min(this.firstTimeMs, this.fields.timeMs);
    this.lastTimeMs = Math.max(this.lastTimeMs, this.fields.timeMs);
  }

  private readFields(batch: Uint8Array, at: number, end: number): void {
    try {
      this.fields.read(batch, at, end);
    } catch (error) {
      if (!(error instanceof CodecError)) throw error;
      throw this.broken(this.lastIndex, error.message, "an encoded event");
    }
  }

  /** Puts the row at the end of its partition, after checking that it belongs there. */
  private follow(partition: PartitionRows, prevHash: Uint8Array, previous: Place): void {
    const { seq } = this.fields;
    const piece = partition.pieces.at(-1);
    if (piece !== undefined && seq === partition.nextSeq) {
      const want = this.hash(partition.lastRow);
      if (!bytesEqual(prevHash, want)) throw this.broken(this.lastIndex, `prev_hash ${toHex(prevHash)}`, toHex(want));
      piece.rows.push(this.rows);
    } else {
      this.checkBeginning(partition, seq, prevHash, previous);
      const first = { firstSeq: seq, prevHash: seq === 0 ? noHash : prevHash, previous: seq === 0 ? undefined : previous };
      partition.pieces.push({ ...first, rows: [this.rows] });
    }
    partition.nextSeq = seq + 1;
    partition.lastRow = this.rows;
  }

  private checkBeginning(partition: PartitionRows, seq: number, prevHash: Uint8Array, previous: Place): void {
    const name = new TextDecoder().decode(partition.name);
    // Events between two of one log can only be in the log of another shard, which had the partition meanwhile.
    const isElsewhere = previous.shard !== this.shard;
    if (partition.pieces.length > 0 && (seq < partition.nextSeq || !(isElsewhere || this.mayLack)))
      throw this.broken(this.lastIndex, `event ${seq} of ${name}`, `event ${partition.nextSeq}`);
    if ((seq === 0) !== (previous.index === 0))
      throw this.broken(this.lastIndex, `event ${seq} of ${name} after record ${previous.index}`, "one or none of both");
    if (seq === 0 && !bytesEqual(prevHash, noHash))
      throw this.broken(this.lastIndex, `prev_hash ${toHex(prevHash)} of a first event`, "zeros");
    const isInRange = previous.index !== 0 && !isElsewhere && previous.index >= this.firstIndex;
    if (isInRange && !(this.mayLack && previous.index <= this.lastIndex))
      throw this.broken(this.lastIndex, `event ${seq} of ${name} after record ${previous.index}`, "a record that holds the event before");
  }

  private addHash(event: Uint8Array): void {
    const at = this.rows * 32;
    if (at === this.hashes.length) {
      const grown = new Uint8Array(this.hashes.length * 2);
      grown.set(this.hashes);
      this.hashes = grown;
    }
    Bun.SHA256.hash(event, this.hashes.subarray(at, at + 32));
  }

  private broken(index: number, got: string, want: string): CorruptionError {
    return brokenLog({ file: `log of shard ${this.shard}`, offset: 0, shard: this.shard, index: asIndex(index), got, want });
  }
}

/** Records that can't be sealed as they are. */
export function brokenLog(damage: Damage): CorruptionError {
  return new CorruptionError("seal", damage, "nothing was sealed; compare with the log of another replica");
}
