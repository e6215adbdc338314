/**
 * Reads a log that no process writes, from its first byte to its last, and changes nothing: what
 * an audit needs.
 *
 * Sidecars are not believed and nothing is taken as checked: every record's checksum is computed
 * again. What may be a torn tail is told and left in place.
 */
import fs from "node:fs";
import { asIndex, asShardId, asTerm } from "#core/base";
import { CorruptionError } from "../corruption-error.ts";
import { FrameWalk, walkSync } from "./frame-walk.ts";
import type { LogRecord } from "./log-store.ts";
import {
  entryKindOf,
  type Frame,
  type FrameFault,
  FrameKind,
  isFault,
  isRebase,
  isRecord,
  placedHead,
  readFrame,
  viewOf,
} from "./record-frame.ts";
import { type Piece, piecesOf } from "./record-places.ts";
import { damaged, type Found, isZero, listSegments, readRange, refuseIfAcknowledged, type TornTail } from "./recovery.ts";
import { headerBytes, type Segment } from "./segment-file.ts";
import { SegmentIndex, type Span } from "./segment-index.ts";

/** A record and where it is; the body is a view that is valid until the next one is asked for. */
export interface PlacedRecord extends LogRecord {
  readonly file: string;
  readonly offset: number;
}

/** Damage in the log, and the bytes that can't be read for it. */
export interface LogDamage {
  readonly error: CorruptionError;
  readonly bytes: Uint8Array;
}

interface Audit {
  /** Last index, by shard. */
  readonly last: Map<number, number>;
  /** Shards of which damaged records may be missing before the next one. */
  readonly gaps: Set<number>;
  readonly onDamage: ((damage: LogDamage) => void) | undefined;
}

interface FoundFrame {
  readonly segment: Segment & Found;
  readonly frame: Frame;
  /** Of a record: the span of its segment that it is in. */
  readonly span: Span | undefined;
}

/**
 * The records of the log in `dir` that hold events, in the order in which they were written: each
 * that a read would find, and none that a later one overwrote. Returns the tail that a crash may
 * have torn, if there is one. Throws `CorruptionError` at the first damage; where `onDamage` takes
 * it, goes on behind it with the next record that is whole.
 */
export function* auditLog(dir: string, onDamage?: (damage: LogDamage) => void): Generator<PlacedRecord, TornTail | undefined> {
  const found = new FoundSpans(survey(dir));
  const frames = auditFrames(dir, onDamage);
  for (let step = frames.next(); ; step = frames.next()) {
    if (step.done === true) return step.value;
    const { segment, frame, span } = step.value;
    if (span === undefined || entryKindOf(frame.kind) !== "data" || !found.has(step.value, span)) continue;
    const { shard, index, term, offset, body } = frame;
    yield { shard: asShardId(shard), index: asIndex(index), term: asTerm(term), kind: "data", body, file: segment.path, offset };
  }
}

/** What all segments together hold, as far as it can be read: which records count is known at the log's end only. */
function survey(dir: string): Segment[] {
  const segments = new Set<Segment>();
  for (const { segment } of auditFrames(dir, () => {})) segments.add(segment);
  return [...segments];
}

/** Which indexes of each span a read would find there. */
class FoundSpans {
  private readonly segments: readonly Segment[];
  /** By shard, and by segment and span. */
  private readonly pieces = new Map<number, ReadonlyMap<string, readonly Piece[]>>();

  constructor(segments: readonly Segment[]) {
    this.segments = segments;
  }

  has({ segment, frame }: FoundFrame, span: Span): boolean {
    let ofShard = this.pieces.get(frame.shard);
    if (ofShard === undefined) {
      const everywhere = piecesOf(this.segments, frame.shard, { from: 0, end: Number.POSITIVE_INFINITY });
      ofShard = Map.groupBy(everywhere, (piece) => keyOf(piece.segment, piece.span));
      this.pieces.set(frame.shard, ofShard);
    }
    const here = ofShard.get(keyOf(segment, span)) ?? [];
    return here.some(({ first, last }) => first <= frame.index && frame.index <= last);
  }
}

const keyOf = ({ header }: Segment, { number }: Span) => `${header.number}/${number}`;

