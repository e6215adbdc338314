/**
 * One column of one row group as Parquet has it: a page of values, for texts a dictionary page before it.
 *
 * Numbers, flags, bytes and hashes are in plain encoding, texts in a dictionary with runs: what every
 * reader knows. Pages are compressed with zstd but for hashes, which have nothing to gain.
 */
import { ThriftWriter } from "./thrift-writer.ts";

export const encodings = { plain: 0, rle: 3, dictionary: 8 } as const;
export const codecs = { none: 0, zstd: 6 } as const;
const dataPage = 0;
const dictionaryPage = 2;
/** Two thirds of the time of level 3, for one byte in a hundred more. */
const zstdLevel = 1;

export interface ColumnChunk {
  /** Page headers and pages, in order. */
  readonly parts: readonly Uint8Array[];
  readonly bytes: number;
  /** As `bytes`, were nothing compressed. */
  readonly plainBytes: number;
  readonly encodings: readonly number[];
  readonly codec: number;
  /** Where the page of values begins, its header included; the dictionary is at 0 where there is one. */
  readonly valuesAt: number;
  readonly hasDictionary: boolean;
  /** Where the last page's own bytes begin, behind its header. */
  readonly bodyAt: number;
  /** Of a column whose values have an order, in plain encoding. */
  readonly range: { readonly min: Uint8Array; readonly max: Uint8Array } | undefined;
}

interface Page {
  readonly header: Uint8Array;
  readonly body: Uint8Array;
  readonly plainBytes: number;
}

export function numberChunk(values: Float64Array): ColumnChunk {
  const bytes = new Uint8Array(values.length * 8);
  const halves = new Uint32Array(bytes.buffer);
  let min = Number.POSITIVE_INFINITY;
  let max = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < values.length; i++) {
    const value = values[i] as number;
    halves[2 * i] = value >>> 0;
    halves[2 * i + 1] = value / 0x100000000;
    if (value < min) min = value;
    if (value > max) max = value;
  }
  return chunkOf([page(dataPage, values.length, encodings.plain, bytes, codecs.zstd)], codecs.zstd, { min: int64(min), max: int64(max) });
}

export function flagChunk(values: Float64Array): ColumnChunk {
  const bytes = new Uint8Array(Math.ceil(values.length / 8));
  for (let i = 0; i < values.length; i++) if (values[i] !== 0) bytes[i >> 3] = (bytes[i >> 3] as number) | (1 << (i & 7));
  return chunkOf([page(dataPage, values.length, encodings.plain, bytes, codecs.zstd)], codecs.zstd);
}

export function bytesChunk(values: PlainBytes): ColumnChunk {
  return chunkOf([page(dataPage, values.count, encodings.plain, values.taken(), codecs.zstd)], codecs.zstd);
}

export function hashChunk(hashes: Uint8Array): ColumnChunk {
  return chunkOf([page(dataPage, hashes.length / 32, encodings.plain, hashes, codecs.none)], codecs.none);
}

export function textChunk(values: TextDictionary): ColumnChunk {
  const range = values.range();
  const dictionary = page(dictionaryPage, values.words.count, encodings.plain, values.words.taken(), codecs.zstd);
  return chunkOf([dictionary, page(dataPage, values.count, encodings.dictionary, values.runs(), codecs.zstd)], codecs.zstd, range);
}

/** Values in plain encoding: each with its length before it, in four bytes. */
export class PlainBytes {
  count = 0;
  private bytes: Uint8Array;
  private at = 0;

  /** `room`: bytes of all values with their lengths, where that is known; it grows. */
  constructor(room = 1 << 10) {
    this.bytes = new Uint8Array(room);
  }

  /** Takes [from, end) of `source`. */
  add(source: Buffer, from: number, end: number): void {
    const length = end - from;
    const { at } = this;
    this.room(at + 4 + length);
    const { bytes } = this;
    bytes[at] = length;
    bytes[at + 1] = length >>> 8;
    bytes[at + 2] = length >>> 16;
    bytes[at + 3] = length >>> 24;
    source.copy(bytes, at + 4, from, end);
    this.at = at + 4 + length;
    this.count++;
  }

  taken(): Uint8Array {
    return this.bytes.subarray(0, this.at);
  }

