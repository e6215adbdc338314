/**
 * The events of a range of records, gathered in log order and put in the order of a segment: by
 * partition, as bytes, then by seq.
 *
 * Each event is hashed and must follow the one before of its partition, in this range or outside of
 * it: a broken chain is never sealed.
 */
import { asIndex, asSeq, asShardId, assert, bytesEqual, type Index, type Partition, type ShardId, toHex } from "#core/base";
import { CodecError, Reader } from "#proto";
import { CorruptionError, type Damage } from "../../corruption-error.ts";
import { EventFields, endsInPrevHash, suffixBytes } from "./event-fields.ts";
import { RecordCursor } from "./record-batch.ts";
import { RecordEvents } from "./record-events.ts";
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

/** A batch of records, and what reads in it. */
export interface Batch {
  readonly bytes: Buffer;
  readonly reader: Reader;
}

export interface SortedRows {
  /** Rows in the order of a segment. */
  readonly order: Uint32Array;
  /** What is where in it. */
  readonly pieces: readonly Piece[];
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
  private readonly batches: Batch[] = [];
  private batchesBytes = 0;
  private readonly batchOf = new Column();
  private readonly starts = new Column();
  private readonly ends = new Column();
  private readonly indexes = new Column();
  private readonly rowTerms = new Column();
  /** A hash is eight words. */
  private hashWords = new Uint32Array(1 << 14);
  private hashes = new Uint8Array(this.hashWords.buffer);
  private readonly partitions = new Map<string, PartitionRows>();
  private readonly fields = new EventFields();
  private readonly events = new RecordEvents();
  private readonly mayLack: boolean;

  constructor({ shard, firstIndex, mayLack = false }: RowTableOptions) {
    this.mayLack = mayLack;
    this.shard = shard;
    this.firstIndex = firstIndex;
    this.lastIndex = asIndex(firstIndex - 1);
  }

  /** Takes in a batch of records, which stays as it is from here on. */
  add(bytes: Uint8Array): void {
    this.batchesBytes += bytes.length;
    assert(
      this.batchesBytes <= bytesMax,
      `records for one segment of shard ${this.shard} have ${this.batchesBytes} bytes, at most ${bytesMax}`,
    );
    const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    const batch = { bytes: buffer, reader: new Reader(buffer) };
    this.batches.push(batch);
    try {
      this.addRecords(batch);
    } catch (error) {
      if (!(error instanceof CodecError)) throw error;
      throw this.broken(this.lastIndex, error.message, "a record of encoded events");
    }
  }

