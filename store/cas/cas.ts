/**
 * Content-addressed storage: immutable blobs by SHA-256, one file each.
 *
 * A blob is durable, under its final name, when `put` resolves. Each read checks the hash, so a
 * caller gets the bytes that were stored, an error, or the certain knowledge that there are none:
 * a blob that can't be read now is never reported as missing.
 *
 * A blob counts as new again whenever it is put or touched: its file's time of change says when
 * that was, and what is new is not removed.
 */
import fs from "node:fs";
import { join } from "node:path";
import { bytesEqual, fromHex, HopError, toHex } from "#core/base";
import type { DurableRef } from "#proto";
import { CorruptionError } from "../corruption-error.ts";
import { hashOf, hashOfFile, isMissing, piecesOf, syncPath, wrapped, writeDurably } from "./blob-file.ts";
import { IncomingBlob } from "./incoming-blob.ts";

/** Files worked on at one time: enough for a disk's queue, few enough for memory. */
const activeMax = 8;

/** A blob as its file shows it. */
export interface KeptBlob {
  readonly sha256: Uint8Array;
  readonly bytes: number;
  /** When it was put or touched last, by the wall clock. */
  readonly touchedMs: number;
}

/** Bytes of a blob from some place on, unchecked: who takes them checks the hash of all. */
export interface OpenBlob {
  readonly size: number;
  readonly pieces: AsyncIterable<Uint8Array>;
  close(): Promise<void>;
}

export class BlobStore {
  private readonly dir: string;
  private readonly temporaryDir: string;
  private readonly inFlight = new Map<string, Promise<DurableRef>>();
  private readonly turns = new Map<string, Promise<void>>();
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
    const write = () => this.inTurn(name, () => this.write(name, sha256, bytes));
    const stored = this.limited(write).finally(() => this.inFlight.delete(name));
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

  /** Takes a blob in pieces, however large it is. */
  receive(sha256: Uint8Array): IncomingBlob {
    const name = toHex(sha256);
    const path = join(this.temporaryDir, String(++this.counter));
    return new IncomingBlob(path, sha256, (incoming) =>
      this.inTurn(name, async () => {
        const folder = await this.makeFolder(name);
        await fs.promises.rename(incoming, this.pathOf(name));
        await syncPath(folder);
      }),
    );
  }

  /** Undefined where there is none. Rejects with STORE_UNAVAILABLE. */
  async open(sha256: Uint8Array, from = 0): Promise<OpenBlob | undefined> {
    try {
      const path = this.pathOf(toHex(sha256));
      const { size } = await fs.promises.stat(path);
      const file = await fs.promises.open(path, "r");
      return { size, pieces: piecesOf(file, from), close: () => file.close() };
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw wrapped(`read blob ${toHex(sha256)}`, error);
    }
  }

  /** Whether the blob is there and has its hash; it is not held in memory. Rejects with STORE_UNAVAILABLE. */
  isIntact(sha256: Uint8Array): Promise<boolean> {
    return this.limited(() => this.isIntactFile(toHex(sha256), sha256));
  }

  /** Makes the blob new again; false where there is none. Rejects with STORE_UNAVAILABLE. */
  touch(sha256: Uint8Array): Promise<boolean> {
    const name = toHex(sha256);
    return this.inTurn(name, async () => {
      try {
        await this.touchFile(name);
        return true;
      } catch (error) {
        if (isMissing(error)) return false;
        throw wrapped(`touch blob ${name}`, error);
      }
    });
  }

  /** Removes the blob unless it was put or touched after `untouchedSinceMs`. Returns its bytes; undefined where it stays. */
  remove(sha256: Uint8Array, untouchedSinceMs: number): Promise<number | undefined> {
    const name = toHex(sha256);
    return this.inTurn(name, async () => {
      try {
        const path = this.pathOf(name);
        const { mtimeMs, size } = await fs.promises.stat(path);
        if (mtimeMs > untouchedSinceMs) return undefined;
        await fs.promises.unlink(path);
        return size;
      } catch (error) {
        if (isMissing(error)) return undefined;
        throw wrapped(`remove blob ${name}`, error);
      }
    });
  }

  /** The blobs that are stored, as `hashes` has them. Rejects with STORE_UNAVAILABLE. */
  async *kept(start?: Uint8Array): AsyncIterable<KeptBlob> {
    for await (const sha256 of this.hashes(start)) {
      try {
        const { mtimeMs, size } = await fs.promises.stat(this.pathOf(toHex(sha256)));
        yield { sha256, bytes: size, touchedMs: mtimeMs };
      } catch (error) {
        if (!isMissing(error)) throw wrapped(`look for blob ${toHex(sha256)}`, error);
      }
    }
  }

  /**
   * Hashes of the blobs that are stored, in no order; those that begin as `start` does come early, so
   * that whoever takes only some of them does not take the same ones each time. Rejects with STORE_UNAVAILABLE.
   */
  async *hashes(start: Uint8Array = new Uint8Array(2)): AsyncIterable<Uint8Array> {
    for (const upper of partsFrom(await this.namesIn(this.dir), start.subarray(0, 1))) {
      for (const lower of partsFrom(await this.namesIn(join(this.dir, upper)), start.subarray(1, 2))) {
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
      if (await this.isIntactFile(name, sha256)) await this.touchFile(name);
      else {
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

  private async isIntactFile(name: string, sha256: Uint8Array): Promise<boolean> {
    try {
      return bytesEqual(await hashOfFile(this.pathOf(name)), sha256);
    } catch (error) {
      if (isMissing(error)) return false;
      throw wrapped(`read blob ${name}`, error);
    }
  }

  private async touchFile(name: string): Promise<void> {
    const now = new Date();
    await fs.promises.utimes(this.pathOf(name), now, now);
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

  /** What changes a blob's file is done one after the other. */
  private inTurn<T>(name: string, work: () => Promise<T>): Promise<T> {
    const done = (this.turns.get(name) ?? Promise.resolve()).then(work);
    const turn = done.then(
      () => {},
      () => {},
    );
    this.turns.set(name, turn);
    void turn.then(() => this.turns.get(name) === turn && this.turns.delete(name));
    return done;
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

/** Names of folders in their order, beginning with that of a byte, and round. */
function partsFrom(names: readonly string[], begin: Uint8Array): string[] {
  const first = toHex(begin);
  const parts = names.filter((name) => /^[0-9a-f]{2}$/.test(name)).sort();
  return [...parts.filter((name) => name >= first), ...parts.filter((name) => name < first)];
}
