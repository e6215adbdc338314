/** Name of the cluster that a data folder belongs to: drawn once, then for ever. */
import fs from "node:fs";
import { join } from "node:path";
import { HopError } from "#core/base";

const fileName = "cluster-id";
const form = /^hop_[0-9a-f]{16}$/;

/** The folder's cluster id; a new folder gets one. Throws `HopError` STORE_UNAVAILABLE or HASH_MISMATCH. */
export function clusterIdOf(dataDir: string): string {
  const path = join(dataDir, fileName);
  const found = read(path);
  if (found === undefined) return create(dataDir, path);
  if (form.test(found)) return found;
  throw new HopError(
    "HASH_MISMATCH",
    `Cannot read ${path}: it holds ${JSON.stringify(found.slice(0, 40))}, want hop_ and 16 hex digits; restore it from a copy`,
  );
}

function read(path: string): string | undefined {
  try {
    return fs.readFileSync(path, "utf8").trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw new HopError("STORE_UNAVAILABLE", `Cannot read ${path}: ${(error as Error).message}`, { cause: error });
  }
}

function create(dataDir: string, path: string): string {
  const id = `hop_${Buffer.from(crypto.getRandomValues(new Uint8Array(8))).toString("hex")}`;
  const temporary = `${path}.new`;
  try {
    writeSynced(temporary, `${id}\n`);
    fs.renameSync(temporary, path);
    const folder = fs.openSync(dataDir, "r");
    fs.fsyncSync(folder);
    fs.closeSync(folder);
  } catch (error) {
    throw new HopError("STORE_UNAVAILABLE", `Cannot write ${path}: ${(error as Error).message}`, { cause: error });
  }
  return id;
}

function writeSynced(path: string, text: string): void {
  const fd = fs.openSync(path, "w", 0o600);
  try {
    fs.writeSync(fd, text);
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
}
