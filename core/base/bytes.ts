/** Byte helpers that need no runtime library. */
export const noBytes = new Uint8Array(0);

export function bytesEqual(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

const pairs = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

export function toHex(bytes: Uint8Array): string {
  let out = "";
  for (let i = 0; i < bytes.length; i++) out += pairs[bytes[i] as number] as string;
  return out;
}

/** Bytes of a hex text, or undefined where it is not one. */
export function fromHex(text: string): Uint8Array | undefined {
  if (text.length % 2 !== 0) return undefined;
  const out = new Uint8Array(text.length / 2);
  for (let i = 0; i < out.length; i++) {
    const high = digitOf(text.charCodeAt(i * 2));
    const low = digitOf(text.charCodeAt(i * 2 + 1));
    if (high < 0 || low < 0) return undefined;
    out[i] = (high << 4) | low;
  }
  return out;
}

/** What a hex digit stands for; below 0 for any other character. */
function digitOf(code: number): number {
  if (code >= 48 && code <= 57) return code - 48;
  const lower = code | 32;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}

/** Writes an unsigned integer below 2^53 as eight big-endian bytes. */
export function putU64(into: Uint8Array, at: number, value: number): void {
  let high = Math.floor(value / 0x100000000);
  let low = value >>> 0;
  for (let i = 7; i >= 4; i--) {
    into[at + i] = low & 255;
    low >>>= 8;
  }
  for (let i = 3; i >= 0; i--) {
    into[at + i] = high & 255;
    high >>>= 8;
  }
}
