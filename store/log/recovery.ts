/**
 * What a log's folder holds after any end of the process: the segments, checked as far as opening
 * needs, with a torn tail cut off.
 *
 * A tail is torn when nothing of a later flush follows the damage: then its flush had not been
 * acknowledged. Everything else is damage, which is fatal and named. Closed segments are taken
 * from their sidecars and checked when they are read.
 */
import fs from "node:fs";
import { join } from "node:path";
import { asIndex, type Index, noBytes, type ShardId } from "#core/base";
import { CorruptionError } from "../corruption-error.ts";
import { FrameWalk, walkSync } from "./frame-walk.ts";
import { type Frame, type FrameFault, frameBytes, isFault, markerAt, RecordKind, readFrame, viewOf } from "./record-frame.ts";
import { decodeHeader, headerBytes, numberOf, type Segment, type SegmentHeader } from "./segment-file.ts";
import { readSidecar, SegmentIndex, writeSidecar } from "./segment-index.ts";

export interface TornTail {
  readonly file: string;
  readonly offset: number;
  readonly bytes: number;
}

export interface Recovered {
  readonly logId: string;
  /** In order; the last one is the one to go on writing. */
  readonly segments: Segment[];
  readonly torn: TornTail | undefined;
  /** Number of a last segment that ends inside its header, and so holds nothing. */
  readonly headless: number | undefined;
}

interface Scanned {
  readonly segment: Segment;
  readonly fault: FrameFault | undefined;
  /** Where the last flush that was walked begins; where none was, the end. */
  readonly flushStart: number;
}

export interface Found {
  readonly path: string;
  readonly header: SegmentHeader;
}

/** Reads a log's folder; undefined when it holds no log. Throws `CorruptionError`. */
export function recoverLog(dir: string): Recovered | undefined {
  const { found, headless } = listSegments(dir);
  if (found.length === 0) return headless === undefined ? undefined : { logId: "", segments: [], torn: undefined, headless };
  removeLeftovers(dir);
  const last = new Map<number, number>();
  let torn: TornTail | undefined;
  const segments = found.map((one, i) => {
    const isLast = i === found.length - 1 && headless === undefined;
    const { segment, fault, flushStart } = scanSegment(one, last, isLast);
    follow(segment, last);
    if (isLast) {
      const tail = fault === undefined ? noBytes : readRange(one.path, segment.end, Number.POSITIVE_INFINITY);
      if (fault !== undefined) refuseIfAcknowledged(segment, fault, tail, last);
      torn = settleTail(segment, flushStart, tail);
    } else if (fault !== undefined) throw damaged(one.path, fault, last, "a later segment shows that it had been acknowledged");
    else writeMissingSidecar(segment);
    return segment;
  });
  return { logId: (found[0] as Found).header.logId, segments, torn, headless };
}

/** Checks all headers before anything is changed, so that a refusal leaves the folder as it was. */
export function listSegments(dir: string): { found: Found[]; headless: number | undefined } {
  const numbers = fs
    .readdirSync(dir)
    .map(numberOf)
    .filter((number) => number !== undefined)
    .sort((a, b) => a - b);
  const found: Found[] = [];
  for (const [i, number] of numbers.entries()) {
    const path = join(dir, `wal-${String(number).padStart(10, "0")}.log`);
    const before = found[i - 1]?.header;
    if (before !== undefined && number !== before.number + 1) throw missingSegment(path, before.number + 1, number);
    const bytes = readRange(path, 0, headerBytes);
    // Headers are durable before a segment gets its name: a shorter file was cut, and holds no record.
    if (bytes.length < headerBytes && i === numbers.length - 1) return { found, headless: number };
    const header = decodeHeader(padded(bytes), path, number);
    if (before !== undefined && before.logId !== header.logId) {
      throw new CorruptionError(
        "open the log",
        { file: path, offset: 24, got: `log ${header.logId}`, want: before.logId },
        "a segment of another log was put here: take it out",
      );
    }
    found.push({ path, header });
  }
  return { found, headless: undefined };
}

function missingSegment(path: string, want: number, got: number): CorruptionError {
  return new CorruptionError(
    "open the log",
    { file: path, offset: 0, got: `segment ${got} after ${want - 1}`, want: `${want}` },
    "restore the missing segment from a copy",
  );
}

function removeLeftovers(dir: string): void {
  for (const name of fs.readdirSync(dir)) if (/^wal-.*\.(next|tmp)$/.test(name)) fs.rmSync(join(dir, name));
}

/** Walks a segment from where its sidecar ends, or from its start. `last` holds each shard's last index before it. */
function scanSegment(one: Found, last: ReadonlyMap<number, number>, isLast: boolean): Scanned {
  const known = readSidecar(one.path, one.header);
  const size = fs.statSync(one.path).size;
  const usable = known !== undefined && known.end <= size && startsAfter(known.index, last);
  const segment: Segment = { ...one, index: usable ? known.index : new SegmentIndex(), end: usable ? known.end : headerBytes };
  if (usable && !isLast) return { segment, fault: undefined, flushStart: segment.end };
  const fd = fs.openSync(one.path, "r");
  try {
    return walkSegment(fd, segment, size, last);
  } finally {
    fs.closeSync(fd);
  }
}

