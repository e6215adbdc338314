/**
 * Objects in a folder, one file each: for one machine, or for a file system that several share.
 *
 * An object is written under another name, made durable, and then given its name in one step:
 * `link`, which fails where the name is taken, or `rename`. So nobody sees half an object, and of
 * two processes that put one key with `ifAbsent` one wins.
 *
 * Each process has a folder of its own for what it is writing, under a lock. Who opens the store
 * clears those of processes that are gone. A folder that went missing is also how a file system
 * is noticed that was unmounted: its objects are unavailable then, and not missing.
 */
import fs from "node:fs";
import { dirname, join } from "node:path";
import { HopError } from "#core/base";
import { FolderLock } from "../lock.ts";
import { isNoSpace } from "../log/log-disk.ts";
import type { GetRequest, ObjectBackend, ObjectBody, ObjectPage, PutRequest, WriteOutcome } from "./object-backend.ts";
import { AttemptError } from "./object-error.ts";
import { objectsBehind } from "./object-folder.ts";
import type { ListedObject, ObjectHead } from "./object-store.ts";
import type { Attempt } from "./retry.ts";

const incomingName = ".incoming";
const pageCount = 1000;
const lockName = "LOCK";
const ownFolderTriesMax = 100;

export class FileBackend implements ObjectBackend {
  readonly url: string;
  readonly uploads = undefined;
  private readonly dir: string;
  /** What is there as long as the folder that was opened is. */
  private readonly mark: string;
  /** Undefined where it was opened for reading. */
  private readonly own: OwnFolder | undefined;
  private readonly durableFolders = new Set<string>();
  private counter = 0;

  /** Opens a folder, which is made where its parent is there. Throws STORE_UNAVAILABLE. */
  static open(dir: string): FileBackend {
    try {
      if (!fs.existsSync(dir)) fs.mkdirSync(dir, { mode: 0o700 });
      const all = join(dir, incomingName);
      fs.mkdirSync(all, { recursive: true, mode: 0o700 });
      clearLeftovers(all);
      const own = ownFolder(all);
      return new FileBackend(dir, { mark: own.incoming, own });
    } catch (error) {
      throw asAttemptError(error).toHopError(`open object folder ${dir}`, 1);
    }
  }

  /** Opens a folder of which nothing is changed: it may be a copy, or mounted for reading. Throws STORE_UNAVAILABLE where there is none. */
  static openForReading(dir: string): FileBackend {
    const all = join(dir, incomingName);
    if (!fs.existsSync(dir)) throw new AttemptError("unavailable", "there is no such folder").toHopError(`open object folder ${dir}`, 1);
    return new FileBackend(dir, { mark: fs.existsSync(all) ? all : dir, own: undefined });
  }

  private constructor(dir: string, { mark, own }: { readonly mark: string; readonly own: OwnFolder | undefined }) {
    this.url = `file://${dir}`;
    this.dir = dir;
    this.mark = mark;
    this.own = own;
  }

  put({ key, bytes, ifAbsent }: PutRequest): Promise<WriteOutcome> {
    return this.wrapped(async () => {
      const temporary = join(this.writable().incoming, String(++this.counter));
      try {
        await writeDurably(temporary, bytes);
        const folder = await this.makeFolder(key);
        const outcome = ifAbsent ? await linkUnlessTaken(temporary, this.pathOf(key)) : await renameOver(temporary, this.pathOf(key));
        // Also where the name was taken: the process that gave it may have died before it was durable.
        await syncPath(folder);
        return outcome;
      } catch (error) {
        // A folder that somebody removed is made again by the next try.
        this.durableFolders.clear();
        throw error;
      } finally {
        await fs.promises.rm(temporary, { force: true });
      }
    });
  }

  get({ key, range, version }: GetRequest, attempt: Attempt): Promise<ObjectBody | undefined> {
    return this.orMissing(async () => {
      const file = await fs.promises.open(this.pathOf(key), "r");
      try {
        const stat = await file.stat({ bigint: true });
        const found = `${stat.ino}-${stat.mtimeNs}`;
        if (version !== undefined && version !== found) {
          throw new AttemptError("replaced", "another object took its place while it was read");
        }
        const size = Number(stat.size);
        const begin = Math.min(range?.begin ?? 0, size);
        const bytes = new Uint8Array(Math.min(range?.end ?? size, size) - begin);
        attempt.allow(bytes.length);
        return { bytes: bytes.subarray(0, await readInto(file, bytes, begin)), size, version: found };
      } finally {
        await file.close();
      }
    });
  }

  head(key: string): Promise<ObjectHead | undefined> {
    return this.orMissing(async () => ({ bytes: (await fs.promises.stat(this.pathOf(key))).size, sha256: undefined }));
  }

