/**
 * One record in a segment file: a 40-byte header, the body, zeros up to a multiple of 8.
 *
 * Little-endian: mark u32, crc u32, length u32, flushStart u32, shard u32, kind u32, index u64,
 * term u64. `mark` and the checksum's seed are drawn for each segment, so bytes of another
 * segment never pass. `flushStart` is where in the file the write that carries the record began:
 * a valid record whose flush began behind some byte proves that the byte had been acknowledged.
 */
import { crc32 } from "node:zlib";

export const frameBytes = 40;

/** A marker has no body and is fully determined by its place: it says that all before it was acknowledged. */
export const RecordKind = { data: 1, marker: 2 } as const;
export type RecordKind = (typeof RecordKind)[keyof typeof RecordKind];

/** What ties records to their segment. */
export interface Salt {
  /** Four bytes, none of them zero. */
  readonly mark: number;
  readonly seed: number;
}

export interface Frame {
  readonly offset: number;
  readonly end: number;
  readonly flushStart: number;
  readonly shard: number;
  readonly kind: number;
  readonly index: number;
  readonly term: number;
  /** A view. */
  readonly body: Uint8Array;
}

export interface FrameFault {
  readonly offset: number;
  /** Which record the damaged header says it is. */
  readonly claim?: { readonly shard: number; readonly index: number };
  readonly got: string;
  readonly want: string;
}

export interface FrameHead {
  readonly shard: number;
  readonly index: number;
  readonly term: number;
}

/** "mark", twice: no byte is zero, so that a half-written marker is far from a whole one. */
const markerWord = 0x6b72616d;
const high = 0x100000000;

export const frameEnd = (at: number, bodyBytes: number) => at + frameBytes + ((bodyBytes + 7) & ~7);
export const viewOf = (bytes: Uint8Array) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** Everything that is known when a record is opened. */
export function writeHead(view: DataView, at: number, head: FrameHead): void {
  view.setUint32(at + 16, head.shard, true);
  view.setUint32(at + 20, RecordKind.data, true);
  view.setUint32(at + 24, head.index >>> 0, true);
  view.setUint32(at + 28, Math.floor(head.index / high), true);
  view.setUint32(at + 32, head.term >>> 0, true);
  view.setUint32(at + 36, Math.floor(head.term / high), true);
}

export function writeMarkerHead(view: DataView, at: number): void {
  view.setUint32(at + 8, 0, true);
  view.setUint32(at + 16, 0, true);
  view.setUint32(at + 20, RecordKind.marker, true);
  for (let word = at + 24; word < at + frameBytes; word += 4) view.setUint32(word, markerWord, true);
}

export const writeLength = (view: DataView, at: number, bodyBytes: number) => view.setUint32(at + 8, bodyBytes, true);

/**
 * Completes the frames in `bytes[0, end)`, which will be written at `fileOffset` in one flush;
 * `each` is told every data record's place.
 */
export function sealFrames(
  bytes: Uint8Array,
  end: number,
  salt: Salt,
  fileOffset: number,
  each: (shard: number, index: number, offset: number) => void,
): void {
  const view = viewOf(bytes);
  for (let at = 0; at < end; ) {
    const to = frameEnd(at, view.getUint32(at + 8, true));
    view.setUint32(at, salt.mark, true);
    view.setUint32(at + 12, fileOffset, true);
    view.setUint32(at + 4, crc32(bytes.subarray(at + 8, to), salt.seed), true);
    if (view.getUint32(at + 20, true) === RecordKind.data) {
      each(view.getUint32(at + 16, true), view.getUint32(at + 24, true) + view.getUint32(at + 28, true) * high, fileOffset + at);
    }
    at = to;
  }
}

/** The marker that would stand at `offset`. */
export function markerAt(offset: number, salt: Salt): Uint8Array {
  const bytes = new Uint8Array(frameBytes);
  writeMarkerHead(viewOf(bytes), 0);
  sealFrames(bytes, frameBytes, salt, offset, () => {});
  return bytes;
}

/**
 * Reads the frame at `bytes[at]`, which is at `offset` of a file of `fileEnd` bytes.
 *
 * A number says how many bytes from `at` on are needed to tell.
 */
export function readFrame(
  bytes: Uint8Array,
  at: number,
  filled: number,
  offset: number,
  fileEnd: number,
  salt: Salt,
): Frame | FrameFault | number {
  if (offset + frameBytes > fileEnd) return { offset, got: `${fileEnd - offset} bytes`, want: `a record of at least ${frameBytes} bytes` };
  if (filled - at < frameBytes) return frameBytes;
  const view = new DataView(bytes.buffer, bytes.byteOffset + at, frameBytes);
  const mark = view.getUint32(0, true);
  const shard = view.getUint32(16, true);
  const index = view.getUint32(24, true) + view.getUint32(28, true) * high;
  const fault = (got: string, want: string): FrameFault => ({ offset, claim: { shard, index }, got, want });
  if (mark !== salt.mark) return fault(`record mark ${hex(mark)}`, hex(salt.mark));
  const length = view.getUint32(8, true);
  const size = frameBytes + length + (-length & 7);
  if (offset + size > fileEnd) return fault(`a record of ${size} bytes`, `at most ${fileEnd - offset}, which are left`);
  if (filled - at < size) return size;
  const got = crc32(bytes.subarray(at + 8, at + size), salt.seed);
  const want = view.getUint32(4, true);
  if (got !== want) return fault(`checksum ${hex(got)}`, hex(want));
  const kind = view.getUint32(20, true);
  const flushStart = view.getUint32(12, true);
  if ((kind !== RecordKind.data && kind !== RecordKind.marker) || flushStart > offset) {
    return fault(`record kind ${kind} of a flush at ${flushStart}`, `kind ${RecordKind.data} or ${RecordKind.marker} at most at ${offset}`);
  }
  const term = view.getUint32(32, true) + view.getUint32(36, true) * high;
  const body = bytes.subarray(at + frameBytes, at + frameBytes + length);
  return { offset, end: offset + size, flushStart, shard, kind, index, term, body };
}

export const isFault = (found: Frame | FrameFault): found is FrameFault => "got" in found;

const hex = (value: number) => value.toString(16).padStart(8, "0");
