/**
 * Reads histories out of one sealed segment by ranges of its two objects, and believes nothing that
 * the summary does not cover: summary → directory → blocks, filter and row groups → events.
 *
 * A history costs a block of the index and a part of each row group that it lies in; the directory is
 * read once. Damage rejects with `CorruptionError`, which names the object and the place.
 */
import { asIndex, asSeq, asTerm, type Index, type Partition, type Seq, type Term } from "#core/base";
import { HistoryPart } from "./history-part.ts";
import { unpackBlock } from "./index-block.ts";
import { digestOf, mayHold } from "./partition-filter.ts";
import type { BlockPlace, RowGroupPlace } from "./segment-directory.ts";
import type { Piece, Place, SegmentSummary } from "./summary.ts";
import { type SealedObjects, VerifiedObjects } from "./verified-objects.ts";

export interface SealedHistory {
  /** Events [firstSeq, endSeq). */
  readonly firstSeq: Seq;
  readonly endSeq: Seq;
  /** Record that holds event `firstSeq` − 1, where it is not in this piece; undefined before the first event of all. */
  readonly previous: Place | undefined;
  /** Canonical bytes in order, a row group at a time; the bytes are the caller's. */
  events(): AsyncGenerator<Uint8Array[]>;
}

export interface HistoryWanted {
  /** Nothing before it is read. */
  readonly firstSeq?: Seq;
  /** Without it, the partition's last events in the segment. */
  readonly endSeq?: Seq;
}

export interface SealedRow {
  readonly partition: Partition;
  readonly seq: Seq;
  /** Canonical bytes. */
  readonly event: Uint8Array;
  readonly hash: Uint8Array;
  /** Record that holds it, and its term. */
  readonly index: Index;
  readonly term: Term;
}

export class SealedReader {
  private readonly objects: VerifiedObjects;

  constructor(summary: SegmentSummary, objects: SealedObjects) {
    this.objects = new VerifiedObjects(summary, objects);
  }

  /** Of both objects, so far. */
  get bytesRead(): number {
    return this.objects.bytesRead;
  }

  /** Whether the segment can have events of the partition. The filter is read once. */
  async mayHold(partition: Partition): Promise<boolean> {
    return mayHold(await this.objects.filter(), digestOf(new TextEncoder().encode(partition)));
  }

  /** The events that end with `endSeq` − 1, as far back as they follow each other in this segment; undefined where it does not hold that one. */
  async history(partition: Partition, { firstSeq, endSeq }: HistoryWanted = {}): Promise<SealedHistory | undefined> {
    const piece = await this.pieceWith(partition, endSeq);
    if (piece === undefined) return undefined;
    const first = asSeq(Math.max(firstSeq ?? 0, piece.firstSeq));
    const end = endSeq ?? piece.endSeq;
    const previous = first === piece.firstSeq ? piece.previous : undefined;
    return { firstSeq: first, endSeq: end, previous, events: () => this.eventsOf(piece, first, end) };
  }

  /** What the segment has of each partition, in the order of rows. */
  async *partitions(): AsyncGenerator<Piece> {
    for (const block of (await this.objects.directory()).blocks) {
      for (const { piece } of await this.block(block)) yield piece;
    }
  }

  /** All rows in order, a row group at a time. */
  async *rows(): AsyncGenerator<SealedRow[]> {
    const pieces = this.partitions();
    let piece: Piece | undefined;
    let prevHash: Uint8Array = new Uint8Array(0);
    for (const group of (await this.objects.directory()).rowGroups) {
      const part = await this.historyPart(group);
      const rows: SealedRow[] = [];
      for (let i = 0; i < group.rows; i++) {
        const row = group.firstRow + i;
        if (piece === undefined || row === rowAfter(piece)) {
          piece = this.pieceAt(row, (await pieces.next()).value);
          prevHash = piece.prevHash;
        }
        const { partition } = piece;
        const seq = asSeq(piece.firstSeq + row - piece.firstRow);
        const event = this.decoded(group, () => part.event(i, { partition, seq, prevHash }));
        prevHash = part.hash(i);
        rows.push({
          partition,
          seq,
          event,
          hash: prevHash,
          ...this.decoded(group, () => ({ index: asIndex(part.index(i)), term: asTerm(part.term(i)) })),
        });
      }
      yield rows;
    }
    const { value } = await pieces.next();
    if (value !== undefined) this.pieceAt(-1, value);
  }

