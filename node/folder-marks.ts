/**
 * Marks in a data folder: which folder it is, and which log belongs to it.
 *
 * The first tells placement that a node that asks twice to join is one node. The second keeps a node whose log was lost from
 * going on under its old number: it would have forgotten whom it voted for, and what it promised to keep.
 */
import fs from "node:fs";
import { join } from "node:path";
import { HopError } from "#core/base";

const diskFile = "disk-id";
const logFile = "log-id";

/** Name of the folder, which is held; drawn at the first call. Throws `HopError` STORE_UNAVAILABLE. */
export const diskIdOf = (dataDir: string) =>
  markIn(dataDir, diskFile, () => Buffer.from(crypto.getRandomValues(new Uint8Array(8))).toString("hex"));

/** Throws `HopError` HASH_MISMATCH where a log belongs to the folder, and there is none: one that is opened would be made anew. */
export function requireLogThere(dataDir: string): void {
  const mark = join(dataDir, logFile);
  const dir = join(dataDir, "log");
  if (!fs.existsSync(mark) || (fs.existsSync(dir) && fs.readdirSync(dir).length > 0)) return;
  throw foreignLog(dataDir, "gone", fs.readFileSync(mark, "utf8").trim());
}

/** Throws `HopError` HASH_MISMATCH where another log than `logId` belongs to the folder. */
export function requireOwnLog(dataDir: string, logId: string): void {
  const known = markIn(dataDir, logFile, () => logId);
  if (known === logId) return;
  throw foreignLog(dataDir, logId, known);
}

const foreignLog = (dataDir: string, got: string, want: string) =>
  new HopError(
    "HASH_MISMATCH",
    `Cannot use ${dataDir}: its log is ${got}, want ${want}; a node whose log is gone must not go on under its old number: put the log back, or start with an empty data folder, and it joins as a new node`,
  );

function markIn(dataDir: string, file: string, draw: () => string): string {
  const path = join(dataDir, file);
  try {
    if (fs.existsSync(path)) return fs.readFileSync(path, "utf8").trim();
    const drawn = draw();
    const fd = fs.openSync(`${path}.new`, "w", 0o600);
    fs.writeSync(fd, `${drawn}\n`);
    fs.fsyncSync(fd);
    fs.closeSync(fd);
    fs.renameSync(`${path}.new`, path);
    return drawn;
  } catch (error) {
    throw new HopError("STORE_UNAVAILABLE", `Cannot keep a mark in ${path}: ${(error as Error).message}`, { cause: error });
  }
}
