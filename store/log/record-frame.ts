/**
 * One frame in a segment file: a 40-byte header, the body, zeros up to a multiple of 8.
 *
 * Little-endian: mark u32, crc u32, length u32, flushStart u32, shard u32, kind u32, index u64,
 * term u64. `mark` and the checksum's seed are drawn for each segment, so bytes of another
 * segment never pass. `flushStart` is where in the file the write that carries the frame began:
 * a valid frame whose flush began behind some byte proves that the byte had been acknowledged.
 */
import { crc32 } from "node:zlib";
import { HopError } from "#core/base";
import type { EntryKind } from "./log-store.ts";

export const frameBytes = 40;

/**
 * `data` and `config` are records of a shard's log, `archiveData` and `archiveConfig` those that
 * were brought from elsewhere. `hardState` and `removed` have the commit index as their index and
 * the vote (u64) as their body; `base` has the index and term that it says, and no body. `compacted`
 * says where a log begins that goes on with what it has behind there, and `released` up to where
 * records are of no use any more. `trimmed` has as its index the number of the log's first segment.
 *
 * The others are copies of records whose segment goes: `moved…` of a log, `movedArchive…` of what
 * came from elsewhere, and `movedRetired…` of what a log was before a base.
 *
 * A marker has no body and is fully determined by its place: it says that all before it was acknowledged.
 */
export const FrameKind = {
  data: 1,
  marker: 2,
  config: 3,
  hardState: 4,
  base: 5,
  removed: 6,
  archiveData: 7,
  archiveConfig: 8,
  compacted: 9,
  released: 10,
  trimmed: 11,
  movedData: 12,
  movedConfig: 13,
  movedArchiveData: 14,
  movedArchiveConfig: 15,
  movedRetiredData: 16,
  movedRetiredConfig: 17,
} as const;
export type FrameKind = (typeof FrameKind)[keyof typeof FrameKind];
const kindMax = FrameKind.movedRetiredConfig;

export const isRecord = (kind: number) => kind === FrameKind.data || kind === FrameKind.config;
/** The shard's log ends, and begins behind another base. */
export const isRebase = (kind: number) => kind === FrameKind.base || kind === FrameKind.removed;
export const isArchive = (kind: number) => kind === FrameKind.archiveData || kind === FrameKind.archiveConfig;
export const isMoved = (kind: number) => kind >= FrameKind.movedData && kind <= FrameKind.movedRetiredConfig;

/** Which of a shard's records a frame holds one of; undefined where it holds none. */
export type RecordClass = "log" | "archive" | "movedArchive" | "movedRetired";
export function classOf(kind: number): RecordClass | undefined {
  if (isRecord(kind) || kind === FrameKind.movedData || kind === FrameKind.movedConfig) return "log";
  if (isArchive(kind)) return "archive";
  if (kind === FrameKind.movedArchiveData || kind === FrameKind.movedArchiveConfig) return "movedArchive";
  return kind === FrameKind.movedRetiredData || kind === FrameKind.movedRetiredConfig ? "movedRetired" : undefined;
}

const dataKinds: ReadonlySet<number> = new Set([
  FrameKind.data,
  FrameKind.archiveData,
  FrameKind.movedData,
  FrameKind.movedArchiveData,
  FrameKind.movedRetiredData,
]);
export const entryKindOf = (kind: number): EntryKind => (dataKinds.has(kind) ? "data" : "config");
export const recordKindOf = (kind: EntryKind) => (kind === "data" ? FrameKind.data : FrameKind.config);
export const archiveKindOf = (kind: EntryKind) => (kind === "data" ? FrameKind.archiveData : FrameKind.archiveConfig);

/** A copy's body begins with where the record was at first: the number of its segment and its offset there, u32 each. */
export const originBytes = 8;
export interface Origin {
  readonly segment: number;
  readonly offset: number;
}

/** Where the record of a frame in segment `number` was written at first. */
export function originOf({ kind, offset, body }: Frame, number: number): Origin {
  if (!isMoved(kind)) return { segment: number, offset };
  const view = viewOf(body);
  return { segment: view.getUint32(0, true), offset: view.getUint32(4, true) };
}

/** The bytes of a frame's record. */
export const recordBody = ({ kind, body }: Frame): Uint8Array => (isMoved(kind) ? body.subarray(originBytes) : body);

/** What ties frames to their segment. */
export interface Salt {
  /** Four bytes, none of them zero. */
  readonly mark: number;
  readonly seed: number;
}

/** What a frame says beside its body. */
export interface FrameHead {
  readonly kind: number;
  readonly shard: number;
  readonly index: number;
  readonly term: number;
}

/** A head and where its frame is in the file; `vote` where the kind has one. */
export interface PlacedHead extends FrameHead {
  readonly offset: number;
  readonly end: number;
  readonly vote: number;
}

