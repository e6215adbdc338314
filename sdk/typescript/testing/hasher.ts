/** SHA-256 of the platform, as Core's `Hasher`. */
import { createHash } from "node:crypto";
import type { Hasher } from "#core/base";

export const hasher: Hasher = {
  sha256(data, out) {
    out.set(createHash("sha256").update(data).digest());
  },
};