function walkSegment(fd: number, segment: Segment, size: number, last: ReadonlyMap<number, number>): Scanned {
  const frames = walkSync(fd, new FrameWalk({ from: segment.end, end: size }, segment.header));
  let flushStart = segment.end;
  for (let step = frames.next(); ; step = frames.next()) {
    if (step.done === true) {
      const isCleanEnd = step.value === undefined || isZero(fd, segment.end);
      return { segment, fault: isCleanEnd ? undefined : step.value, flushStart };
    }
    const { shard, index, offset, kind } = step.value;
    if (kind === RecordKind.data) {
      const before = segment.index.spans.get(shard)?.last ?? last.get(shard);
      if (before !== undefined && index !== before + 1) {
        const fault = { offset, got: `record ${index} of shard ${shard}`, want: `record ${before + 1}` };
        return { segment, fault, flushStart };
      }
      segment.index.note(shard, index, offset);
    }
    segment.end = step.value.end;
    flushStart = step.value.flushStart;
  }
}

const startsAfter = (index: SegmentIndex, last: ReadonlyMap<number, number>) =>
  [...index.spans].every(([shard, span]) => !last.has(shard) || span.first === (last.get(shard) as number) + 1);

function follow(segment: Segment, last: Map<number, number>): void {
  for (const [shard, span] of segment.index.spans) last.set(shard, span.last);
}

function writeMissingSidecar(segment: Segment): void {
  if (readSidecar(segment.path, segment.header) === undefined) writeSidecar(segment.path, segment.header, segment.index, segment.end);
}

/**
 * Makes the records that were found durable, as they are about to be acknowledged, and cuts off
 * what is behind them.
 *
 * The last flush is written again: it may be in the page cache only, and where the process died
 * of a failed write the kernel may count its pages as written. Stale bytes behind new records
 * could pass for records of this segment later.
 */
function settleTail(segment: Segment, flushStart: number, tail: Uint8Array): TornTail | undefined {
  let bytes = tail.length;
  while (bytes > 0 && tail[bytes - 1] === 0) bytes--;
  const flush = readRange(segment.path, flushStart, segment.end);
  const fd = fs.openSync(segment.path, "r+");
  try {
    fs.writeSync(fd, flush, 0, flush.length, flushStart);
    fs.writeSync(fd, new Uint8Array(bytes), 0, bytes, segment.end);
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
  return bytes === 0 ? undefined : { file: segment.path, offset: segment.end, bytes };
}

/** Throws unless what follows the last whole record can be a flush that was never acknowledged. */
export function refuseIfAcknowledged(segment: Segment, fault: FrameFault, tail: Uint8Array, last: ReadonlyMap<number, number>): void {
  const later = laterFlush(tail, segment);
  if (later !== undefined) {
    throw damaged(segment.path, fault, last, `a record of a later write, at byte ${later.offset}, shows that it had been acknowledged`);
  }
  if (isDamagedMarker(tail, segment)) throw damaged(segment.path, fault, last, "it is a commit marker with a changed byte");
}

/** A whole record whose flush began behind the damage: only an acknowledged flush has a later one. */
function laterFlush(tail: Uint8Array, segment: Segment): Frame | undefined {
  const mark = new Uint8Array(4);
  viewOf(mark).setUint32(0, segment.header.mark, true);
  const text = Buffer.from(tail.buffer, tail.byteOffset, tail.byteLength);
  for (let at = text.indexOf(mark); at >= 0; at = text.indexOf(mark, at + 1)) {
    const found = readFrame(tail, at, tail.length, segment.end + at, segment.end + tail.length, segment.header);
    if (typeof found !== "number" && !isFault(found) && found.flushStart > segment.end) return found;
  }
  return undefined;
}

/** A marker fits one sector or is torn at a multiple of 8 bytes: one that is wrong in a byte or two was changed. */
function isDamagedMarker(tail: Uint8Array, segment: Segment): boolean {
  if (tail.length < frameBytes) return false;
  const want = markerAt(segment.end, segment.header);
  let wrong = 0;
  for (let i = 0; i < frameBytes; i++) if (tail[i] !== want[i]) wrong++;
  return wrong <= 2;
}

/** The error for a fault behind the records that `last` counts. */
export function damaged(path: string, fault: FrameFault, last: ReadonlyMap<number, number>, advice: string): CorruptionError {
  const record = recordAt(fault, last);
  return new CorruptionError("read the log", { file: path, offset: fault.offset, ...record, got: fault.got, want: fault.want }, advice);
}

/** What the damaged header says where that can be, else the next record of the first shard. */
function recordAt({ claim }: FrameFault, last: ReadonlyMap<number, number>): { shard: ShardId; index: Index } | undefined {
  const next = claim && { shard: claim.shard as ShardId, index: asIndex((last.get(claim.shard) ?? 0) + 1) };
  if (next !== undefined && claim?.index === next.index) return next;
  for (const [shard, index] of last) return { shard: shard as ShardId, index: asIndex(index + 1) };
  return next;
}

export function isZero(fd: number, from: number): boolean {
  const block = new Uint8Array(1 << 18);
  const zeros = new Uint8Array(block.length);
  for (let at = from; ; ) {
    const count = fs.readSync(fd, block, 0, block.length, at);
    if (count === 0) return true;
    if (Buffer.compare(block.subarray(0, count), zeros.subarray(0, count)) !== 0) return false;
    at += count;
  }
}

/** Bytes [from, end) of a file, fewer where it is shorter. */
export function readRange(path: string, from: number, end: number): Uint8Array {
  const fd = fs.openSync(path, "r");
  try {
    const bytes = new Uint8Array(Math.max(0, Math.min(end, fs.fstatSync(fd).size) - from));
    let filled = 0;
    for (let count = -1; filled < bytes.length && count !== 0; filled += count) {
      count = fs.readSync(fd, bytes, filled, bytes.length - filled, from + filled);
    }
    return bytes.subarray(0, filled);
  } finally {
    fs.closeSync(fd);
  }
}

/** A header cut short in the middle of the log fails its checksum like any other damage. */
function padded(bytes: Uint8Array): Uint8Array {
  const out = new Uint8Array(headerBytes);
  out.set(bytes);
  return out;
}
