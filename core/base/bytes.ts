/** Byte helpers that need no runtime library. */
export const noBytes = new Uint8Array(0);

export function bytesEqual(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

const digits = "0123456789abcdef";

export function toHex(bytes: Uint8Array): string {
  let out = "";
  for (const byte of bytes) out += (digits[byte >> 4] as string) + (digits[byte & 15] as string);
  return out;
}

/** Bytes of a hex text, or undefined where it is not one. */
export function fromHex(text: string): Uint8Array | undefined {
  if (text.length % 2 !== 0 || !/^[0-9a-fA-F]*$/.test(text)) return undefined;
  const out = new Uint8Array(text.length / 2);
  for (let i = 0; i < out.length; i++) out[i] = Number.parseInt(text.slice(i * 2, i * 2 + 2), 16);
  return out;
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