  private async *eventsOf(piece: Piece, firstSeq: Seq, endSeq: Seq): AsyncGenerator<Uint8Array[]> {
    if (firstSeq >= endSeq) return;
    const rowOf = (seq: number) => piece.firstRow + seq - piece.firstSeq;
    // The hash of the event before is read with it, where it is in the segment.
    const from = firstSeq === piece.firstSeq ? rowOf(firstSeq) : rowOf(firstSeq) - 1;
    const end = rowOf(endSeq);
    let { prevHash } = piece;
    for (const group of (await this.objects.directory()).rowGroups) {
      if (group.firstRow + group.rows <= from) continue;
      if (group.firstRow >= end) return;
      const part = await this.historyPart(group);
      const events: Uint8Array[] = [];
      for (let row = Math.max(group.firstRow, from); row < Math.min(group.firstRow + group.rows, end); row++) {
        const i = row - group.firstRow;
        if (row >= rowOf(firstSeq)) {
          const wanted = { partition: piece.partition, seq: piece.firstSeq + row - piece.firstRow, prevHash };
          events.push(this.decoded(group, () => part.event(i, wanted)));
        }
        prevHash = part.hash(i);
      }
      if (events.length > 0) yield events;
    }
  }

  /** The piece that holds event `endSeq` − 1, or the partition's last. */
  private async pieceWith(partition: Partition, endSeq: number | undefined): Promise<Piece | undefined> {
    const name = new TextEncoder().encode(partition);
    const seq = endSeq === undefined ? Number.POSITIVE_INFINITY : endSeq - 1;
    const { blocks } = await this.objects.directory();
    const block = lastNotAfter(blocks, name, seq);
    if (block === undefined) return undefined;
    let found: Piece | undefined;
    for (const { piece } of await this.block(block)) if (piece.partition === partition && piece.firstSeq <= seq) found = piece;
    return found !== undefined && (endSeq === undefined || seq < found.endSeq) ? found : undefined;
  }

  private async block(place: BlockPlace): Promise<{ name: Uint8Array; piece: Piece }[]> {
    const bytes = await this.objects.extent("index", place.extent, `the block of the index with row ${place.row}`);
    return this.objects.decoded("a block of the index", { object: "index", at: place.extent.at }, () => [...unpackBlock(bytes, place.row)]);
  }

  private async historyPart(group: RowGroupPlace): Promise<HistoryPart> {
    const bytes = await this.objects.extent("segment", group.history, `the history part of the row group with row ${group.firstRow}`);
    return this.decoded(group, () => new HistoryPart(group, bytes));
  }

  private decoded<T>(group: RowGroupPlace, decode: () => T): T {
    return this.objects.decoded(`the row group with row ${group.firstRow}`, { object: "segment", at: group.history.at }, decode);
  }

  private pieceAt(row: number, piece: Piece | undefined): Piece {
    if (piece?.firstRow === row) return piece;
    const got = piece === undefined ? "no piece" : `a piece at row ${piece.firstRow}`;
    throw this.objects.damaged("all rows", { object: "index", at: 0, got, want: row < 0 ? "no more" : `one at row ${row}` });
  }
}

const rowAfter = (piece: Piece) => piece.firstRow + piece.endSeq - piece.firstSeq;

/** The last of the blocks that begin at or before event `seq` of the partition. */
function lastNotAfter(blocks: readonly BlockPlace[], name: Uint8Array, seq: number): BlockPlace | undefined {
  let [low, high] = [0, blocks.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    const block = blocks[middle] as BlockPlace;
    const order = Buffer.compare(block.name, name) || block.seq - seq;
    if (order <= 0) low = middle + 1;
    else high = middle;
  }
  return blocks[low - 1];
}
