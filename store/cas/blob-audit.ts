/** Hashes every blob of a folder again, the ones that nothing names included, and changes nothing. */
import fs from "node:fs";
import { join, relative, sep } from "node:path";
import { toHex } from "#core/base";
import { CorruptionError } from "../corruption-error.ts";

export interface StoredBlob {
  /** Hex SHA-256. */
  readonly name: string;
  readonly bytes: number;
}

const isHash = /^[0-9a-f]{64}$/;

/** Throws `CorruptionError` at the first file whose bytes do not hash to its name, or that stands where no blob is looked for. */
export function* auditBlobs(dir: string): Generator<StoredBlob> {
  for (const name of fs.existsSync(dir) ? (fs.readdirSync(dir, { recursive: true }) as string[]).sort() : []) {
    const path = join(dir, name);
    const [top] = name.split(sep);
    // Writes that were interrupted are no blobs yet.
    if (top === "incoming" || fs.statSync(path).isDirectory()) continue;
    const hash = name.slice(name.lastIndexOf(sep) + 1);
    const bytes = fs.readFileSync(path);
    const got = toHex(Bun.SHA256.hash(bytes) as Uint8Array);
    if (!isHash.test(hash) || got !== hash)
      throw new CorruptionError(
        `read blob ${hash}`,
        { file: path, offset: 0, got: `SHA-256 ${got}`, want: hash },
        "restore the file from a copy",
      );
    const want = join(hash.slice(0, 2), hash.slice(2, 4), hash);
    if (relative(dir, path) !== want)
      throw new CorruptionError(`read blob ${hash}`, { file: path, offset: 0, got: `the path ${name}`, want }, "move the file back");
    yield { name: hash, bytes: bytes.length };
  }
}
