/** Proof and root files on the disk of whoever audits. */
import { randomUUID } from "node:crypto";
import { rename, rm, writeFile } from "node:fs/promises";
import { parseSavedRoot, type SavedRoot } from "#core/merkle";
import { CommandError, exit } from "../failure.ts";
import { faultText, readText } from "../input.ts";
import { hasher } from "./hasher.ts";

/** Reads a file that `--save-root` wrote. */
export async function readRootFile(path: string): Promise<SavedRoot> {
  const parsed = parseSavedRoot(await readText(path), hasher);
  if (!("problem" in parsed)) return parsed;
  throw new CommandError(exit.failed, `Cannot check against ${path}: it is no root file that can be relied on: ${parsed.problem}`, {
    next: "use the file that `hop audit RUN --save-root FILE` wrote, unchanged",
  });
}

/** Replaces `path` as a whole, so that a crash leaves the old file or the new one. */
export async function writeWhole(path: string, text: string | Uint8Array): Promise<void> {
  const draft = `${path}.${randomUUID()}.tmp`;
  try {
    await writeFile(draft, text, { flush: true });
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw new CommandError(exit.failed, `Cannot write ${path}: ${faultText(error)}`, { cause: error });
  }
}
