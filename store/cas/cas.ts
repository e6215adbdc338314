/**
 * Content-addressed storage: immutable blobs by SHA-256, one file each.
 *
 * A blob is durable, under its final name, when `put` resolves. Each read checks the hash, so a
 * caller gets the bytes that were stored, an error, or the certain knowledge that there are none:
 * a blob that can't be read now is never reported as missing.
 */
import fs from "node:fs";
import { join } from "node:path";
import { bytesEqual, fromHex, HopError, toHex } from "#core/base";
import type { DurableRef } from "#proto";
import { CorruptionError } from "../corruption-error.ts";
import { isNoSpace } from "../log/log-disk.ts";

/** Files worked on at one time: enough for a disk's queue, few enough for memory. */
const activeMax = 8;

export class BlobStore {
  private readonly dir: string;
  private readonly temporaryDir: string;
  private readonly inFlight = new Map<string, Promise<DurableRef>>();
  private readonly waiting: (() => void)[] = [];
  private readonly durableFolders = new Set<string>();
  private active = 0;
  private counter = 0;

  /** Opens the folder and clears what writes that were interrupted left in it. The caller holds the data folder's lock. */
  static open(dir: string): BlobStore {
    const store = new BlobStore(dir);
    try {
      fs.rmSync(store.temporaryDir, { recursive: true, force: true });
      fs.mkdirSync(store.temporaryDir, { recursive: true, mode: 0o700 });
    } catch (error) {
      throw wrapped(`open blob folder ${dir}`, error);
    }
    return store;
  }

  /** For reading only: nothing in the folder is changed, and nothing may be put. */
  static forReading(dir: string): BlobStore {
    return new BlobStore(dir);
  }

  private constructor(dir: string) {
    this.dir = dir;
    this.temporaryDir = join(dir, "incoming");
  }

  /** Stores bytes durably; storing them again is cheap. They may not change before it resolves. Rejects with NO_SPACE or STORE_UNAVAILABLE. */
  async put(bytes: Uint8Array): Promise<DurableRef> {
    const sha256 = await hashOf(bytes);
    const name = toHex(sha256);
    const known = this.inFlight.get(name);
    if (known !== undefined) return known;
    const stored = this.limited(() => this.write(name, sha256, bytes)).finally(() => this.inFlight.delete(name));
    this.inFlight.set(name, stored);
    return stored;
  }

  /** The blob, or undefined when there is none. Rejects with `CorruptionError` or STORE_UNAVAILABLE. */
  find(sha256: Uint8Array): Promise<Uint8Array | undefined> {
    const name = toHex(sha256);
    return this.limited(() => this.readChecked(name, sha256));
  }

  /** The blob. Rejects with BLOB_NOT_FOUND when there is none, else as `find`. */
  async get(sha256: Uint8Array): Promise<Uint8Array> {
    const found = await this.find(sha256);
    if (found === undefined) throw new HopError("BLOB_NOT_FOUND", `Cannot read blob ${toHex(sha256)}: there is no such blob`);
    return found;
  }

  async has(sha256: Uint8Array): Promise<boolean> {
    return (await this.size(sha256)) !== undefined;
  }

  /** Bytes of the blob by its file, unchecked; undefined when there is none. */
  async size(sha256: Uint8Array): Promise<number | undefined> {
    try {
      return (await fs.promises.stat(this.pathOf(toHex(sha256)))).size;
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw wrapped(`look for blob ${toHex(sha256)}`, error);
    }
  }

  /** Hashes of the blobs that are stored, in no order. Rejects with STORE_UNAVAILABLE. */
  async *hashes(): AsyncIterable<Uint8Array> {
    const isPart = (name: string) => /^[0-9a-f]{2}$/.test(name);
    for (const upper of (await this.namesIn(this.dir)).filter(isPart)) {
      for (const lower of (await this.namesIn(join(this.dir, upper))).filter(isPart)) {
        for (const name of await this.namesIn(join(this.dir, upper, lower))) {
          const sha256 = fromHex(name);
          if (sha256?.length === 32) yield sha256;
        }
      }
    }
  }

