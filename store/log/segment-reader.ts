/**
 * Durable records of the segments, found by (shard, index) and checked as they are read.
 *
 * A block is what lies between two entries of a segment's index; the last ones read are kept, as
 * a history's records lie near each other. Durable bytes never change, so blocks never go stale.
 */
import fs from "node:fs";
import { asIndex, asTerm, HopError, type Index, type ShardId } from "#core/base";
import type { CorruptionError } from "../corruption-error.ts";
import type { BoundedEntries } from "./bounded-entries.ts";
import { FrameWalk, readMore, walkSync } from "./frame-walk.ts";
import type { LogRecord } from "./log-store.ts";
import { entryKindOf, type Frame, type FrameFault, isArchive, isFault, isRecord } from "./record-frame.ts";
import { type IndexRange, type Piece, piecesOf } from "./record-places.ts";
import { damaged } from "./recovery.ts";
import type { Segment } from "./segment-file.ts";
import { locate, type Stretch, stretches } from "./segment-index.ts";

const blocksKept = 128;

/** What a read may see. */
export interface Reach {
  readonly shard: ShardId;
  /** The log is read below this index: what the files hold from there on is archive, or overwritten. */
  readonly logEnd: number;
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

  async read({ shard, logEnd }: Reach, index: Index): Promise<LogRecord> {
    const [piece] = piecesOf(this.segments(), shard, { from: index, end: index + 1 }, logEnd);
    if (piece === undefined) throw notHere(shard, index);
    const entry = locate(piece.span, index);
    const place: Place = { segment: piece.segment, offset: entry.offset, end: entry.end, first: entry.index };
    // The first one is the one: what overwrote it lies behind it, and is not in its span.
    const frame = (await this.block(place, shard)).find((one) => one.index === index && isOf(one, shard, piece));
    if (frame === undefined) throw missing(piece, shard, index);
    return recordOf(frame);
  }

  async *scan({ shard, logEnd }: Reach, range: IndexRange): AsyncGenerator<LogRecord> {
    for (const piece of piecesOf(this.segments(), shard, range, logEnd)) {
      const fd = openSegment(piece.segment);
      try {
        const wanted = new Wanted(piece, shard);
        for (const stretch of stretches(piece.span, piece.first, piece.last)) {
          wanted.enter(stretch);
          const walk = walkOf(piece.segment, stretch);
          for (let found = walk.next(); found !== undefined && !wanted.isDone; found = walk.next()) {
            if (found === "more") await more(fd, walk, piece.segment);
            else if (isFault(found)) throw wanted.unreadable(found);
            else if (wanted.take(found)) yield recordOf(found);
          }
        }
        wanted.finish();
      } finally {
        fs.closeSync(fd);
      }
    }
  }

  /** `scan` for replay at start: no other work waits, and a promise a record would double its time. */
  *replay({ shard, logEnd }: Reach, range: IndexRange): Generator<LogRecord> {
    for (const piece of piecesOf(this.segments(), shard, range, logEnd)) {
      const fd = openSegment(piece.segment);
      try {
        const wanted = new Wanted(piece, shard);
        for (const stretch of stretches(piece.span, piece.first, piece.last)) {
          wanted.enter(stretch);
          const frames = walkSync(fd, walkOf(piece.segment, stretch));
          let step = frames.next();
          for (; step.done !== true && !wanted.isDone; step = frames.next()) if (wanted.take(step.value)) yield recordOf(step.value);
          if (step.done === true && step.value !== undefined) throw wanted.unreadable(step.value);
        }
        wanted.finish();
      } finally {
        fs.closeSync(fd);
      }
    }
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
        else if (isRecord(found.kind) || isArchive(found.kind)) {
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
class Wanted {
  private readonly piece: Piece;
  private readonly shard: ShardId;
  private next: number;
  /** Last index seen, by shard: names a damaged record. */
  private last = new Map<number, number>();

  constructor(piece: Piece, shard: ShardId) {
    this.piece = piece;
    this.shard = shard;
    this.next = piece.first;
  }

  get isDone(): boolean {
    return this.next > this.piece.last;
  }

  enter(stretch: Stretch): void {
    this.last = new Map([[this.shard, stretch.index - 1]]);
  }

  take(frame: Frame): boolean {
    if (isRecord(frame.kind) || isArchive(frame.kind)) this.last.set(frame.shard, frame.index);
    if (frame.index !== this.next || !isOf(frame, this.shard, this.piece)) return false;
    this.next++;
    return true;
  }

  unreadable(fault: FrameFault): CorruptionError {
    return unreadable(this.piece.segment, this.last, fault);
  }

  finish(): void {
    if (!this.isDone) throw missing(this.piece, this.shard, this.next);
  }
}

const isOf = (frame: Frame, shard: number, piece: Piece) =>
  frame.shard === shard && (piece.isArchive ? isArchive(frame.kind) : isRecord(frame.kind));

/** A file that can't be read now says nothing about its bytes. */
function unavailable(segment: Segment, cause: unknown): HopError {
  const why = cause instanceof Error ? cause.message : String(cause);
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
function missing({ segment, span }: Piece, shard: ShardId, index: number): CorruptionError {
  const { offset } = locate(span, index);
  return unreadable(segment, new Map([[shard, index - 1]]), { offset, got: "no such record", want: `record ${index}` });
}

const walkOf = (segment: Segment, { from, end }: Stretch) => new FrameWalk({ from, end: segment.end, beginBefore: end }, segment);

const recordOf = (frame: Frame): LogRecord => ({
  shard: frame.shard as ShardId,
  index: asIndex(frame.index),
  term: asTerm(frame.term),
  kind: entryKindOf(frame.kind),
  body: frame.body,
});

export function notHere(shard: ShardId, index: Index): HopError {
  return new HopError("STORE_UNAVAILABLE", `Cannot read record ${index} of shard ${shard}: the log does not hold it durably`);
}
