/**
 * What a log's folder holds after any end of the process: the segments, checked as far as opening
 * needs, with a torn tail cut off.
 *
 * A tail is torn when nothing of a later flush follows the damage: then its flush had not been
 * acknowledged. Everything else is damage, which is fatal and named. Closed segments are taken
 * from their sidecars and checked when they are read. Segments in front of the one that the log
 * says it begins with are left over from a trimming that a crash interrupted.
 */
import fs from "node:fs";
import { join } from "node:path";
import { asIndex, type Index, noBytes, type ShardId } from "#core/base";
import { CorruptionError } from "../corruption-error.ts";
import { FrameWalk, walkSync } from "./frame-walk.ts";
import { type Frame, type FrameFault, frameBytes, isFault, isRecord, markerAt, placedHead, readFrame, viewOf } from "./record-frame.ts";
import { logPiecesOf } from "./record-places.ts";
import { type ClosedSegment, decodeHeader, headerBytes, numberOf, type Segment, type SegmentHeader, segmentName } from "./segment-file.ts";
import { SegmentIndex } from "./segment-index.ts";
import { type FoldedShard, foldShard } from "./shard-fold.ts";
import { ShardLog } from "./shard-log.ts";
import { readSidecar, writeSidecar } from "./sidecar.ts";
import { firstSegmentOf } from "./trimming.ts";

export interface TornTail {
  readonly file: string;
  readonly offset: number;
  readonly bytes: number;
}

export interface Recovered {
  readonly logId: string;
  /** In order; the last one is the one to go on writing. */
  readonly segments: ClosedSegment[];
  readonly torn: TornTail | undefined;
  /** Number of a last segment that ends inside its header, and so holds nothing. */
  readonly headless: number | undefined;
  /** What the segments together say of each shard. */
  readonly logs: ReadonlyMap<ShardId, ShardLog>;
  /** Up to where each shard's records are released. */
  readonly released: ReadonlyMap<ShardId, Index>;
}

/** What is known of a shard's log up to some segment; its last index only from where it appends. */
interface Known {
  readonly base: number;
  readonly last: number | undefined;
}

type Logs = Map<number, Known>;

interface Scanned {
  readonly segment: ClosedSegment;
  readonly fault: FrameFault | undefined;
  /** Where the last flush that was walked begins; where none was, the end. */
  readonly flushStart: number;
}

export interface Found {
  readonly path: string;
  readonly header: SegmentHeader;
}

/**
 * Reads a log's folder; undefined when it holds no log. Throws `CorruptionError`, or STORE_UNAVAILABLE
 * where a newer version wrote; nothing is changed then.
 */
export function recoverLog(dir: string): Recovered | undefined {
  const { found, headless } = listSegments(dir);
  const logs: Logs = new Map();
  const nothing = { logs: new Map(), released: new Map() };
  if (found.length === 0 && (headless ?? 1) > 1) throw missingSegment(dir, 1, headless as number);
  if (found.length === 0) return headless === undefined ? undefined : { logId: "", segments: [], torn: undefined, headless, ...nothing };
  const scans = found.map((one, i) => {
    const isLast = i === found.length - 1 && headless === undefined;
    const scanned = scanSegment(one, logs, isLast);
    follow(scanned.segment.index, logs);
    if (!isLast && scanned.fault !== undefined) {
      throw damaged(one.path, scanned.fault, lastIndexes(logs), "a later segment shows that it had been acknowledged");
    }
    return scanned;
  });
  const tail = headless === undefined ? tailOf(scans.at(-1) as Scanned, logs) : undefined;
  const all = scans.map(({ segment }) => segment);
  const segments = all.filter(({ header }) => header.number >= firstSegmentOf(all));
  if (segments[0]?.header.number !== firstSegmentOf(all)) throw missingSegment(dir, firstSegmentOf(all), (all[0] as Segment).header.number);
  const shards = shardsOf(segments);
  // From here on the folder is changed. Files go when it is durable that they may.
  const torn = tail === undefined ? undefined : settleTail(tail);
  removeLeftovers(dir, firstSegmentOf(all));
  for (const segment of tail === undefined ? segments : segments.slice(0, -1)) writeMissingSidecar(segment);
  return { logId: (found[0] as Found).header.logId, segments, torn, headless, ...shards };
}

function shardsOf(segments: readonly Segment[]): Pick<Recovered, "logs" | "released"> {
  const logs = new Map<ShardId, ShardLog>();
  const released = new Map<ShardId, Index>();
  for (const number of new Set(segments.flatMap(({ index }) => [...index.parts.keys()]))) {
    const shard = number as ShardId;
    const folded = foldShard(segments, shard);
    if (folded.hasLog) logs.set(shard, logOf(segments, shard, folded));
    if (folded.released > 0) released.set(shard, folded.released);
  }
  return { logs, released };
}