  private async namesIn(folder: string): Promise<string[]> {
    try {
      return await fs.promises.readdir(folder);
    } catch (error) {
      throw wrapped(`list blob folder ${folder}`, error);
    }
  }

  private async write(name: string, sha256: Uint8Array, bytes: Uint8Array): Promise<DurableRef> {
    const temporary = join(this.temporaryDir, String(++this.counter));
    const ref = { sha256, size: bytes.length };
    try {
      const folder = await this.makeFolder(name);
      // A damaged copy is replaced: whoever stores the bytes has them right.
      if (!(await this.isIntact(name, sha256))) {
        await writeDurably(temporary, bytes);
        await fs.promises.rename(temporary, this.pathOf(name));
      }
      // Also when it was there: a process that died may have renamed it without making the name durable.
      await syncPath(folder);
      return ref;
    } catch (error) {
      await fs.promises.rm(temporary, { force: true }).catch(() => {});
      throw wrapped(`store blob ${name} of ${bytes.length} bytes`, error);
    }
  }

  private async isIntact(name: string, sha256: Uint8Array): Promise<boolean> {
    try {
      return (await this.readChecked(name, sha256)) !== undefined;
    } catch (error) {
      if (error instanceof CorruptionError) return false;
      throw error;
    }
  }

  private async readChecked(name: string, sha256: Uint8Array): Promise<Uint8Array | undefined> {
    const path = this.pathOf(name);
    let bytes: Uint8Array;
    try {
      bytes = await fs.promises.readFile(path);
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw wrapped(`read blob ${name}`, error);
    }
    const got = await hashOf(bytes);
    if (bytesEqual(got, sha256)) return bytes;
    throw new CorruptionError(
      `read blob ${name}`,
      { file: path, offset: 0, got: `SHA-256 ${toHex(got)}`, want: name },
      "restore the file from a copy, or store the bytes again",
    );
  }

  private pathOf(name: string): string {
    return join(this.dir, name.slice(0, 2), name.slice(2, 4), name);
  }

  /** The folder of a blob, durable in its parents: an earlier process may have died before it made it so. */
  private async makeFolder(name: string): Promise<string> {
    const upper = join(this.dir, name.slice(0, 2));
    const folder = join(upper, name.slice(2, 4));
    if (this.durableFolders.has(folder)) return folder;
    await fs.promises.mkdir(folder, { recursive: true, mode: 0o700 });
    await syncPath(upper);
    await syncPath(this.dir);
    this.durableFolders.add(folder);
    return folder;
  }

  private async limited<T>(work: () => Promise<T>): Promise<T> {
    if (this.active >= activeMax) await new Promise<void>((resolve) => this.waiting.push(resolve));
    else this.active++;
    try {
      return await work();
    } finally {
      const next = this.waiting.shift();
      // The place is handed on, not freed: a newcomer does not overtake.
      if (next !== undefined) next();
      else this.active--;
    }
  }
}

/** Off this thread where hashing would hold it up. */
async function hashOf(bytes: Uint8Array): Promise<Uint8Array> {
  if (bytes.length <= 1 << 18) return Bun.SHA256.hash(bytes) as Uint8Array;
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
}

async function writeDurably(path: string, bytes: Uint8Array): Promise<void> {
  const file = await fs.promises.open(path, "w", 0o600);
  try {
    await file.writeFile(bytes);
    await file.datasync();
  } finally {
    await file.close();
  }
}

async function syncPath(path: string): Promise<void> {
  const file = await fs.promises.open(path, "r");
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

const isMissing = (error: unknown) => (error as NodeJS.ErrnoException).code === "ENOENT";

function wrapped(attempt: string, error: unknown): HopError {
  if (error instanceof HopError) return error;
  const reason = isNoSpace(error) ? "NO_SPACE" : "STORE_UNAVAILABLE";
  return new HopError(reason, `Cannot ${attempt}: ${(error as Error).message}`, { cause: error });
}