  list({ prefix, after }: { prefix: string; after: string }): Promise<ObjectPage> {
    return this.wrapped(async () => {
      const objects: ListedObject[] = [];
      for await (const object of objectsBehind(this.dir, { prefix, after })) {
        if (objects.length === pageCount) return { objects, isLast: false };
        objects.push(object);
      }
      this.checkThere();
      return { objects, isLast: true };
    });
  }

  delete(keys: readonly string[]): Promise<void> {
    return this.wrapped(async () => {
      this.writable();
      const folders = new Set<string>();
      for (const key of keys) {
        const path = this.pathOf(key);
        try {
          await fs.promises.unlink(path);
          folders.add(dirname(path));
        } catch (error) {
          if (!isMissing(error)) throw error;
          this.checkThere();
        }
      }
      for (const folder of folders) await syncPath(folder);
    });
  }

  async close(): Promise<void> {
    if (this.own === undefined) return;
    fs.rmSync(this.own.incoming, { recursive: true, force: true });
    this.own.lock.release();
  }

  private writable(): OwnFolder {
    if (this.own !== undefined) return this.own;
    throw new AttemptError("forbidden", "it was opened for reading", { advice: "open it for writing" });
  }

  private pathOf(key: string): string {
    return join(this.dir, key);
  }

  /** The folder of a key, durable in its parents. */
  private async makeFolder(key: string): Promise<string> {
    const folder = dirname(this.pathOf(key));
    if (this.durableFolders.has(folder)) return folder;
    await fs.promises.mkdir(folder, { recursive: true, mode: 0o700 });
    for (let at = folder; at.length > this.dir.length; ) {
      at = dirname(at);
      await syncPath(at);
    }
    this.durableFolders.add(folder);
    return folder;
  }

  private async orMissing<T>(read: () => Promise<T>): Promise<T | undefined> {
    return this.wrapped(async () => {
      try {
        return await read();
      } catch (error) {
        if (!isMissing(error)) throw error;
        this.checkThere();
        return undefined;
      }
    });
  }

  /** Nothing can be called missing from a folder that is not the one that was opened. */
  private checkThere(): void {
    if (!fs.existsSync(this.mark)) throw new AttemptError("unavailable", `folder ${this.dir} was removed, or is not mounted any more`);
  }

  private async wrapped<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw asAttemptError(error);
    }
  }
}

interface OwnFolder {
  readonly incoming: string;
  readonly lock: FolderLock;
}

function ownFolder(all: string): OwnFolder {
  for (let tries = 1; ; tries++) {
    const incoming = join(all, crypto.randomUUID());
    const lock = lockedOrUndefined(incoming);
    // Somebody who clears leftovers may have come between making the folder and locking it.
    if (lock !== undefined && fs.existsSync(join(incoming, lockName))) return { incoming, lock };
    lock?.release();
    if (tries === ownFolderTriesMax) throw new AttemptError("unavailable", `others remove what is made in ${all}`);
  }
}

function lockedOrUndefined(folder: string): FolderLock | undefined {
  try {
    return FolderLock.acquire(folder);
  } catch (error) {
    if (error instanceof HopError) return undefined;
    throw error;
  }
}

function clearLeftovers(all: string): void {
  for (const name of fs.readdirSync(all)) {
    const folder = join(all, name);
    const lock = lockedOrUndefined(folder);
    if (lock === undefined) continue;
    fs.rmSync(folder, { recursive: true, force: true });
    lock.release();
  }
}

async function linkUnlessTaken(from: string, to: string): Promise<WriteOutcome> {
  try {
    await fs.promises.link(from, to);
    return "stored";
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "EEXIST") return "exists";
    if (code !== "ENOTSUP" && code !== "EPERM") throw error;
    throw new AttemptError("unsupported", message, { cause: error, advice: "use a file system that has hard links" });
  }
}

async function renameOver(from: string, to: string): Promise<WriteOutcome> {
  await fs.promises.rename(from, to);
  return "stored";
}

async function writeDurably(path: string, bytes: Uint8Array): Promise<void> {
  const file = await fs.promises.open(path, "w", 0o600);
  try {
    await file.writeFile(bytes);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Bytes read: fewer where the file ends before. */
async function readInto(file: fs.promises.FileHandle, bytes: Uint8Array, begin: number): Promise<number> {
  let at = 0;
  while (at < bytes.length) {
    const { bytesRead } = await file.read(bytes, at, bytes.length - at, begin + at);
    if (bytesRead === 0) break;
    at += bytesRead;
  }
  return at;
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

function asAttemptError(error: unknown): AttemptError {
  if (error instanceof AttemptError) return error;
  const { code, message } = error as NodeJS.ErrnoException;
  if (isNoSpace(error)) return new AttemptError("full", message, { cause: error });
  if (code === "EACCES" || code === "EPERM" || code === "EROFS") {
    return new AttemptError("forbidden", message, { cause: error, advice: "let the user of this process write to the folder" });
  }
  return new AttemptError("unavailable", message, { cause: error });
}
