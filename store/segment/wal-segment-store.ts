/**
 * Histories out of the write-ahead log's own files: from the partition's last record backwards
 * along `Record.previous`, then given out forwards.
 *
 * Going back keeps the events of the newest megabyte and only the indexes of what is older, so a
 * history of any length takes little memory; the older records are read again going forward.
 */
import { asIndex, assert, type Index, type Partition, type Seq, type ShardId } from "#core/base";
import { decodeRecord, fromBytes, type Record } from "#proto";
import { eventSeq, isOfPartition, keyOfName, partitionKey } from "../event-head.ts";
import type { LogStore } from "../log/log-store.ts";
import type { HistoryRange, SegmentStore } from "./segment-store.ts";

const chunkBytes = 1 << 20;
/** A record with more events than this is kept taken apart: a tick may have woken many runs, and all of them are read. */
const eventsFew = 16;
const recordsApartMax = 4;
const apartBytesMax = 4 << 20;

interface Piece {
  /** The partition's events in the record, in order, as bytes of their own. */
  readonly events: readonly Uint8Array[];
  readonly bytes: number;
  /** Where its previous event is; 0 = nowhere. */
  readonly previous: Index;
  readonly firstSeq: number;
}

export class WalSegmentStore implements SegmentStore {
  private readonly log: LogStore;
  /** By shard and index. What is durable never changes. */
  private readonly apart = new Map<string, ReadonlyMap<string, Piece>>();

  constructor(log: LogStore) {
    this.log = log;
  }

  async *history(range: HistoryRange): AsyncGenerator<Uint8Array[]> {
    const { shard, partition, firstSeq, endSeq } = range;
    if (firstSeq >= endSeq) return;
    const name = new TextEncoder().encode(partition);
    const { older, newest } = await this.goBack(range, name);
    const cut = new Chunks(partition, firstSeq, endSeq);
    for (const index of older.reverse()) yield* cut.add((await this.piece(shard, index, name)).events);
    for (const piece of newest.reverse()) yield* cut.add(piece.events);
    yield* cut.finish();
  }

  private async goBack(range: HistoryRange, name: Uint8Array): Promise<{ older: Index[]; newest: Piece[] }> {
    const older: Index[] = [];
    const newest: Piece[] = [];
    let kept = 0;
    for (let index = range.lastIndex; ; ) {
      const piece = await this.piece(range.shard, index, name);
      kept += piece.bytes;
      if (older.length === 0 && (kept <= chunkBytes || newest.length === 0)) newest.push(piece);
      else older.push(index);
      if (piece.firstSeq <= range.firstSeq) return { older, newest };
      assert(
        piece.previous > 0 && piece.previous < index,
        `history of ${range.partition} goes back from record ${index} to ${piece.previous}`,
      );
      index = piece.previous;
    }
  }

  private async piece(shard: ShardId, index: Index, name: Uint8Array): Promise<Piece> {
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
    if (isWanted(event)) piece = add(piece, event, record.previous[i] ?? 0);
  }
  return piece;
}

function takeApart(record: Record): Map<string, Piece> {
  const pieces = new Map<string, MutablePiece>();
  for (const [i, event] of record.event.entries()) {
    const key = partitionKey(event);
    pieces.set(key, add(pieces.get(key), event, record.previous[i] ?? 0));
  }
  return pieces;
}

interface MutablePiece {
  readonly events: Uint8Array[];
  bytes: number;
  readonly previous: Index;
  readonly firstSeq: number;
}

function add(piece: MutablePiece | undefined, event: Uint8Array, previous: number): MutablePiece {
  const own = event.slice();
  if (piece === undefined) return { events: [own], bytes: own.length, previous: asIndex(previous), firstSeq: eventSeq(own) };
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