  private addRecords(batch: Batch): void {
    for (const cursor = new RecordCursor(batch.bytes); cursor.next(); ) {
      const { index, term, kind, at, end } = cursor;
      if (index !== this.lastIndex + 1) throw this.broken(this.lastIndex + 1, `record ${index}`, `record ${this.lastIndex + 1}`);
      this.lastIndex = index;
      if (this.terms.at(-1)?.term !== term) this.terms.push({ first: index, term });
      if (kind !== "data" || at === end) continue;
      this.addRecord(batch, at, end, term);
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

  /** Where the row's event is, at `start` … `end`, less its `prev_hash`. */
  batch(row: number): Batch {
    return this.batches[this.batchOf.get(row)] as Batch;
  }

  start(row: number): number {
    return this.starts.get(row);
  }

  end(row: number): number {
    return this.ends.get(row);
  }

  /** Writes the hash of the row's event as eight words from `at` on. */
  copyHash(row: number, into: Uint32Array, at: number): void {
    const { hashWords } = this;
    for (let i = 0, from = row * 8; i < 8; i++) into[at + i] = hashWords[from + i] as number;
  }

  /** Whether [at, end) of `bytes` is the row's event, less its `prev_hash`. */
  isEvent(row: number, bytes: Uint8Array, at: number, end: number): boolean {
    return this.batch(row).bytes.compare(bytes, at, end, this.starts.get(row), this.ends.get(row)) === 0;
  }

  /** Whether the 32 bytes from `at` on are the hash of the row's event. */
  isHash(row: number, bytes: Uint8Array, at: number): boolean {
    for (let i = 0, from = row * 32; i < 32; i++) if (this.hashes[from + i] !== bytes[at + i]) return false;
    return true;
  }

  index(row: number): number {
    return this.indexes.get(row);
  }

  term(row: number): number {
    return this.rowTerms.get(row);
  }

  sorted(): SortedRows {
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

  private addRecord(batch: Batch, at: number, end: number, term: number): void {
    const { events } = this;
    events.read(batch.reader, at, end);
    for (let i = 0; i < events.count; i++) {
      this.addEvent(batch, i);
      this.batchOf.set(this.rows, this.batches.length - 1);
      this.indexes.set(this.rows, this.lastIndex);
      this.rowTerms.set(this.rows, term);
      this.rows++;
    }
  }

  /** Event `i` of the record that was read last. */
  private addEvent({ bytes, reader }: Batch, i: number): void {
    const { events, fields } = this;
    const [at, end] = [events.ats[i] as number, events.ends[i] as number];
    const restEnd = end - suffixBytes;
    if (!endsInPrevHash(bytes, at, end)) throw this.broken(this.lastIndex, "an event that does not end in its prev_hash", "one that does");
    fields.read(reader, at, restEnd);
    // One character a byte: a key that tells names apart.
    const key = bytes.toString("latin1", fields.partitionAt, fields.partitionEnd);
    let partition = this.partitions.get(key);
    if (partition === undefined) {
      partition = { name: bytes.subarray(fields.partitionAt, fields.partitionEnd), pieces: [], nextSeq: 0, lastRow: -1 };
      this.partitions.set(key, partition);
    }
    this.follow(partition, bytes, end - 32, i);
    this.starts.set(this.rows, at);
    this.ends.set(this.rows, restEnd);
    this.addHash(bytes.subarray(at, end));
    this.firstTimeMs = Math.min(this.firstTimeMs, this.fields.timeMs);
    this.lastTimeMs = Math.max(this.lastTimeMs, this.fields.timeMs);
  }

  /** Puts the row at the end of its partition, after checking that it belongs there: event `i` of the record, whose `prev_hash` is at `hashAt`. */
  private follow(partition: PartitionRows, bytes: Buffer, hashAt: number, i: number): void {
    const { seq } = this.fields;
    const piece = partition.pieces.at(-1);
    if (piece !== undefined && seq === partition.nextSeq) {
      if (!this.isHash(partition.lastRow, bytes, hashAt)) throw this.unchained(partition.lastRow, bytes, hashAt);
      piece.rows.push(this.rows);
    } else this.begin(partition, bytes.subarray(hashAt, hashAt + 32), i);
    partition.nextSeq = seq + 1;
    partition.lastRow = this.rows;
  }

  /** The row begins a piece of its partition. */
  private begin(partition: PartitionRows, prevHash: Uint8Array, i: number): void {
    const { seq } = this.fields;
    const previous = { shard: asShardId(this.events.previousShardOf(i) || this.shard), index: asIndex(this.events.previousIndex(i)) };
    this.checkBeginning(partition, seq, prevHash, previous);
    const first = { firstSeq: seq, prevHash: seq === 0 ? noHash : prevHash, previous: seq === 0 ? undefined : previous };
    partition.pieces.push({ ...first, rows: [this.rows] });
  }

  private unchained(lastRow: number, bytes: Buffer, hashAt: number): CorruptionError {
    const want = this.hashes.subarray(lastRow * 32, lastRow * 32 + 32);
    return this.broken(this.lastIndex, `prev_hash ${toHex(bytes.subarray(hashAt, hashAt + 32))}`, toHex(want));
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
      const grown = new Uint32Array(this.hashWords.length * 2);
      grown.set(this.hashWords);
      this.hashWords = grown;
      this.hashes = new Uint8Array(grown.buffer);
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
