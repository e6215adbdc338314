/** SHA-256 as Core is given it. */
import type { Hasher } from "#core/base";

export const hasher: Hasher = {
  sha256(data, out) {
    Bun.SHA256.hash(data, out);
  },
};
