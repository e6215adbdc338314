/**
 * Reads a log that no process writes, from its first byte to its last, and changes nothing: what
 * an audit needs.
 *
 * Sidecars are not believed and nothing is taken as checked: every record's checksum is computed
 * again. What may be a torn tail is told and left in place.
 */
import fs from "node:fs";
import { asIndex, asShardId, asTerm, type Index } from "#core/base";
import { FrameWalk, walkSync } from "./frame-walk.ts";
import type { LogRecord } from "./log-store.ts";
import { type FrameFault, RecordKind } from "./record-frame.ts";
import { damaged, type Found, isZero, listSegments, readRange, refuseIfAcknowledged, type TornTail } from "./recovery.ts";
import { headerBytes, type Segment } from "./segment-file.ts";
import { SegmentIndex } from "./segment-index.ts";

/** A record and where it is; the body is a view that is valid until the next one is asked for. */
export interface PlacedRecord extends LogRecord {
  readonly file: string;
  readonly offset: number;
}

/**
 * All records of the log in `dir`, in the order in which they were written; returns the tail that
 * a crash may have torn, if there is one. Throws `CorruptionError` at the first damage.
 */
export function* auditLog(dir: string): Generator<PlacedRecord, TornTail | undefined> {
  const { found, headless } = listSegments(dir);
  const last = new Map<number, number>();
  for (const [i, one] of found.entries()) {
    const segment: Segment = { ...one, index: new SegmentIndex(), end: headerBytes };
    const fault = yield* auditSegment(segment, last);
    if (fault === undefined) continue;
    if (i < found.length - 1 || headless !== undefined)
      throw damaged(one.path, fault, last, "a later segment shows that it had been acknowledged");
    const tail = readRange(one.path, segment.end, Number.POSITIVE_INFINITY);
    refuseIfAcknowledged(segment, fault, tail, last);
    return { file: one.path, offset: segment.end, bytes: withoutZeros(tail) };
  }
  return undefined;
}

/** The segment's records, then its fault if it has one. */
function* auditSegment(segment: Segment & Found, last: Map<number, number>): Generator<PlacedRecord, FrameFault | undefined> {
  const fd = fs.openSync(segment.path, "r");
  try {
    const frames = walkSync(fd, new FrameWalk({ from: headerBytes, end: fs.fstatSync(fd).size }, segment.header));
    for (let step = frames.next(); ; step = frames.next()) {
      if (step.done === true) return step.value !== undefined && isZero(fd, segment.end) ? undefined : step.value;
      const { shard, index, term, offset, kind, end, body } = step.value;
      if (kind === RecordKind.data) {
        const before = last.get(shard);
        if (before !== undefined && index !== before + 1) {
          return { offset, got: `record ${index} of shard ${shard}`, want: `record ${before + 1}`, claim: step.value };
        }
        last.set(shard, index);
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
