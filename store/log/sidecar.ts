/**
 * A closed segment's index in a file beside it (`wal-….idx`), so that opening a log does not scan
 * old segments.
 *
 * The file is a hint with a checksum of its own: one that is missing, invalid or of another
 * format is built again from its segment.
 */
import fs from "node:fs";
import { crc32 } from "node:zlib";
import type { Salt } from "./record-frame.ts";
import { listsOf, SegmentIndex, type ShardPart, type Span } from "./segment-index.ts";

/** "IDX" and the format: raised when words change meaning. */
const magic = 0x03584449;

const flag = { base: 1, state: 2, removed: 4, compacted: 8 } as const;

/** The sidecar's bytes, for a segment whose frames end at `end`. */
export function encodeSidecar(index: SegmentIndex, salt: Salt, end: number): Uint8Array {
  const words: number[] = [magic, salt.seed, salt.mark, end, index.firstSegment, index.parts.size];
  for (const [shard, part] of index.parts) {
    words.push(shard);
    pushPart(words, part);
  }
  const bytes = new Uint8Array(words.length * 4 + 4);
  const view = new DataView(bytes.buffer);
  for (const [i, word] of words.entries()) view.setUint32(i * 4, word, true);
  view.setUint32(words.length * 4, crc32(bytes.subarray(0, words.length * 4)), true);
  return bytes;
}

function pushPart(words: number[], part: ShardPart): void {
  const { firstAppended, base, isRemoved, compacted, released, state, bytes } = part;
  const flags =
    (base === undefined ? 0 : flag.base) |
    (state === undefined ? 0 : flag.state) |
    (isRemoved ? flag.removed : 0) |
    (compacted === undefined ? 0 : flag.compacted);
  words.push(flags, ...wide(firstAppended), ...wide(released), ...wide(bytes));
  if (base !== undefined) words.push(...wide(base.index), ...wide(base.term));
  if (compacted !== undefined) words.push(...wide(compacted.index), ...wide(compacted.term));
  if (state !== undefined) words.push(...wide(state.term), ...wide(state.vote), ...wide(state.commit));
  for (const spans of listsOf(part)) {
    words.push(spans.length);
    for (const span of spans) {
      words.push(...wide(span.first), ...wide(span.last), ...wide(span.term), span.offsets.length);
      for (const [i, offset] of span.offsets.entries()) words.push(...wide(span.indexes[i] as number), offset, span.ends[i] as number);
    }
  }
}

/** Reads a sidecar; undefined when it is not a whole one of this segment. */
export function decodeSidecar(bytes: Uint8Array, salt: Salt): { index: SegmentIndex; end: number } | undefined {
  if (bytes.length < 28 || bytes.length % 4 !== 0) return undefined;
  const words = new Words(bytes);
  const last = bytes.length - 4;
  if (words.at(last) !== crc32(bytes.subarray(0, last))) return undefined;
  if (words.next() !== magic || words.next() !== salt.seed || words.next() !== salt.mark) return undefined;
  const end = words.next();
  const index = new SegmentIndex();
  index.firstSegment = words.next();
  for (let shards = words.next(); shards > 0; shards--) readPart(words, index.part(words.next()));
  return { index, end };
}

function readPart(words: Words, part: ShardPart): void {
  const flags = words.next();
  part.firstAppended = words.wide();
  part.released = words.wide();
  part.bytes = words.wide();
  if ((flags & flag.base) !== 0) part.base = { index: words.wide(), term: words.wide() };
  if ((flags & flag.compacted) !== 0) part.compacted = { index: words.wide(), term: words.wide() };
  if ((flags & flag.state) !== 0) part.state = { term: words.wide(), vote: words.wide(), commit: words.wide() };
  part.isRemoved = (flags & flag.removed) !== 0;
  for (const spans of listsOf(part)) {
    for (let count = words.next(); count > 0; count--) spans.push(readSpan(words));
  }
}

function readSpan(words: Words): Span {
  // Only the audit compares the numbers, and it believes no sidecar.
  const span: Span = { number: -1, first: words.wide(), last: words.wide(), term: words.wide(), indexes: [], offsets: [], ends: [] };
  for (let entries = words.next(); entries > 0; entries--) {
    span.indexes.push(words.wide());
    span.offsets.push(words.next());
    span.ends.push(words.next());
  }
  return span;
}

class Words {
  private readonly view: DataView;
  private offset = 0;

  constructor(bytes: Uint8Array) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  at(offset: number): number {
    return this.view.getUint32(offset, true);
  }

  next(): number {
    this.offset += 4;
    return this.at(this.offset - 4);
  }

  wide(): number {
    return this.next() + this.next() * 0x100000000;
  }
}

const wide = (value: number): [number, number] => [value >>> 0, Math.floor(value / 0x100000000)];

export const sidecarOf = (segmentPath: string) => segmentPath.replace(/\.log$/, ".idx");

export function readSidecar(segmentPath: string, salt: Salt): { index: SegmentIndex; end: number } | undefined {
  try {
    return decodeSidecar(fs.readFileSync(sidecarOf(segmentPath)), salt);
  } catch {
    // Whatever is wrong with a hint, the segment itself tells.
    return undefined;
  }
}

/** Writes the sidecar; a failure only costs a scan later. */
export function writeSidecar(segmentPath: string, salt: Salt, index: SegmentIndex, end: number): void {
  const path = sidecarOf(segmentPath);
  try {
    fs.writeFileSync(`${path}.tmp`, encodeSidecar(index, salt, end));
    fs.renameSync(`${path}.tmp`, path);
  } catch {
    fs.rmSync(`${path}.tmp`, { force: true });
  }
}
