/**
 * Writes protobuf wire format in place.
 *
 * One writer is reused for ever: a message is encoded where it will be hashed, stored or sent
 * from. Integers are safe numbers: every 64-bit field of the schema stays below 2^53.
 */
export class Writer {
  bytes: Uint8Array;
  /** Where the next byte goes. */
  at = 0;

  constructor(capacity = 1 << 12) {
    this.bytes = new Uint8Array(capacity);
  }

  /** Makes sure that `count` more bytes fit. May replace `bytes`. */
  room(count: number): void {
    if (this.at + count <= this.bytes.length) return;
    const grown = new Uint8Array(Math.max(this.bytes.length * 2, this.at + count));
    grown.set(this.bytes.subarray(0, this.at));
    this.bytes = grown;
  }

  varint(value: number): void {
    this.room(10);
    const b = this.bytes;
    let at = this.at;
    let low = value;
    if (low >= 0x80000000) {
      while (low >= 0x80000000) {
        b[at++] = (low % 128) | 128;
        low = Math.floor(low / 128);
      }
    }
    while (low > 127) {
      b[at++] = (low & 127) | 128;
      low >>>= 7;
    }
    b[at++] = low;
    this.at = at;
  }

  raw(value: Uint8Array): void {
    this.room(value.length);
    this.bytes.set(value, this.at);
    this.at += value.length;
  }

  /** A length-delimited field: tag, length, bytes. */
  field(tag: number, value: Uint8Array): void {
    this.varint(tag);
    this.varint(value.length);
    this.raw(value);
  }

  /** A string field. Short ASCII, the common case, is copied without a call into the engine. */
  text(tag: number, value: string): void {
    this.varint(tag);
    const length = value.length;
    this.room(length * 3 + 10);
    if (length < 128) {
      const b = this.bytes;
      const start = this.at + 1;
      let i = 0;
      for (; i < length; i++) {
        const code = value.charCodeAt(i);
        if (code > 127) break;
        b[start + i] = code;
      }
      if (i === length) {
        b[this.at] = length;
        this.at = start + length;
        return;
      }
    }
    const mark = this.open();
    this.at += utf8Write(value, this.bytes, this.at);
    this.close(mark);
  }

  /** Starts a nested message or other length-delimited run of bytes; `close` it with the mark. */
  begin(tag: number): number {
    this.varint(tag);
    return this.open();
  }

  open(): number {
    this.room(1);
    return this.at++;
  }

  /** Sets the length. One byte was kept for it: a longer run is moved up. */
  close(mark: number): void {
    const length = this.at - mark - 1;
    if (length < 128) {
      this.bytes[mark] = length;
      return;
    }
    const extra = length < 16384 ? 1 : length < 2097152 ? 2 : length < 268435456 ? 3 : 4;
    this.room(extra);
    this.bytes.copyWithin(mark + 1 + extra, mark + 1, this.at);
    const end = this.at + extra;
    this.at = mark;
    this.varint(length);
    this.at = end;
  }

  /** A copy of what was written; the writer starts over. */
  finish(): Uint8Array {
    const out = this.bytes.slice(0, this.at);
    this.at = 0;
    return out;
  }
}

/** Writes `text` as UTF-8 at `at` (lone surrogates become U+FFFD); returns the byte count. */
function utf8Write(text: string, into: Uint8Array, at: number): number {
  let to = at;
  for (let i = 0; i < text.length; i++) {
    let code = text.charCodeAt(i);
    if (code >= 0xd800 && code <= 0xdfff) {
      const next = code < 0xdc00 ? text.charCodeAt(i + 1) : 0;
      if (next >= 0xdc00 && next <= 0xdfff) {
        code = 0x10000 + ((code - 0xd800) << 10) + (next - 0xdc00);
        i++;
      } else code = 0xfffd;
    }
    if (code < 0x80) into[to++] = code;
    else if (code < 0x800) {
      into[to++] = 0xc0 | (code >> 6);
      into[to++] = 0x80 | (code & 63);
    } else if (code < 0x10000) {
      into[to++] = 0xe0 | (code >> 12);
      into[to++] = 0x80 | ((code >> 6) & 63);
      into[to++] = 0x80 | (code & 63);
    } else {
      into[to++] = 0xf0 | (code >> 18);
      into[to++] = 0x80 | ((code >> 12) & 63);
      into[to++] = 0x80 | ((code >> 6) & 63);
      into[to++] = 0x80 | (code & 63);
    }
  }
  return to - at;
}
