/**
 * Reads a log that no process writes, from its first byte to its last, and changes nothing: what
 * an audit needs.
 *
 * Sidecars are not believed and nothing is taken as checked: every record's checksum is computed
 * again. What may be a torn tail is told and left in place. That a trimmed log does not begin with
 * its first file is no damage; that a file is missing behind where it says that it begins is.
 */
import fs from "node:fs";
import { asIndex, asShardId, asTerm, HopError, noBytes } from "#core/base";
import { CorruptionError } from "../corruption-error.ts";
import { FrameWalk, walkSync } from "./frame-walk.ts";
import type { LogRecord } from "./log-store.ts";
import {
  entryKindOf,
  type Frame,
  type FrameFault,
  FrameKind,
  isFault,
  isMoved,
  isRebase,
  isRecord,
  type Origin,
  originOf,
  placedHead,
  readFrame,
  recordBody,
  viewOf,
} from "./record-frame.ts";
import { type Piece, piecesOf } from "./record-places.ts";
import { damaged, type Found, isZero, listSegments, missingSegment, readRange, refuseIfAcknowledged, type TornTail } from "./recovery.ts";
import { headerBytes, type Segment } from "./segment-file.ts";
import { SegmentIndex, type Span } from "./segment-index.ts";
import { foldShard } from "./shard-fold.ts";
import { firstSegmentOf } from "./trimming.ts";

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

/** A copy out of a trimmed segment. */
interface FoundCopy {
  readonly found: FoundFrame & { readonly span: Span };
  readonly origin: Origin;
}

/**
 * The records of the log in `dir` that hold events, in the order in which they were written at first:
 * each that a read would find, and none that a later one overwrote or that is released. Returns the tail that a crash may
 * have torn, if there is one. Throws `CorruptionError` at the first damage; where `onDamage` takes
 * it, goes on behind it with the next record that is whole.
 */
export function* auditLog(dir: string, onDamage?: (damage: LogDamage) => void): Generator<PlacedRecord, TornTail | undefined> {
  const { segments, copies } = survey(dir);
  const first = firstSegmentOf(segments);
  const begins = segments[0]?.header.number;
  if (begins !== undefined && begins > first) {
    const error = missingSegment(dir, first, begins);
    if (onDamage === undefined) throw error;
    onDamage({ error, bytes: noBytes });
  }
  const found = new FoundSpans(segments.filter(({ header }) => header.number >= first));
  // Their segments were the oldest ones: what they held is older than all that is there.
  for (const { found: copy } of copies) if (found.has(copy, copy.span)) yield placed(readAgain(copy));
  const frames = auditFrames(dir, first, onDamage);
  for (let step = frames.next(); ; step = frames.next()) {
    if (step.done === true) return step.value;
    const { frame, span } = step.value;
    if (span === undefined || isMoved(frame.kind) || entryKindOf(frame.kind) !== "data" || !found.has(step.value, span)) continue;
    yield placed(step.value);
  }
}

function placed({ segment, frame }: FoundFrame): PlacedRecord {
  const { shard, index, term, offset } = frame;
  const where = { file: segment.path, offset };
  return { shard: asShardId(shard), index: asIndex(index), term: asTerm(term), kind: "data", body: recordBody(frame), ...where };
}

/** The copy with its bytes: they were not kept. */
function readAgain(copy: FoundFrame): FoundFrame {
  const { segment, frame } = copy;
  const bytes = readRange(segment.path, frame.offset, frame.end);
  const again = readFrame(bytes, 0, bytes.length, frame.offset, frame.end, segment.header);
  if (typeof again === "number" || isFault(again))
    throw new HopError("STORE_UNAVAILABLE", `Cannot audit ${segment.path}: it changes meanwhile`);
  return { ...copy, frame: again };
}

/** What all segments together hold, as far as it can be read: which records count is known at the log's end only. */
function survey(dir: string): { readonly segments: Segment[]; readonly copies: FoundCopy[] } {
  const segments = new Set<Segment>();
  const copies: FoundCopy[] = [];
  for (const { segment, frame, span } of auditFrames(dir, 0, () => {})) {
    segments.add(segment);
    if (span === undefined || !isMoved(frame.kind) || entryKindOf(frame.kind) !== "data") continue;
    copies.push({ found: { segment, frame: { ...frame, body: noBytes }, span }, origin: originOf(frame, segment.header.number) });
  }
  copies.sort(({ origin: a }, { origin: b }) => a.segment - b.segment || a.offset - b.offset);
  return { segments: [...segments], copies };
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
      const { base, released } = foldShard(this.segments, frame.shard);
      const end = Number.POSITIVE_INFINITY;
      const everywhere = piecesOf(this.segments, frame.shard, { from: 0, end }, { base: base.index, end, released });
      ofShard = Map.groupBy(everywhere, (piece) => keyOf(piece.segment, piece.span));
      this.pieces.set(frame.shard, ofShard);
    }
    const here = ofShard.get(keyOf(segment, span)) ?? [];
    return here.some(({ first, last }) => first <= frame.index && frame.index <= last);
  }
}

const keyOf = ({ header }: Segment, { number }: Span) => `${header.number}/${number}`;

/** Every whole frame of the log from segment `first` on. */
function* auditFrames(dir: string, first: number, onDamage?: (damage: LogDamage) => void): Generator<FoundFrame, TornTail | undefined> {
  const { found: all, headless } = listSegments(dir);
  const found = all.filter(({ header }) => header.number >= first);
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