/** The shard's log, each record of which has a place. */
function logOf(segments: readonly Segment[], shard: ShardId, { base, isRemoved, state, last }: FoldedShard): ShardLog {
  const log = new ShardLog(shard);
  log.rebase(base, isRemoved);
  log.state = state;
  for (const { first, last: end, span } of logPiecesOf(segments, shard, { base: base.index, end: last + 1 })) {
    if (first !== log.appended + 1) break;
    log.appendRun(first, end, span.term);
  }
  if (log.appended === last) return log;
  const index = asIndex(log.appended + 1);
  const file = (segments[0] as Segment).path;
  throw new CorruptionError(
    "open the log",
    { file, offset: 0, shard, index, got: "no such record in any segment", want: `record ${index}` },
    "restore the log's folder from a copy",
  );
}

interface Tail {
  readonly segment: Segment;
  readonly flushStart: number;
  /** What is behind the last whole frame. */
  readonly bytes: Uint8Array;
}

function tailOf({ segment, fault, flushStart }: Scanned, logs: Logs): Tail {
  if (fault === undefined) return { segment, flushStart, bytes: noBytes };
  const bytes = readRange(segment.path, segment.end, Number.POSITIVE_INFINITY);
  refuseIfAcknowledged(segment, fault, bytes, lastIndexes(logs));
  return { segment, flushStart, bytes };
}

const lastIndexes = (logs: Logs) => new Map([...logs].map(([shard, { last }]) => [shard, last ?? 0]));

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
    if (before !== undefined && number !== before.number + 1) throw missingSegment(dir, before.number + 1, number);
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

export function missingSegment(dir: string, want: number, got: number): CorruptionError {
  return new CorruptionError(
    "open the log",
    { file: join(dir, segmentName(want)), offset: 0, got: `segment ${got} after ${want - 1}`, want: `${want}` },
    "restore the missing segment from a copy",
  );
}

/** What was being prepared, and segments that were trimmed; their files go one by one, so that those left are a log without gaps. */
function removeLeftovers(dir: string, first: number): void {
  const names = fs.readdirSync(dir).sort();
  for (const name of names) if (/^wal-.*\.(next|tmp)$/.test(name)) fs.rmSync(join(dir, name));
  for (const name of names) {
    const number = numberOf(name.replace(/\.idx$/, ".log"));
    if (number === undefined || number >= first) continue;
    fs.rmSync(join(dir, name), { force: true });
    syncFolderNow(dir);
  }
}

function syncFolderNow(dir: string): void {
  const fd = fs.openSync(dir, "r");
  try {
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
}

/** Walks a segment from where its sidecar ends, or from its start. `logs` has what is before it. */
function scanSegment(one: Found, logs: Logs, isLast: boolean): Scanned {
  const known = readSidecar(one.path, one.header);
  const size = fs.statSync(one.path).size;
  const usable = known !== undefined && known.end <= size && isNext(known.index, logs);
  const segment: ClosedSegment = { ...one, size, index: usable ? known.index : new SegmentIndex(), end: usable ? known.end : headerBytes };
  if (usable && !isLast) return { segment, fault: undefined, flushStart: segment.end };
  const fd = fs.openSync(one.path, "r");
  try {
    return walkSegment(fd, segment, logs);
  } finally {
    fs.closeSync(fd);
  }
}

function walkSegment(fd: number, segment: ClosedSegment, logs: Logs): Scanned {
  const frames = walkSync(fd, new FrameWalk({ from: segment.end, end: segment.size }, segment));
  let flushStart = segment.end;
  for (let step = frames.next(); ; step = frames.next()) {
    if (step.done === true) {
      const isCleanEnd = step.value === undefined || isZero(fd, segment.end);
      return { segment, fault: isCleanEnd ? undefined : step.value, flushStart };
    }
    const fault = outOfOrder(step.value, segment.index, logs);
    if (fault !== undefined) return { segment, fault, flushStart };
    segment.index.note(placedHead(step.value));
    segment.end = step.value.end;
    flushStart = step.value.flushStart;
  }
}

/** A record stands where the shard's log has a place for it: at most one behind its last, and behind its base. */
function outOfOrder({ kind, shard, index, offset }: Frame, here: SegmentIndex, logs: Logs): FrameFault | undefined {
  if (!isRecord(kind)) return undefined;
  const log = logs.get(shard);
  const last = here.last(shard, log?.last);
  const part = here.parts.get(shard);
  const base = (part?.compacted ?? part?.base)?.index ?? log?.base ?? 0;
  if (last === undefined || (index <= last + 1 && index > base)) return undefined;
  return { offset, got: `record ${index} of shard ${shard}`, want: `record ${last + 1}` };
}

function isNext(index: SegmentIndex, logs: Logs): boolean {
  for (const [shard, { firstAppended }] of index.parts) {
    const log = logs.get(shard);
    if (firstAppended > 0 && log?.last !== undefined && (firstAppended > log.last + 1 || firstAppended <= log.base)) return false;
  }
  return true;
}

/** Takes in what a segment did to each shard. */
function follow(index: SegmentIndex, logs: Logs): void {
  for (const [shard, part] of index.parts) {
    const before = logs.get(shard);
    const base = (part.compacted ?? part.base)?.index ?? before?.base ?? 0;
    logs.set(shard, { base, last: index.last(shard, before?.last) });
  }
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
function settleTail({ segment, flushStart, bytes: tail }: Tail): TornTail | undefined {
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
