/**
 * Histories out of the write-ahead log's own files, and of sealed segments where the log has
 * released them: from the partition's last record backwards along `Record.previous` and
 * `Record.previous_shard`, then given out forwards.
 *
 * Going back keeps the events of the newest megabyte and only the places of what is older, so a
 * history of any length takes little memory; the older records are read again going forward.
 */
import { asIndex, asSeq, asShardId, assert, HopError, type Index, type Partition, type Seq } from "#core/base";
import { decodeRecord, fromBytes, type Record } from "#proto";
import { eventSeq, isOfPartition, keyOfName, partitionKey } from "../event-head.ts";
import type { LogStore } from "../log/log-store.ts";
import { ReleasedError } from "../log/released-error.ts";
import type { SealedHistory } from "./sealed/sealed-reader.ts";
import type { Place } from "./sealed/summary.ts";
import type { HistoryRange, SealedTier, SealedWanted, SegmentStore } from "./segment-store.ts";

const chunkBytes = 1 << 20;
/** A record with more events than this is kept taken apart: a tick may have woken many runs, and all of them are read. */
const eventsFew = 16;
const recordsApartMax = 4;
const apartBytesMax = 4 << 20;

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

/** One step back: a record of the log, or what one sealed segment has. */
type Step = { readonly kind: "record"; readonly piece: Piece } | { readonly kind: "sealed"; readonly history: SealedHistory };

/** Events [firstSeq, endSeq) of the partition, the last one in the record at `place`: read again going forward. */
interface Older {
  readonly place: Place;
  readonly firstSeq: Seq;
  readonly endSeq: Seq;
  /** Where they are sealed. */
  readonly history: SealedHistory | undefined;
}

export class TieredSegmentStore implements SegmentStore {
  private readonly log: LogStore;
  private readonly sealed: SealedTier | undefined;
  /** By shard and index. What is committed never changes. */
  private readonly apart = new Map<string, ReadonlyMap<string, Piece>>();

  /** `sealed` has what the log releases. */
  constructor(log: LogStore, sealed?: SealedTier) {
    this.log = log;
    this.sealed = sealed;
  }

  async *history(range: HistoryRange): AsyncGenerator<Uint8Array[]> {
    const { partition, firstSeq, endSeq } = range;
    if (firstSeq >= endSeq) return;
    const name = new TextEncoder().encode(partition);
    const { older, newest } = await this.goBack(range, name);
    const cut = new Chunks(partition, firstSeq, endSeq);
    for (const each of older.reverse()) for await (const events of this.eventsOf(partition, each, name)) yield* cut.add(events);
    for (const piece of newest.reverse()) yield* cut.add(piece.events);
    yield* cut.finish();
  }

  private async goBack(range: HistoryRange, name: Uint8Array): Promise<{ older: Older[]; newest: Piece[] }> {
    const { partition } = range;
    const older: Older[] = [];
    const newest: Piece[] = [];
    let kept = 0;
    let endSeq = range.endSeq;
    for (let place: Place = { shard: range.shard, index: range.lastIndex }; ; ) {
      const step = await this.step({ partition, place, firstSeq: range.firstSeq, endSeq }, name);
      const firstSeq = step.kind === "record" ? asSeq(step.piece.firstSeq) : step.history.firstSeq;
      if (step.kind === "record") kept += step.piece.bytes;
      if (step.kind === "record" && older.length === 0 && (kept <= chunkBytes || newest.length === 0)) newest.push(step.piece);
      else older.push({ place, firstSeq, endSeq, history: step.kind === "sealed" ? step.history : undefined });
      if (firstSeq <= range.firstSeq) return { older, newest };
      const before = step.kind === "record" ? placeBefore(step.piece, place) : step.history.previous;
      // Indexes of different logs can't be compared; sequences can.
      assert(
        before !== undefined && firstSeq < endSeq,
        `history of ${partition} goes back from record ${place.index} of shard ${place.shard} to ${before?.index ?? 0}`,
      );
      endSeq = firstSeq;
      place = before;
    }
  }

  /** What the log has; where it has released the record, never had it or finds it damaged, what the sealed tier has. */
  private async step(wanted: SealedWanted, name: Uint8Array): Promise<Step> {
    try {
      return { kind: "record", piece: await this.piece(wanted.place, name) };
    } catch (error) {
      if (!(error instanceof HopError)) throw error;
      const history = await this.sealed?.history(wanted);
      if (history !== undefined) return { kind: "sealed", history };
      if (this.sealed !== undefined && error instanceof ReleasedError) throw lost(wanted);
      throw error;
    }
  }

  private async *eventsOf(partition: Partition, older: Older, name: Uint8Array): AsyncGenerator<readonly Uint8Array[]> {
    const { place, firstSeq, endSeq } = older;
    // What was read from the log going back may be released by now.
    const step: Step =
      older.history === undefined
        ? await this.step({ partition, place, firstSeq, endSeq }, name)
        : { kind: "sealed", history: older.history };
    if (step.kind === "sealed") yield* step.history.events();
    else yield step.piece.events;
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

/** What was released was sealed before. */
function lost({ partition, place, endSeq }: SealedWanted): HopError {
  const what = `event ${endSeq - 1} of ${partition}, which is in record ${place.index} of shard ${place.shard}`;
  return new HopError("HASH_MISMATCH", `Cannot read ${what}: it was sealed and released, and no manifest has it any more`);
}

function placeBefore({ previous, previousShard }: Piece, { shard }: Place): Place | undefined {
  return previous === 0 ? undefined : { shard: previousShard === 0 ? shard : asShardId(previousShard), index: previous };
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
