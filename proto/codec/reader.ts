/**
 * Reads protobuf wire format from bytes that nobody vouches for.
 *
 * Every malformed input ends in a `CodecError`, never in a read past the end, an endless loop or
 * a stack overflow. Byte fields are views into the input: copy what outlives it.
 */
export class CodecError extends Error {
  override name = "CodecError";
}

const depthMax = 32;
/** Up to this many bytes, text is read faster here than by a call into the engine. */
const shortText = 32;

// Named here because Core compiles without the platform's types; it is a pure function.
declare const TextDecoder: new (label: string, options: { ignoreBOM: boolean }) => { decode(bytes: Uint8Array): string };
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** What is no UTF-8 comes out as replacement characters. */
export const utf8Text = (bytes: Uint8Array): string => decoder.decode(bytes);

export class Reader {
  readonly bytes: Uint8Array;
  at: number;
  private depth = 0;

  constructor(bytes: Uint8Array, at = 0) {
    this.bytes = bytes;
    this.at = at;
  }

  /** An unsigned integer below 2^53. */
  varint(): number {
    const byte = this.bytes[this.at++];
    // Most have one byte. The others have a function of their own, as this one becomes a part of each of its many callers.
    return byte !== undefined && byte < 128 ? byte : this.longVarint(byte);
  }

  private longVarint(first: number | undefined): number {
    if (first === undefined) throw new CodecError("Cannot read a number: the message ends inside it");
    const b = this.bytes;
    let byte: number | undefined = first;
    let value = first & 127;
    let scale = 128;
    for (let i = 1; i < 10; i++) {
      byte = b[this.at++];
      if (byte === undefined) break;
      value += (byte & 127) * scale;
      if (byte < 128) {
        if (value > Number.MAX_SAFE_INTEGER) throw new CodecError(`Cannot read a number: ${value} is above 2^53`);
        return value;
      }
      scale *= 128;
    }
    throw new CodecError("Cannot read a number: it has no last byte");
  }

  /** Reads a length and returns where that many bytes end, at most `end`. */
  extent(end: number): number {
    const length = this.varint();
    const to = this.at + length;
    if (to > end) throw new CodecError(`Cannot read a field: it has ${length} bytes, ${end - this.at} are left`);
    return to;
  }

  view(end: number): Uint8Array {
    const to = this.extent(end);
    const out = this.bytes.subarray(this.at, to);
    this.at = to;
    return out;
  }

  text(end: number): string {
    const to = this.extent(end);
    const out = to - this.at <= shortText ? utf8Read(this.bytes, this.at, to) : decoder.decode(this.bytes.subarray(this.at, to));
    this.at = to;
    return out;
  }

  /** Steps over a field of a kind this version does not know. */
  skip(tag: number, end: number): void {
    if (tag < 8) throw new CodecError("Cannot read a field: its number is 0");
    const type = tag & 7;
    if (type === 0) this.varint();
    else if (type === 1) this.at += 8;
    else if (type === 2) this.at = this.extent(end);
    else if (type === 5) this.at += 4;
    else throw new CodecError(`Cannot read a field: wire type ${type} is not known`);
  }

  enter(): void {
    if (++this.depth > depthMax) throw new CodecError(`Cannot read a message: it nests deeper than ${depthMax}`);
  }

  /** Leaves a message that had to end exactly at `end`. */
  leave(end: number): void {
    this.depth--;
    if (this.at !== end) throw new CodecError(`Cannot read a message: it ends ${this.at - end} bytes too far`);
  }
}

/** Malformed sequences become U+FFFD, as the standard decoder has it. */
function utf8Read(b: Uint8Array, from: number, to: number): string {
  let out = "";
  let i = from;
  while (i < to) {
    const lead = b[i++] as number;
    if (lead < 0x80) {
      out += String.fromCharCode(lead);
      continue;
    }
    const count = lead >= 0xf0 && lead <= 0xf4 ? 3 : lead >= 0xe0 && lead < 0xf0 ? 2 : lead >= 0xc2 && lead < 0xe0 ? 1 : 0;
    let code = count === 3 ? lead & 7 : count === 2 ? lead & 15 : lead & 31;
    let read = 0;
    while (read < count && i < to && ((b[i] as number) & 0xc0) === 0x80) {
      const next = b[i] as number;
      const first = read === 0;
      if (first && ((lead === 0xe0 && next < 0xa0) || (lead === 0xed && next > 0x9f))) break;
      if (first && ((lead === 0xf0 && next < 0x90) || (lead === 0xf4 && next > 0x8f))) break;
      code = (code << 6) | (next & 63);
      read++;
      i++;
    }
    if (count === 0 || read < count) out += "\ufffd";
    else out += String.fromCodePoint(code);
  }
  return out;
}
