/** The files of a folder as a listing of keys. */
import fs from "node:fs";
import { join } from "node:path";
import type { ListedObject } from "./object-store.ts";

export interface Listing {
  readonly prefix: string;
  readonly after: string;
}

/** Objects under `dir`, in the order of their keys' bytes. What is hidden is no object. */
export async function* objectsBehind(dir: string, listing: Listing, under = ""): AsyncGenerator<ListedObject> {
  for (const { key, isFolder } of await entriesOf(dir, under)) {
    if (isFolder) {
      if (mayHold(key, listing)) yield* objectsBehind(dir, listing, key);
    } else if (key.startsWith(listing.prefix) && key > listing.after) {
      const bytes = await sizeOf(join(dir, key));
      if (bytes !== undefined) yield { key, bytes };
    }
  }
}

/** A folder's key ends with the slash: it comes where the keys in it come. */
async function entriesOf(dir: string, under: string): Promise<{ key: string; isFolder: boolean }[]> {
  let entries: fs.Dirent[];
  try {
    entries = await fs.promises.readdir(join(dir, under), { withFileTypes: true });
  } catch (error) {
    if (under !== "" && isMissing(error)) return [];
    throw error;
  }
  return entries
    .filter(({ name }) => !name.startsWith("."))
    .map((entry) => ({ key: under + entry.name + (entry.isDirectory() ? "/" : ""), isFolder: entry.isDirectory() }))
    .sort((a, b) => (a.key < b.key ? -1 : 1));
}

function mayHold(folder: string, { prefix, after }: Listing): boolean {
  const isWanted = folder.startsWith(prefix) || prefix.startsWith(folder);
  return isWanted && (folder > after || after.startsWith(folder));
}

async function sizeOf(path: string): Promise<number | undefined> {
  try {
    return (await fs.promises.stat(path)).size;
  } catch (error) {
    // Removed since the folder was read.
    if (isMissing(error)) return undefined;
    throw error;
  }
}

const isMissing = (error: unknown) => (error as NodeJS.ErrnoException).code === "ENOENT";
