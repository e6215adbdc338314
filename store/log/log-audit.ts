/**
 * Reads a log that no process writes, from its first byte to its last, and changes nothing: what
 * an audit needs.
 *
 * Sidecars are not believed and nothing is taken as checked: every record's checksum is computed
 * again. What may be a torn tail is told and left in place.
 */
import fs from "node:fs";
import { asIndex, asShardId, asTerm, type Index } from "#core/base";
import { CorruptionError } from "../corruption-error.ts";
import { FrameWalk, walkSync } from "./frame-walk.ts";
import type { LogRecord } from "./log-store.ts";
import { type FrameFault, isFault, RecordKind, readFrame, viewOf } from "./record-frame.ts";
import { damaged, type Found, isZero, listSegments, readRange, refuseIfAcknowledged, type TornTail } from "./recovery.ts";
import { headerBytes, type Segment } from "./segment-file.ts";
import { SegmentIndex } from "./segment-index.ts";

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
  readonly last: Map<number, number>;
  /** Shards of which damaged records may be missing before the next one. */
  readonly gaps: Set<number>;
  readonly onDamage: ((damage: LogDamage) => void) | undefined;
}

/**
 * All records of the log in `dir`, in the order in which they were written; returns the tail that
 * a crash may have torn, if there is one. Throws `CorruptionError` at the first damage; where
 * `onDamage` takes it, goes on behind it with the next record that is whole.
 */
export function* auditLog(dir: string, onDamage?: (damage: LogDamage) => void): Generator<PlacedRecord, TornTail | undefined> {
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

/** The segment's records from its `end` on, then its fault if it has one. */
function* auditSegment(segment: Segment & Found, audit: Audit): Generator<PlacedRecord, FrameFault | undefined> {
  const { last, gaps } = audit;
  const fd = fs.openSync(segment.path, "r");
  try {
    const frames = walkSync(fd, new FrameWalk({ from: segment.end, end: fs.fstatSync(fd).size }, segment.header));
    for (let step = frames.next(); ; step = frames.next()) {
      if (step.done === true) return step.value !== undefined && isZero(fd, segment.end) ? undefined : step.value;
      const { shard, index, term, offset, kind, end, body } = step.value;
      if (kind === RecordKind.data) {
        const before = last.get(shard);
        const follows = before === undefined || index === before + 1 || (gaps.has(shard) && index > before);
        if (!follows) return { offset, got: `record ${index} of shard ${shard}`, want: `record ${before + 1}`, claim: step.value };
        last.set(shard, index);
        gaps.delete(shard);
        yield { shard: asShardId(shard), index: asIndex(index) as Index, term: asTerm(term), body, file: segment.path, offset };
      }
      segment.end = end;
    }
  } finally {
    fs.closeSync(fd);
  }
}

function withoutZeros(tail: Uint8Array): number {
  let bytes = tail.length;
  while (bytes > 0 && tail[bytes - 1] === 0) bytes--;
  return bytes;
}