/** Every whole frame of the log. */
function* auditFrames(dir: string, onDamage?: (damage: LogDamage) => void): Generator<FoundFrame, TornTail | undefined> {
  const { found, headless } = listSegments(dir);
  const audit: Audit = { last: new Map(), gaps: new Set(), onDamage };
  for (const [i, one] of found.entries()) {
    const segment: Segment = { ...one, index: new SegmentIndex(), end: headerBytes };
    const isLast = i === found.length - 1 && headless === undefined;
    for (let fault = yield* auditSegment(segment, audit); fault !== undefined; fault = yield* auditSegment(segment, audit)) {
      const tail = readRange(one.path, segment.end, Number.POSITIVE_INFINITY);
      const error = damageAt(segment, { fault, tail, isLast }, audit.last);
      if (error === undefined) return { file: one.path, offset: segment.end, bytes: withoutZeros(tail) };
      if (onDamage === undefined) throw error;
      const bytes = tail.subarray(0, nextFrame(tail, segment));
      onDamage({ error, bytes });
      segment.end += bytes.length;
      for (const shard of audit.last.keys()) audit.gaps.add(shard);
    }
  }
  return undefined;
}

/** What a fault is; undefined = a tail that a crash may have torn. */
function damageAt(
  segment: Segment,
  { fault, tail, isLast }: { readonly fault: FrameFault; readonly tail: Uint8Array; readonly isLast: boolean },
  last: ReadonlyMap<number, number>,
): CorruptionError | undefined {
  if (!isLast) return damaged(segment.path, fault, last, "a later segment shows that it had been acknowledged");
  try {
    refuseIfAcknowledged(segment, fault, tail, last);
    return undefined;
  } catch (error) {
    if (error instanceof CorruptionError) return error;
    throw error;
  }
}

/** Offset in `tail` of the next whole record behind its damaged beginning; its length where there is none. */
function nextFrame(tail: Uint8Array, segment: Segment): number {
  const mark = new Uint8Array(4);
  viewOf(mark).setUint32(0, segment.header.mark, true);
  const text = Buffer.from(tail.buffer, tail.byteOffset, tail.byteLength);
  for (let at = text.indexOf(mark, 1); at >= 0; at = text.indexOf(mark, at + 1)) {
    const found = readFrame(tail, at, tail.length, segment.end + at, segment.end + tail.length, segment.header);
    if (typeof found !== "number" && !isFault(found)) return at;
  }
  return tail.length;
}

/** The segment's frames from its `end` on, then its fault if it has one. */
function* auditSegment(segment: Segment & Found, audit: Audit): Generator<FoundFrame, FrameFault | undefined> {
  const fd = fs.openSync(segment.path, "r");
  try {
    const frames = walkSync(fd, new FrameWalk({ from: segment.end, end: fs.fstatSync(fd).size }, segment));
    for (let step = frames.next(); ; step = frames.next()) {
      if (step.done === true) return step.value !== undefined && isZero(fd, segment.end) ? undefined : step.value;
      const frame = step.value;
      const fault = follow(frame, audit);
      if (fault !== undefined) return fault;
      const span = segment.index.note(placedHead(frame));
      segment.end = frame.end;
      yield { segment, frame, span };
    }
  } finally {
    fs.closeSync(fd);
  }
}

/** A record follows the shard's last one, or overwrites it. */
function follow(frame: Frame, { last, gaps }: Audit): FrameFault | undefined {
  const { kind, shard, index, offset } = frame;
  if (isRebase(kind)) last.set(shard, kind === FrameKind.base ? index : 0);
  if (!isRecord(kind)) return undefined;
  const before = last.get(shard);
  if (before !== undefined && index > before + 1 && !gaps.has(shard)) {
    return { offset, got: `record ${index} of shard ${shard}`, want: `record ${before + 1}`, claim: frame };
  }
  last.set(shard, index);
  gaps.delete(shard);
  return undefined;
}

function withoutZeros(tail: Uint8Array): number {
  let bytes = tail.length;
  while (bytes > 0 && tail[bytes - 1] === 0) bytes--;
  return bytes;
}
