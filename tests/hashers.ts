/** The `Hasher` port as production has it, and an independent one as the oracle. */
import { sha256 } from "@noble/hashes/sha2.js";
import type { Hasher } from "#core/base";

export const bunHasher: Hasher = {
  sha256(data, out) {
    Bun.SHA256.hash(data, out);
  },
};

export const nobleHasher: Hasher = {
  sha256(data, out) {
    out.set(sha256(data));
  },
};

/** SHA-256 in memory of its own. */
export function digest(data: Uint8Array, hasher: Hasher = bunHasher): Uint8Array {
  const out = new Uint8Array(32);
  hasher.sha256(data, out);
  return out;
}
