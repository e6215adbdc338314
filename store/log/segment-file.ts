/**
 * One file of the log: `wal-<number>.log`, a header and records up to `end`, zeros behind.
 *
 * A segment is prepared under the name `….next` and renamed when its predecessor is full. As
 * writes are one at a time, a later segment that exists proves that all of the earlier ones was
 * acknowledged.
 */
import fs from "node:fs";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { HopError, toHex } from "#core/base";
import { CorruptionError } from "../corruption-error.ts";
import { type LogDisk, syncFolder, writeAll } from "./log-disk.ts";
import { type Salt, viewOf } from "./record-frame.ts";
import { SegmentIndex } from "./segment-index.ts";

export const headerBytes = 64;
/**
 * Raised when bytes change meaning or a kind of frame is added; a newer format is refused, never
 * guessed at. Format 1 has records and markers only, format 2 nothing of trimming; such a segment is
 * read, and no more written to.
 */
export const segmentFormat = 3;

const magic = new TextEncoder().encode("HOPWAL\0\0");
const checksumAt = 60;

export interface SegmentHeader extends Salt {
  readonly format: number;
  readonly number: number;
  /** Of the whole log, in hex: derived files name the log they belong to by it. */
  readonly logId: string;
}

export interface Segment {
  readonly path: string;
  readonly header: SegmentHeader;
  readonly index: SegmentIndex;
  /** Where the acknowledged records end. */
  end: number;
}

export interface ClosedSegment extends Segment {
  /** Of the file. */
  size: number;
}

/** The segment that is written to. */
export interface OpenSegment extends Segment {
  path: string;
  readonly fd: number;
  /** Bytes up to here exist, so that writing them changes no metadata. */
  zeroedTo: number;
  /** It is filled up to here before the next one is begun; only a single larger batch makes it longer. */
  readonly limit: number;
  /** The chunk of zeros being written at `zeroedTo`. */
  zeroing: Promise<void> | undefined;
}

export const segmentName = (number: number) => `wal-${String(number).padStart(10, "0")}.log`;
export const numberOf = (name: string) => {
  const found = /^wal-(\d{10})\.log$/.exec(name);
  return found === null ? undefined : Number(found[1]);
};

function encodeHeader(header: SegmentHeader): Uint8Array {
  const bytes = new Uint8Array(headerBytes);
  const view = viewOf(bytes);
  bytes.set(magic);
  view.setUint32(8, header.format, true);
  view.setUint32(12, header.number, true);
  view.setUint32(16, header.mark, true);
  view.setUint32(20, header.seed, true);
  bytes.set(new TextEncoder().encode(header.logId), 24);
  view.setUint32(checksumAt, crc32(bytes.subarray(0, checksumAt)), true);
  return bytes;
}

/** Reads and checks a header. Throws `CorruptionError`, or STORE_UNAVAILABLE for a newer format. */
export function decodeHeader(bytes: Uint8Array, path: string, number: number): SegmentHeader {
  const view = viewOf(bytes);
  const isLog = magic.every((byte, i) => bytes[i] === byte);
  const got = crc32(bytes.subarray(0, checksumAt));
  const want = view.getUint32(checksumAt, true);
  const format = view.getUint32(8, true);
  // The format comes before the checksum: a newer header may be sealed in another way.
  if (isLog && format > segmentFormat && format < 1000) throw newerFormat(path, format);
  if (!isLog || got !== want) {
    throw new CorruptionError(
      "open the log",
      {
        file: path,
        offset: 0,
        got: isLog ? `header checksum ${got.toString(16)}` : `header ${toHex(bytes.subarray(0, 8))}`,
        want: isLog ? want.toString(16) : toHex(magic),
      },
      "restore the file from a copy",
    );
  }
  const found = view.getUint32(12, true);
  if (found !== number) {
    throw new CorruptionError(
      "open the log",
      { file: path, offset: 12, got: `segment ${found}`, want: `${number}` },
      "a file was renamed: put it back",
    );
  }
  return {
    format,
    number,
    mark: view.getUint32(16, true),
    seed: view.getUint32(20, true),
    logId: new TextDecoder().decode(bytes.subarray(24, 56)),
  };
}

function newerFormat(path: string, format: number): HopError {
  return new HopError(
    "STORE_UNAVAILABLE",
    `Cannot open the log: ${path} has format ${format}, this version knows up to ${segmentFormat}; use the newer hop that wrote it (nothing was changed)`,
  );
}

export function drawHeader(number: number, logId: string): SegmentHeader {
  const draw = new Uint32Array(2);
  crypto.getRandomValues(draw);
  return { format: segmentFormat, number, logId, mark: ((draw[0] as number) | 0x01010101) >>> 0, seed: draw[1] as number };
}

export function drawLogId(): string {
  return toHex(crypto.getRandomValues(new Uint8Array(16)));
}

const zeros = new Uint8Array(1 << 20);
const syncedFlags = fs.constants.O_RDWR | fs.constants.O_DSYNC;

/** Creates the next segment under its preparation name, with a durable header. */
export async function createSegment(dir: string, header: SegmentHeader, limit: number, disk: LogDisk): Promise<OpenSegment> {
  const path = `${join(dir, segmentName(header.number))}.next`;
  const fd = fs.openSync(path, syncedFlags | fs.constants.O_CREAT | fs.constants.O_TRUNC, 0o600);
  try {
    await writeAll(disk, fd, encodeHeader(header), 0);
  } catch (error) {
    fs.closeSync(fd);
    fs.rmSync(path, { force: true });
    throw error;
  }
  return { path, header, fd, index: new SegmentIndex(), end: headerBytes, zeroedTo: headerBytes, limit, zeroing: undefined };
}

/** Gives a prepared segment its name, durably. From here on its predecessor counts as closed. */
export async function beginSegment(dir: string, segment: OpenSegment, disk: LogDisk): Promise<void> {
  const path = join(dir, segmentName(segment.header.number));
  if (segment.path !== path) fs.renameSync(segment.path, path);
  segment.path = path;
  await syncFolder(disk, dir);
}

/** Opens the last segment to go on writing behind its records, up to `limit` or the size that it has. */
export function reopenSegment(segment: Segment, limit: number): OpenSegment {
  const fd = fs.openSync(segment.path, syncedFlags);
  const zeroedTo = Math.max(segment.end, fs.fstatSync(fd).size);
  return { ...segment, fd, zeroedTo, limit: Math.max(limit, zeroedTo), zeroing: undefined };
}

/** Appends a chunk of zeros behind `zeroedTo`, at most up to the segment's limit. What is written of one that fails is given back. */
export function extendZeros(segment: OpenSegment, disk: LogDisk): Promise<void> {
  const from = segment.zeroedTo;
  const chunk = zeros.subarray(0, segment.limit - from);
  const write = writeAll(disk, segment.fd, chunk, from).then(
    () => {
      segment.zeroing = undefined;
      segment.zeroedTo = Math.max(segment.zeroedTo, from + chunk.length);
    },
    (error: unknown) => {
      segment.zeroing = undefined;
      // No record lies behind: whoever writes one there waits for the zeros first.
      if (fs.fstatSync(segment.fd).size > from) fs.ftruncateSync(segment.fd, from);
      throw error;
    },
  );
  segment.zeroing = write;
  return write;
}
