/**
 * Where the records of one segment are: for each shard its first and last index, and an offset
 * about every 16 KiB.
 *
 * Kept in memory while the segment grows, and in a sidecar file (`wal-….idx`) when it is closed,
 * so that opening a log does not scan old segments. The sidecar is a hint with a checksum of its
 * own: a missing or invalid one is rebuilt.
 */
import fs from "node:fs";
import { crc32 } from "node:zlib";
import type { Salt } from "./record-frame.ts";

/** Distance of two entries of a shard, and so about what a read of one record loads. */
export const strideBytes = 16 << 10;

const magic = 0x01584449;

/** Frames that begin in [from, end). */
export interface Stretch {
  readonly from: number;
  /** Of the shard's record at `from`. */
  readonly index: number;
  end: number;
}

interface Span {
  first: number;
  last: number;
  readonly indexes: number[];
  readonly offsets: number[];
}

export class SegmentIndex {
  readonly spans = new Map<number, Span>();

  note(shard: number, index: number, offset: number): void {
    const span = this.spans.get(shard);
    if (span === undefined) {
      this.spans.set(shard, { first: index, last: index, indexes: [index], offsets: [offset] });
      return;
    }
    span.last = index;
    if (offset - (span.offsets[span.offsets.length - 1] as number) < strideBytes) return;
    span.indexes.push(index);
    span.offsets.push(offset);
  }

  /** A record of the shard at or before `index`, less than a stride of its own records away; undefined = not here. */
  locate(shard: number, index: number): { readonly index: number; readonly offset: number } | undefined {
    const span = this.spans.get(shard);
    if (span === undefined || index < span.first || index > span.last) return undefined;
    let low = 0;
    let high = span.indexes.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((span.indexes[middle] as number) <= index) low = middle;
      else high = middle - 1;
    }
    return { index: span.indexes[low] as number, offset: span.offsets[low] as number };
  }

  /**
   * Ranges in which records of the shard from `index` on begin. Near ones are one: a shard that
   * has little here is found without reading all that lies between.
   */
  stretches(shard: number, index: number): Stretch[] {
    const span = this.spans.get(shard);
    if (span === undefined || index > span.last) return [];
    const out: Stretch[] = [];
    const from = this.locate(shard, Math.max(index, span.first))?.offset ?? 0;
    for (const [i, offset] of span.offsets.entries()) {
      if (offset < from) continue;
      const last = out.at(-1);
      if (last !== undefined && offset <= last.end + strideBytes * 4) last.end = offset + strideBytes;
      else out.push({ from: offset, index: span.indexes[i] as number, end: offset + strideBytes });
    }
    return out;
  }

  /** The sidecar's bytes, for a segment whose records end at `end`. */
  encode(salt: Salt, end: number): Uint8Array {
    const words: number[] = [magic, salt.seed, salt.mark, end, this.spans.size];
    for (const [shard, span] of this.spans) {
      words.push(shard, ...wide(span.first), ...wide(span.last), span.offsets.length);
      for (const [i, offset] of span.offsets.entries()) words.push(...wide(span.indexes[i] as number), offset);
    }
    const bytes = new Uint8Array(words.length * 4 + 4);
    const view = new DataView(bytes.buffer);
    for (const [i, word] of words.entries()) view.setUint32(i * 4, word, true);
    view.setUint32(words.length * 4, crc32(bytes.subarray(0, words.length * 4)), true);
    return bytes;
  }

  /** Reads a sidecar; undefined when it is not a whole one of this segment. */
  static decode(bytes: Uint8Array, salt: Salt): { index: SegmentIndex; end: number } | undefined {
    if (bytes.length < 24 || bytes.length % 4 !== 0) return undefined;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const last = bytes.length - 4;
    if (view.getUint32(last, true) !== crc32(bytes.subarray(0, last))) return undefined;
    let word = 0;
    const next = () => view.getUint32(word++ * 4, true);
    const nextWide = () => next() + next() * 0x100000000;
    if (next() !== magic || next() !== salt.seed || next() !== salt.mark) return undefined;
    const end = next();
    const index = new SegmentIndex();
    for (let shards = next(); shards > 0; shards--) {
      const shard = next();
      const span: Span = { first: nextWide(), last: nextWide(), indexes: [], offsets: [] };
      for (let entries = next(); entries > 0; entries--) {
        span.indexes.push(nextWide());
        span.offsets.push(next());
      }
      index.spans.set(shard, span);
    }
    return { index, end };
  }
}

const wide = (value: number): [number, number] => [value >>> 0, Math.floor(value / 0x100000000)];

export const sidecarOf = (segmentPath: string) => segmentPath.replace(/\.log$/, ".idx");

export function readSidecar(segmentPath: string, salt: Salt): { index: SegmentIndex; end: number } | undefined {
  try {
    return SegmentIndex.decode(fs.readFileSync(sidecarOf(segmentPath)), salt);
  } catch {
    // Whatever is wrong with a hint, the segment itself tells.
    return undefined;
  }
}

/** Writes the sidecar; a failure only costs a scan later. */
export function writeSidecar(segmentPath: string, salt: Salt, index: SegmentIndex, end: number): void {
  const path = sidecarOf(segmentPath);
  try {
    fs.writeFileSync(`${path}.tmp`, index.encode(salt, end));
    fs.renameSync(`${path}.tmp`, path);
  } catch {
    fs.rmSync(`${path}.tmp`, { force: true });
  }
}