  private room(end: number): void {
    if (end <= this.bytes.length) return;
    const grown = new Uint8Array(Math.max(end, this.bytes.length * 2));
    grown.set(this.bytes.subarray(0, this.at));
    this.bytes = grown;
  }
}

/** Texts of which few are different, in runs of the same one. */
export class TextDictionary {
  readonly words = new PlainBytes();
  count = 0;
  private readonly numbers = new Map<string, number>();
  private readonly runNumbers: number[] = [];
  private readonly runLengths: number[] = [];
  /** Where the last text is. */
  private source: Uint8Array = new Uint8Array(0);
  private from = 0;
  private end = 0;

  add(source: Buffer, from: number, end: number): void {
    if (this.count++ > 0 && this.isLast(source, from, end)) {
      const run = this.runLengths.length - 1;
      this.runLengths[run] = (this.runLengths[run] as number) + 1;
      return;
    }
    this.source = source;
    this.from = from;
    this.end = end;
    const key = source.toString("latin1", from, end);
    let number = this.numbers.get(key);
    if (number === undefined) {
      number = this.words.count;
      this.numbers.set(key, number);
      this.words.add(source, from, end);
    }
    this.runNumbers.push(number);
    this.runLengths.push(1);
  }

  private isLast(source: Uint8Array, from: number, end: number): boolean {
    if (end - from !== this.end - this.from) return false;
    for (let i = end - from - 1; i >= 0; i--) if (source[from + i] !== this.source[this.from + i]) return false;
    return true;
  }

  /** Numbers of words: their width in bits, then runs. */
  runs(): Uint8Array {
    const width = Math.max(1, 32 - Math.clz32(this.words.count - 1));
    const out = new Uint8Array(1 + this.runNumbers.length * 7);
    let at = 0;
    out[at++] = width;
    for (const [i, number] of this.runNumbers.entries()) {
      let head = (this.runLengths[i] as number) << 1;
      for (; head > 127; head >>>= 7) out[at++] = (head & 127) | 128;
      out[at++] = head;
      for (let bits = 0; bits < width; bits += 8) out[at++] = number >>> bits;
    }
    return out.subarray(0, at);
  }

  range(): { min: Uint8Array; max: Uint8Array } {
    // In latin1, one character a byte, texts are in the order of their bytes.
    let min: string | undefined;
    let max = "";
    for (const key of this.numbers.keys()) {
      if (min === undefined || key < min) min = key;
      if (key > max) max = key;
    }
    return { min: Buffer.from(min ?? "", "latin1"), max: Buffer.from(max, "latin1") };
  }
}

function chunkOf(pages: readonly Page[], codec: number, range?: ColumnChunk["range"]): ColumnChunk {
  const size = (some: readonly Page[]) => some.reduce((sum, { header, body }) => sum + header.length + body.length, 0);
  const values = pages.at(-1) as Page;
  const bytes = size(pages);
  return {
    parts: pages.flatMap(({ header, body }) => [header, body]),
    bytes,
    plainBytes: pages.reduce((sum, { header, plainBytes }) => sum + header.length + plainBytes, 0),
    encodings: pages.length === 1 ? [encodings.plain] : [encodings.plain, encodings.dictionary],
    codec,
    valuesAt: size(pages.slice(0, -1)),
    hasDictionary: pages.length > 1,
    bodyAt: bytes - values.body.length,
    range,
  };
}

function page(type: number, count: number, encoding: number, plain: Uint8Array, codec: number): Page {
  const body = codec === codecs.zstd ? Bun.zstdCompressSync(plain as Uint8Array<ArrayBuffer>, { level: zstdLevel }) : plain;
  const thrift = new ThriftWriter();
  thrift.i32(1, type);
  thrift.i32(2, plain.length);
  thrift.i32(3, body.length);
  const isData = type === dataPage;
  thrift.struct(isData ? 5 : 7, () => {
    thrift.i32(1, count);
    thrift.i32(2, encoding);
    if (!isData) return;
    // Levels of optional and repeated values: there are none, and yet their encoding is named.
    thrift.i32(3, encodings.rle);
    thrift.i32(4, encodings.rle);
  });
  return { header: thrift.finish(), body, plainBytes: plain.length };
}

function int64(value: number): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigInt64(0, BigInt(value), true);
  return bytes;
}
