/**
 * Histories out of the write-ahead log's own files: from the partition's last record backwards
 * along `Record.previous` and `Record.previous_shard`, then given out forwards.
 *
 * Going back keeps the events of the newest megabyte and only the places of what is older, so a
 * history of any length takes little memory; the older records are read again going forward.
 */
import { asIndex, asShardId, assert, type Index, type Partition, type Seq, type ShardId } from "#core/base";
import { decodeRecord, fromBytes, type Record } from "#proto";
import { eventSeq, isOfPartition, keyOfName, partitionKey } from "../event-head.ts";
import type { LogEntry, LogStore } from "../log/log-store.ts";
import type { ArchiveRange, HistoryRange, SegmentStore } from "./segment-store.ts";

const chunkBytes = 1 << 20;
/** A record with more events than this is kept taken apart: a tick may have woken many runs, and all of them are read. */
const eventsFew = 16;
const recordsApartMax = 4;
const apartBytesMax = 4 << 20;

/** A record of a log. */
interface Place {
  readonly shard: ShardId;
  readonly index: Index;
}

interface Piece {
  /** The partition's events in the record, in order, as bytes of their own. */
  readonly events: readonly Uint8Array[];
  readonly bytes: number;
  /** Log index of the record with its previous event; 0 = nowhere. */
  readonly previous: Index;
  /** Shard whose log that is; 0 = the record's own. */
  readonly previousShard: number;
  readonly firstSeq: number;
}

export class WalSegmentStore implements SegmentStore {
  private readonly log: LogStore;
  /** By shard and index. What is committed never changes. */
  private readonly apart = new Map<string, ReadonlyMap<string, Piece>>();

  constructor(log: LogStore) {
    this.log = log;
  }

  async *history(range: HistoryRange): AsyncGenerator<Uint8Array[]> {
    const { partition, firstSeq, endSeq } = range;
    if (firstSeq >= endSeq) return;
    const name = new TextEncoder().encode(partition);
    const { older, newest } = await this.goBack(range, name);
    const cut = new Chunks(partition, firstSeq, endSeq);
    for (const place of older.reverse()) yield* cut.add((await this.piece(place, name)).events);
    for (const piece of newest.reverse()) yield* cut.add(piece.events);
    yield* cut.finish();
  }

  async *archive({ shard, from, end }: ArchiveRange, chunkBytes: number): AsyncGenerator<LogEntry[]> {
    let chunk: LogEntry[] = [];
    let bytes = 0;
    for await (const { index, term, kind, body } of this.log.scan(shard, from, end)) {
      if (chunk.length > 0 && bytes + body.length > chunkBytes) {
        yield chunk;
        chunk = [];
        bytes = 0;
      }
      chunk.push({ index, term, kind, data: body.slice() });
      bytes += body.length;
    }
    if (chunk.length > 0) yield chunk;
  }

  private async goBack(range: HistoryRange, name: Uint8Array): Promise<{ older: Place[]; newest: Piece[] }> {
    const older: Place[] = [];
    const newest: Piece[] = [];
    let kept = 0;
    let nextSeq: number = range.endSeq;
    for (let place: Place = { shard: range.shard, index: range.lastIndex }; ; ) {
      const piece = await this.piece(place, name);
      kept += piece.bytes;
      if (older.length === 0 && (kept <= chunkBytes || newest.length === 0)) newest.push(piece);
      else older.push(place);
      if (piece.firstSeq <= range.firstSeq) return { older, newest };
      // Indexes of different logs can't be compared; sequences can.
      assert(
        piece.previous > 0 && piece.firstSeq < nextSeq,
        `history of ${range.partition} goes back from record ${place.index} of shard ${place.shard} to ${piece.previous}`,
      );
      nextSeq = piece.firstSeq;
      place = { shard: piece.previousShard === 0 ? place.shard : asShardId(piece.previousShard), index: piece.previous };
    }
  }

  private async piece({ shard, index }: Place, name: Uint8Array): Promise<Piece> {
    const key = `${shard}/${index}`;
    const found = this.apart.get(key)?.get(keyOfName(name)) ?? this.cutOut(key, (await this.log.read(shard, index)).body, name);
    assert(found !== undefined, `record ${index} of shard ${shard} holds an event of ${new TextDecoder().decode(name)}`);
    return found;
  }

  private cutOut(key: string, body: Uint8Array, name: Uint8Array): Piece | undefined {
    // Others may have asked for the same record meanwhile.
    const known = this.apart.get(key);
    if (known !== undefined) return known.get(keyOfName(name));
    const record = fromBytes(decodeRecord, body);
    if (record.event.length <= eventsFew || body.length > apartBytesMax) return pieceOf(record, (event) => isOfPartition(event, name));
    const pieces = takeApart(record);
    this.apart.set(key, pieces);
    if (this.apart.size > recordsApartMax) this.apart.delete(this.apart.keys().next().value as string);
    return pieces.get(keyOfName(name));
  }
}

function pieceOf(record: Record, isWanted: (event: Uint8Array) => boolean): Piece | undefined {
  let piece: MutablePiece | undefined;
  for (const [i, event] of record.event.entries()) {
    if (isWanted(event)) piece = add(piece, event, previousOf(record, i));
  }
  return piece;
}

function takeApart(record: Record): Map<string, Piece> {
  const pieces = new Map<string, MutablePiece>();
  for (const [i, event] of record.event.entries()) {
    const key = partitionKey(event);
    pieces.set(key, add(pieces.get(key), event, previousOf(record, i)));
  }
  return pieces;
}

interface MutablePiece extends Piece {
  readonly events: Uint8Array[];
  bytes: number;
}

type Previous = Pick<Piece, "previous" | "previousShard">;

const previousOf = ({ previous, previousShard }: Record, i: number): Previous => ({
  previous: asIndex(previous[i] ?? 0),
  previousShard: previousShard[i] ?? 0,
});

function add(piece: MutablePiece | undefined, event: Uint8Array, previous: Previous): MutablePiece {
  const own = event.slice();
  if (piece === undefined) return { events: [own], bytes: own.length, ...previous, firstSeq: eventSeq(own) };
  piece.events.push(own);
  piece.bytes += own.length;
  return piece;
}

/** Cuts events into chunks, and checks that they are all there. */
class Chunks {
  private chunk: Uint8Array[] = [];
  private bytes = 0;
  private next: number;
  private readonly partition: Partition;
  private readonly firstSeq: Seq;
  private readonly endSeq: Seq;

  constructor(partition: Partition, firstSeq: Seq, endSeq: Seq) {
    this.partition = partition;
    this.firstSeq = firstSeq;
    this.endSeq = endSeq;
    this.next = firstSeq;
  }

  *add(events: readonly Uint8Array[]): Generator<Uint8Array[]> {
    for (const event of events) {
      const seq = eventSeq(event);
      if (seq < this.firstSeq || seq >= this.endSeq) continue;
      assert(seq === this.next, `history of ${this.partition} has event ${seq} where ${this.next} belongs`);
      this.next++;
      if (this.bytes > 0 && this.bytes + event.length > chunkBytes) yield this.take();
      this.chunk.push(event);
      this.bytes += event.length;
    }
  }

  *finish(): Generator<Uint8Array[]> {
    assert(this.next === this.endSeq, `history of ${this.partition} ends at ${this.next}, want ${this.endSeq}`);
    if (this.chunk.length > 0) yield this.take();
  }

  private take(): Uint8Array[] {
    const chunk = this.chunk;
    this.chunk = [];
    this.bytes = 0;
    return chunk;
  }
}
