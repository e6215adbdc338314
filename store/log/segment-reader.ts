/**
 * Durable records of the segments, found by (shard, index) and checked as they are read.
 *
 * A block is what lies between two entries of a segment's index; the last ones read are kept, as
 * a history's records lie near each other. Durable bytes never change, so blocks never go stale.
 */
import fs from "node:fs";
import { asIndex, asTerm, errorText, HopError, type Index, type ShardId } from "#core/base";
import type { CorruptionError } from "../corruption-error.ts";
import type { BoundedEntries } from "./bounded-entries.ts";
import { FrameWalk, readMore, walkSync } from "./frame-walk.ts";
import { type LogRecord, scanBytes } from "./log-store.ts";
import { classOf, entryKindOf, type Frame, type FrameFault, isFault, recordBody } from "./record-frame.ts";
import { type IndexRange, type Piece, piecesOf, type ReadBounds } from "./record-places.ts";
import { damaged } from "./recovery.ts";
import { ReleasedError } from "./released-error.ts";
import type { Segment } from "./segment-file.ts";
import { locate, type Stretch, stretches } from "./segment-index.ts";

const blocksKept = 128;

/** What a read may see. */
export interface Reach {
  readonly shard: ShardId;
  readonly bounds: ReadBounds;
  /** Up to where archive is released now. */
  readonly released: () => Index;
}

interface Place {
  readonly segment: Segment;
  readonly offset: number;
  readonly end: number;
  /** Of the shard's record at `offset`. */
  readonly first: number;
}

type Block = readonly Frame[];

export class SegmentReader {
  /** Oldest first; the last one is the one that is written to. */
  private readonly segments: () => readonly Segment[];
  private readonly blocks = new Map<string, Promise<Block>>();

  constructor(segments: () => readonly Segment[]) {
    this.segments = segments;
  }

  async read({ shard, bounds, released }: Reach, index: Index): Promise<LogRecord> {
    const [piece] = piecesOf(this.segments(), shard, { from: index, end: index + 1 }, bounds);
    if (piece === undefined) throw index <= released() ? new ReleasedError(shard, index, released()) : notHere(shard, index);
    const entry = locate(piece.span, index);
    const place: Place = { segment: piece.segment, offset: entry.offset, end: entry.end, first: entry.index };
    // The first one is the one: what overwrote it lies behind it, and is not in its span.
    const frame = (await this.block(place, shard)).find((one) => one.index === index && isOf(one, piece));
    if (frame === undefined) throw missing(piece, index);
    return recordOf(frame);
  }

  async *scan(reach: Reach, range: IndexRange): AsyncGenerator<LogRecord> {
    for await (const records of this.scanMany(reach, range)) yield* records;
  }

  async *scanMany(reach: Reach, range: IndexRange): AsyncGenerator<readonly LogRecord[]> {
    for (const { piece, fd } of this.opened(reach, range)) {
      const wanted = new Wanted(piece);
      for (const stretch of stretches(piece.span, piece.first, piece.last)) {
        wanted.enter(stretch);
        const walk = walkOf(piece.segment, stretch);
        for (let stop: Stop = "more"; stop !== "end"; ) {
          const records: LogRecord[] = [];
          stop = takeMany(walk, wanted, records);
          // Before more is read into their place, and before damage behind them is told.
          if (records.length > 0 || stop === "full") yield records;
          if (stop === "more") await more(fd, walk, piece.segment);
          else if (typeof stop === "object") throw wanted.unreadable(stop);
        }
      }
      wanted.finish();
    }
  }

  /** `scan` for replay at start: no other work waits, and a promise a record would double its time. */
  *replay(reach: Reach, range: IndexRange): Generator<LogRecord> {
    for (const { piece, fd } of this.opened(reach, range)) {
      const wanted = new Wanted(piece);
      for (const stretch of stretches(piece.span, piece.first, piece.last)) {
        wanted.enter(stretch);
        const frames = walkSync(fd, walkOf(piece.segment, stretch));
        let step = frames.next();
        for (; step.done !== true && !wanted.isDone; step = frames.next()) if (wanted.take(step.value)) yield recordOf(step.value);
        if (step.done === true && step.value !== undefined) throw wanted.unreadable(step.value);
      }
      wanted.finish();
    }
  }

  /** The pieces of a range one by one, with their files. Where a file went meanwhile, what it held has moved, or is released. */
  private *opened({ shard, bounds, released }: Reach, range: IndexRange): Generator<{ readonly piece: Piece; readonly fd: number }> {
    let pieces = piecesOf(this.segments(), shard, range, bounds);
    for (let i = 0; i < pieces.length; i++) {
      const piece = pieces[i] as Piece;
      if (this.isTrimmed(piece.segment)) {
        pieces = piecesOf(this.segments(), shard, { from: piece.first, end: range.end }, bounds);
        if (pieces[0]?.first !== piece.first) throw new ReleasedError(shard, asIndex(piece.first), released());
        i = -1;
        continue;
      }
      const fd = openSegment(piece.segment);
      try {
        yield { piece, fd };
      } finally {
        fs.closeSync(fd);
      }
    }
  }

  private isTrimmed({ header }: Segment): boolean {
    return header.number < (this.segments()[0] as Segment).header.number;
  }

  /** Adds records of the range, with bytes of their own, until no more fit. */
  entries(reach: Reach, range: IndexRange, into: BoundedEntries): void {
    for (const { index, term, kind, body } of this.replay(reach, range)) {
      if (!into.add({ index, term, kind, data: body.slice() })) return;
    }
  }

