/** SHA-256 for Core's checks. */
import type { Hasher } from "#core/base";

export const hasher: Hasher = {
  sha256: (data, out) => {
    Bun.SHA256.hash(data, out);
  },
};

export function sha256(data: Uint8Array): Uint8Array {
  const out = new Uint8Array(32);
  Bun.SHA256.hash(data, out);
  return out;
}