export interface Frame extends FrameHead {
  readonly offset: number;
  readonly end: number;
  readonly flushStart: number;
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

/** "mark", twice: no byte is zero, so that a half-written marker is far from a whole one. */
const markerWord = 0x6b72616d;
const high = 0x100000000;

export const frameEnd = (at: number, bodyBytes: number) => at + frameBytes + ((bodyBytes + 7) & ~7);
export const viewOf = (bytes: Uint8Array) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

export const voteBytes = 8;

/** Everything that is known when a frame is opened. */
export function writeHead(view: DataView, at: number, head: FrameHead): void {
  view.setUint32(at + 16, head.shard, true);
  view.setUint32(at + 20, head.kind, true);
  setWide(view, at + 24, head.index);
  setWide(view, at + 32, head.term);
}

export function setWide(view: DataView, at: number, value: number): void {
  view.setUint32(at, value >>> 0, true);
  view.setUint32(at + 4, Math.floor(value / high), true);
}

export const wideAt = (view: DataView, at: number) => view.getUint32(at, true) + view.getUint32(at + 4, true) * high;

export function writeMarkerHead(view: DataView, at: number): void {
  view.setUint32(at + 8, 0, true);
  view.setUint32(at + 16, 0, true);
  view.setUint32(at + 20, FrameKind.marker, true);
  for (let word = at + 24; word < at + frameBytes; word += 4) view.setUint32(word, markerWord, true);
}

export const writeLength = (view: DataView, at: number, bodyBytes: number) => view.setUint32(at + 8, bodyBytes, true);

/** Completes the frames in `bytes[0, end)`, which will be written at `fileOffset` in one flush. */
export function sealFrames(bytes: Uint8Array, end: number, salt: Salt, fileOffset: number): void {
  const view = viewOf(bytes);
  for (let at = 0; at < end; ) {
    const to = frameEnd(at, view.getUint32(at + 8, true));
    view.setUint32(at, salt.mark, true);
    view.setUint32(at + 12, fileOffset, true);
    view.setUint32(at + 4, crc32(bytes.subarray(at + 8, to), salt.seed), true);
    at = to;
  }
}

/** Tells the place of each frame in `bytes[0, end)`, which are at `fileOffset`; the head is valid during the call. */
export function eachHead(
  bytes: Uint8Array,
  end: number,
  fileOffset: number,
  each: (head: PlacedHead, bodyAt: number, bodyBytes: number) => void,
): void {
  const view = viewOf(bytes);
  const head = { kind: 0, shard: 0, index: 0, term: 0, offset: 0, end: 0, vote: 0 };
  for (let at = 0; at < end; ) {
    const length = view.getUint32(at + 8, true);
    head.kind = view.getUint32(at + 20, true);
    head.shard = view.getUint32(at + 16, true);
    head.index = wideAt(view, at + 24);
    head.term = wideAt(view, at + 32);
    const to = frameEnd(at, length);
    head.offset = fileOffset + at;
    head.end = fileOffset + to;
    head.vote = length === voteBytes && hasVote(head.kind) ? wideAt(view, at + frameBytes) : 0;
    each(head, at + frameBytes, length);
    at = to;
  }
}

const hasVote = (kind: number) => kind === FrameKind.hardState || kind === FrameKind.removed;

export const placedHead = (frame: Frame): PlacedHead => ({
  ...frame,
  vote: hasVote(frame.kind) && frame.body.length === voteBytes ? wideAt(viewOf(frame.body), 0) : 0,
});

/** The marker that would stand at `offset`. */
export function markerAt(offset: number, salt: Salt): Uint8Array {
  const bytes = new Uint8Array(frameBytes);
  writeMarkerHead(viewOf(bytes), 0);
  sealFrames(bytes, frameBytes, salt, offset);
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
  const index = wideAt(view, 24);
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
  if (kind === 0 || flushStart > offset)
    return fault(`kind ${kind} of a flush at ${flushStart}`, `a kind, and a flush at most at ${offset}`);
  const term = wideAt(view, 32);
  const body = bytes.subarray(at + frameBytes, at + frameBytes + length);
  return { offset, end: offset + size, flushStart, shard, kind, index, term, body };
}

export const isFault = (found: Frame | FrameFault): found is FrameFault => "got" in found;

/** A whole frame of a kind that this version does not know was written by a newer one: it is neither torn nor damaged. */
export function refuseUnknown(frame: Frame, path: string): void {
  if (frame.kind <= kindMax) return;
  throw new HopError(
    "STORE_UNAVAILABLE",
    `Cannot read the log: ${path} has a record of kind ${frame.kind} at byte ${frame.offset}, this version knows up to ${kindMax}; use the newer hop that wrote it (nothing was changed)`,
  );
}

const hex = (value: number) => value.toString(16).padStart(8, "0");
