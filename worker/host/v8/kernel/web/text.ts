/** `TextEncoder`, `TextDecoder`, `atob` and `btoa`, which V8 does not bring. Source: WHATWG Encoding and Infra. */

export class TextEncoder {
  get encoding(): string {
    return "utf-8";
  }

  encode(input: unknown = ""): Uint8Array {
    const text = String(input);
    const bytes = new Uint8Array(text.length * 3);
    return bytes.slice(0, this.encodeInto(text, bytes).written);
  }

  encodeInto(text: string, bytes: Uint8Array): { read: number; written: number } {
    let read = 0;
    let written = 0;
    while (read < text.length) {
      const point = text.codePointAt(read)!;
      // A lone surrogate becomes the replacement character.
      const scalar = point >= 0xd800 && point < 0xe000 ? 0xfffd : point;
      const size = scalar < 0x80 ? 1 : scalar < 0x800 ? 2 : scalar < 0x10000 ? 3 : 4;
      if (written + size > bytes.length) break;
      writeScalar(bytes, written, scalar, size);
      written += size;
      read += point > 0xffff ? 2 : 1;
    }
    return { read, written };
  }
}

function writeScalar(bytes: Uint8Array, at: number, scalar: number, size: number): void {
  if (size === 1) {
    bytes[at] = scalar;
    return;
  }
  for (let i = size - 1; i > 0; i--) bytes[at + i] = 0x80 | ((scalar >> (6 * (size - 1 - i))) & 0x3f);
  bytes[at] = ((0xf00 >> size) & 0xff & ~(0xff >> (size + 1))) | (scalar >> (6 * (size - 1)));
}

const labels = new Set(["utf-8", "utf8", "unicode-1-1-utf-8", "unicode11utf8", "unicode20utf8", "x-unicode20utf8"]);

export class TextDecoder {
  readonly fatal: boolean;
  readonly ignoreBOM: boolean;
  /** Bytes of a character that the next part completes. */
  #kept = new Uint8Array(0);
  #begun = false;

  constructor(label = "utf-8", options: { fatal?: boolean; ignoreBOM?: boolean } = {}) {
    if (!labels.has(String(label).trim().toLowerCase())) throw new RangeError(`TextDecoder knows utf-8 only, got "${label}"`);
    this.fatal = options.fatal === true;
    this.ignoreBOM = options.ignoreBOM === true;
  }

  get encoding(): string {
    return "utf-8";
  }

  decode(input: ArrayBuffer | ArrayBufferView = new Uint8Array(0), options: { stream?: boolean } = {}): string {
    const part = ArrayBuffer.isView(input) ? new Uint8Array(input.buffer, input.byteOffset, input.byteLength) : new Uint8Array(input);
    const bytes = new Uint8Array(this.#kept.length + part.length);
    bytes.set(this.#kept);
    bytes.set(part, this.#kept.length);
    const end = options.stream === true ? wholeEnd(bytes) : bytes.length;
    this.#kept = bytes.slice(end);
    let text = decodeUtf8(bytes.subarray(0, end), this.fatal);
    if (!this.#begun && !this.ignoreBOM && text.startsWith("\ufeff")) text = text.slice(1);
    this.#begun = options.stream === true && (this.#begun || end > 0);
    return text;
  }
}

/** Where a character begins that `bytes` cuts off; else their end. */
function wholeEnd(bytes: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back]!;
    if ((byte & 0xc0) === 0x80) continue;
    const size = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return size > back ? bytes.length - back : bytes.length;
  }
  return bytes.length;
}

function decodeUtf8(bytes: Uint8Array, fatal: boolean): string {
  let text = "";
  const units: number[] = [];
  const put = (scalar: number) => {
    if (scalar > 0xffff) units.push(0xd800 + ((scalar - 0x10000) >> 10), 0xdc00 + ((scalar - 0x10000) & 0x3ff));
    else units.push(scalar);
    if (units.length < 4096) return;
    text += String.fromCharCode(...units);
    units.length = 0;
  };
  for (let at = 0; at < bytes.length; ) {
    const [scalar, size] = readScalar(bytes, at);
    if (scalar < 0 && fatal) throw new TypeError("The bytes are not valid UTF-8");
    put(scalar < 0 ? 0xfffd : scalar);
    at += size;
  }
  return text + String.fromCharCode(...units);
}

/** A scalar value and its size; -1 and the size of the part that could have begun one. */
function readScalar(bytes: Uint8Array, at: number): readonly [scalar: number, size: number] {
  const first = bytes[at]!;
  if (first < 0x80) return [first, 1];
  if (first < 0xc2 || first > 0xf4) return [-1, 1];
  const size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  let scalar = first & (0x7f >> size);
  for (let i = 1; i < size; i++) {
    const byte = bytes[at + i];
    const low = i === 1 && first === 0xe0 ? 0xa0 : i === 1 && first === 0xf0 ? 0x90 : 0x80;
    const high = i === 1 && first === 0xed ? 0x9f : i === 1 && first === 0xf4 ? 0x8f : 0xbf;
    if (byte === undefined || byte < low || byte > high) return [-1, i];
    scalar = (scalar << 6) | (byte & 0x3f);
  }
  return [scalar, size];
}

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

export function btoa(input: unknown): string {
  const text = String(input);
  let out = "";
  for (let at = 0; at < text.length; at += 3) {
    const codes = [0, 1, 2].map((i) => (at + i < text.length ? text.charCodeAt(at + i) : 0));
    if (codes.some((code) => code > 0xff)) throw new RangeError("btoa() takes characters up to U+00FF only");
    const word = (codes[0]! << 16) | (codes[1]! << 8) | codes[2]!;
    const size = Math.min(3, text.length - at);
    for (let i = 0; i < 4; i++) out += i <= size ? alphabet[(word >> (18 - 6 * i)) & 63] : "=";
  }
  return out;
}

export function atob(input: unknown): string {
  let text = String(input).replace(/[\t\n\f\r ]/g, "");
  if (text.length % 4 === 0) text = text.replace(/={1,2}$/, "");
  if (text.length % 4 === 1 || /[^A-Za-z0-9+/]/.test(text)) throw new RangeError("atob() takes base64 only");
  let out = "";
  for (let at = 0; at < text.length; at += 4) {
    let word = 0;
    const size = Math.min(4, text.length - at);
    for (let i = 0; i < 4; i++) word = (word << 6) | (i < size ? alphabet.indexOf(text[at + i]!) : 0);
    for (let i = 0; i < size - 1; i++) out += String.fromCharCode((word >> (16 - 8 * i)) & 0xff);
  }
  return out;
}