  private block(place: Place, shard: ShardId): Promise<Block> {
    // The last block of a span still grows: where it ends is part of what it is called.
    const key = `${place.segment.header.number}/${place.offset}/${place.end}`;
    const known = this.blocks.get(key);
    if (known !== undefined) {
      this.blocks.delete(key);
      this.blocks.set(key, known);
      return known;
    }
    const loaded = this.load(place, shard);
    this.blocks.set(key, loaded);
    // A damaged or unreadable block is read again by whoever asks next.
    loaded.catch(() => this.blocks.delete(key));
    if (this.blocks.size > blocksKept) this.blocks.delete(this.blocks.keys().next().value as string);
    return loaded;
  }

  /** The records in [place.offset, place.end). */
  private async load(place: Place, shard: ShardId): Promise<Block> {
    const fd = openSegment(place.segment);
    try {
      const frames: Frame[] = [];
      const last = new Map<number, number>([[shard, place.first - 1]]);
      const range = { from: place.offset, end: place.segment.end, beginBefore: place.end };
      const walk = new FrameWalk(range, place.segment, { keepsBodies: true });
      for (let found = walk.next(); found !== undefined; found = walk.next()) {
        if (found === "more") await more(fd, walk, place.segment);
        else if (isFault(found)) throw unreadable(place.segment, last, found);
        else if (classOf(found.kind) !== undefined) {
          last.set(found.shard, found.index);
          frames.push(found);
        }
      }
      return frames;
    } finally {
      fs.closeSync(fd);
    }
  }
}

/** Picks a piece's records out of all frames of its stretches: the next one each time, as others with its indexes may lie behind. */
export class Wanted {
  readonly piece: Piece;
  /** Where the first of its frames may begin. */
  readonly from: number;
  private next: number;
  /** Last index seen, by shard: names a damaged record. */
  private last = new Map<number, number>();

  constructor(piece: Piece) {
    this.piece = piece;
    this.next = piece.first;
    this.from = locate(piece.span, piece.first).offset;
  }

  get isDone(): boolean {
    return this.next > this.piece.last;
  }

  enter(stretch: Stretch): void {
    this.last = new Map([[this.piece.shard, stretch.index - 1]]);
  }

  take(frame: Frame): boolean {
    if (classOf(frame.kind) !== undefined) this.last.set(frame.shard, frame.index);
    if (this.isDone || frame.index !== this.next || !isOf(frame, this.piece)) return false;
    this.next++;
    return true;
  }

  unreadable(fault: FrameFault): CorruptionError {
    return unreadable(this.piece.segment, this.last, fault);
  }

  finish(): void {
    if (!this.isDone) throw missing(this.piece, this.next);
  }
}

/** Why no more were taken. */
type Stop = "full" | "more" | "end" | FrameFault;

/** Takes wanted records until it has looked at `scanBytes`, or more must be read. */
function takeMany(walk: FrameWalk, wanted: Wanted, into: LogRecord[]): Stop {
  for (let bytes = 0; bytes < scanBytes; ) {
    const found = wanted.isDone ? undefined : walk.next();
    if (found === undefined) return "end";
    if (found === "more" || isFault(found)) return found;
    if (wanted.take(found)) into.push(recordOf(found));
    bytes += found.end - found.offset;
  }
  return "full";
}

const isOf = (frame: Frame, { shard, holds }: Piece) => frame.shard === shard && classOf(frame.kind) === holds;

/** A file that can't be read now says nothing about its bytes. */
function unavailable(segment: Segment, cause: unknown): HopError {
  const why = errorText(cause);
  return new HopError("STORE_UNAVAILABLE", `Cannot read the log's file ${segment.path} now: ${why}; nothing is known to be lost`, {
    cause,
  });
}

function openSegment(segment: Segment): number {
  try {
    return fs.openSync(segment.path, "r");
  } catch (cause) {
    throw unavailable(segment, cause);
  }
}

function more(fd: number, walk: FrameWalk, segment: Segment): Promise<void> {
  return readMore(fd, walk).catch((cause: unknown) => {
    throw unavailable(segment, cause);
  });
}

/** Names the record that is damaged, which is not always the one that was asked for: `last` holds the ones before it, by shard. */
function unreadable(segment: Segment, last: ReadonlyMap<number, number>, fault: FrameFault): CorruptionError {
  return damaged(segment.path, fault, last, "restore the file from a copy; other records stay readable");
}

/** The index of the segment leads to a place where the record is not. */
function missing({ shard, segment, span }: Piece, index: number): CorruptionError {
  const { offset } = locate(span, index);
  return unreadable(segment, new Map([[shard, index - 1]]), { offset, got: "no such record", want: `record ${index}` });
}

const walkOf = (segment: Segment, { from, end }: Stretch) => new FrameWalk({ from, end: segment.end, beginBefore: end }, segment);

const recordOf = (frame: Frame): LogRecord => ({
  shard: frame.shard as ShardId,
  index: asIndex(frame.index),
  term: asTerm(frame.term),
  kind: entryKindOf(frame.kind),
  body: recordBody(frame),
});

export function notHere(shard: ShardId, index: Index): HopError {
  return new HopError("STORE_UNAVAILABLE", `Cannot read record ${index} of shard ${shard}: the log does not hold it durably`);
}
