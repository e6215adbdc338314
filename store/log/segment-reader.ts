/**
 * Durable records of the segments, found by (shard, index) and checked as they are read.
 *
 * A block is what lies between two entries of a segment's index; the last ones read are kept, as
 * a history's records lie near each other. Durable bytes never change, so blocks never go stale.
 */
import fs from "node:fs";
import { asIndex, asTerm, HopError, type Index, type ShardId } from "#core/base";
import type { CorruptionError } from "../corruption-error.ts";
import { FrameWalk, readMore, walkSync } from "./frame-walk.ts";
import type { LogRecord } from "./log-store.ts";
import { type Frame, type FrameFault, isFault, RecordKind } from "./record-frame.ts";
import { damaged } from "./recovery.ts";
import type { Segment } from "./segment-file.ts";
import { type Stretch, strideBytes } from "./segment-index.ts";

const blocksKept = 128;

interface Place {
  readonly segment: Segment;
  readonly offset: number;
  /** Of the shard's record at `offset`. */
  readonly first: number;
}

interface Part {
  readonly segment: Segment;
  readonly stretches: readonly Stretch[];
}

type Block = readonly Frame[];

export class SegmentReader {
  /** Oldest first; the last one is the one that is written to. */
  private readonly segments: () => readonly Segment[];
  private readonly blocks = new Map<string, Promise<Block>>();

  constructor(segments: () => readonly Segment[]) {
    this.segments = segments;
  }

  async read(shard: ShardId, index: Index): Promise<LogRecord> {
    const place = this.locate(shard, index);
    if (place === undefined) throw notHere(shard, index);
    const frame = (await this.block(place, shard)).find((one) => one.index === index && one.shard === shard);
    if (frame === undefined)
      throw unreadable(place.segment, new Map([[shard, index - 1]]), {
        offset: place.offset,
        got: "no such record",
        want: `record ${index}`,
      });
    return recordOf(frame);
  }

  async *scan(shard: ShardId, from: Index): AsyncGenerator<LogRecord> {
    for (const { segment, stretches } of this.partsFrom(shard, from)) {
      const fd = openSegment(segment);
      try {
        for (const stretch of stretches) {
          const last = new Map<number, number>([[shard, stretch.index - 1]]);
          const walk = walkOf(segment, stretch);
          for (let found = walk.next(); found !== undefined; found = walk.next()) {
            if (found === "more") await more(fd, walk, segment);
            else if (isFault(found)) throw unreadable(segment, last, found);
            else if (found.kind === RecordKind.data) {
              last.set(found.shard, found.index);
              if (isWanted(found, shard, from)) yield recordOf(found);
            }
          }
        }
      } finally {
        fs.closeSync(fd);
      }
    }
  }

  /** `scan` for replay at start: no other work waits, and a promise a record would double its time. */
  *replay(shard: ShardId, from: Index): Generator<LogRecord> {
    for (const { segment, stretches } of this.partsFrom(shard, from)) {
      const fd = openSegment(segment);
      try {
        for (const stretch of stretches) {
          const last = new Map<number, number>([[shard, stretch.index - 1]]);
          const frames = walkSync(fd, walkOf(segment, stretch));
          let step = frames.next();
          for (; step.done !== true; step = frames.next()) {
            if (step.value.kind === RecordKind.data) last.set(step.value.shard, step.value.index);
            if (isWanted(step.value, shard, from)) yield recordOf(step.value);
          }
          if (step.value !== undefined) throw unreadable(segment, last, step.value);
        }
      } finally {
        fs.closeSync(fd);
      }
    }
  }

  private locate(shard: number, index: number): Place | undefined {
    const segments = this.segments();
    for (let i = segments.length - 1; i >= 0; i--) {
      const segment = segments[i] as Segment;
      const entry = segment.index.locate(shard, index);
      if (entry !== undefined) return { segment, offset: entry.offset, first: entry.index };
    }
    return undefined;
  }

  /** Where records of the shard from `from` on are, oldest segment first. */
  private *partsFrom(shard: number, from: number): Generator<Part> {
    for (const segment of this.segments()) {
      const stretches = segment.index.stretches(shard, from);
      if (stretches.length > 0) yield { segment, stretches };
    }
  }

  private block(place: Place, shard: ShardId): Promise<Block> {
    // The last block of the open segment still grows: where it ends is part of what it is called.
    const end = Math.min(place.segment.end, place.offset + strideBytes);
    const key = `${place.segment.header.number}/${place.offset}/${end}`;
    const known = this.blocks.get(key);
    if (known !== undefined) {
      this.blocks.delete(key);
      this.blocks.set(key, known);
      return known;
    }
    const loaded = this.load(place, end, shard);
    this.blocks.set(key, loaded);
    // A damaged or unreadable block is read again by whoever asks next.
    loaded.catch(() => this.blocks.delete(key));
    if (this.blocks.size > blocksKept) this.blocks.delete(this.blocks.keys().next().value as string);
    return loaded;
  }

  /** Whole frames that begin in [place.offset, end). */
  private async load(place: Place, end: number, shard: ShardId): Promise<Block> {
    const fd = openSegment(place.segment);
    try {
      const frames: Frame[] = [];
      const last = new Map<number, number>([[shard, place.first - 1]]);
      const range = { from: place.offset, end: place.segment.end, beginBefore: end };
      const walk = new FrameWalk(range, place.segment.header, { keepsBodies: true });
      for (let found = walk.next(); found !== undefined; found = walk.next()) {
        if (found === "more") await more(fd, walk, place.segment);
        else if (isFault(found)) throw unreadable(place.segment, last, found);
        else if (found.kind === RecordKind.data) {
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

const walkOf = (segment: Segment, { from, end }: Stretch) => new FrameWalk({ from, end: segment.end, beginBefore: end }, segment.header);

const isWanted = (frame: Frame, shard: number, from: number) =>
  frame.kind === RecordKind.data && frame.shard === shard && frame.index >= from;

const recordOf = (frame: Frame): LogRecord => ({
  shard: frame.shard as ShardId,
  index: asIndex(frame.index),
  term: asTerm(frame.term),
  body: frame.body,
});

export function notHere(shard: ShardId, index: Index): HopError {
  return new HopError("STORE_UNAVAILABLE", `Cannot read record ${index} of shard ${shard}: the log does not hold it durably`);
}
