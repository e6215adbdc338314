/**
 * Points of the key space, and ranges of them: what a shard owns.
 *
 * A key is the first 48 bits of SHA-256 of a partition's name: a safe integer, so that routing
 * needs no big numbers. People see it as the 64-bit number that it begins.
 */
export type Key = number;

export const keyMax: Key = 2 ** 48 - 1;

/** Inclusive. */
export interface KeyRange {
  readonly first: Key;
  readonly last: Key;
}

export const wholeRange: KeyRange = { first: 0, last: keyMax };

/** The first 6 bytes of a digest, big-endian. */
export function keyOfDigest(digest: Uint8Array): Key {
  const high = ((digest[0] as number) << 16) | ((digest[1] as number) << 8) | (digest[2] as number);
  const low = ((digest[3] as number) << 16) | ((digest[4] as number) << 8) | (digest[5] as number);
  return high * 0x1000000 + low;
}

export const inRange = (range: KeyRange, key: Key) => key >= range.first && key <= range.last;

/** Whether some key is in both. */
export const overlaps = (a: KeyRange, b: KeyRange) => inRange(a, b.first) || inRange(b, a.first);

/** The key as the first (`fill` 0) or last (`fill` f) 64-bit number that begins with it. */
export function keyText(key: Key, fill: "0" | "f" = "0"): string {
  return `0x${key.toString(16).padStart(12, "0")}${fill.repeat(4)}`;
}

export const rangeText = (range: KeyRange) => `${keyText(range.first)}–${keyText(range.last, "f")}`;
