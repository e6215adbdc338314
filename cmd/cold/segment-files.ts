/**
 * Segments as files that DuckDB may open: where the objects are files these themselves, else copies in
 * a bounded cache. A file is given out only after all of it had the hash that the manifest names:
 * Parquet itself protects nothing.
 *
 * Each query has a folder of its own with links to the copies that it reads, under a lock, so another
 * query may drop them from the cache meanwhile. Folders of processes that are gone are cleared.
 */
import fs from "node:fs";
import { basename, join } from "node:path";
import { bytesEqual, HopError, toHex } from "#core/base";
import { FolderLock, MissingObjectError, type SegmentEntry } from "#store";
import { CommandError, exit } from "../failure.ts";
import { faultText } from "../input.ts";
import { inParallel } from "../parallel.ts";
import { bytesText } from "../size.ts";
import type { ColdPlace } from "./cold-place.ts";

export interface FilesOptions {
  readonly place: ColdPlace;
  /** Bytes that the cache may keep. */
  readonly cacheBytesMax: number;
  /** Folder below which it lies. */
  readonly cache: string;
  readonly signal: AbortSignal;
  /** Told of each segment that is at hand. */
  readonly each: (bytes: number) => void;
}

const openTriesMax = 10;
const filesAtOnce = 4;

export class SegmentFiles implements Disposable {
  /** Fetched from object storage, not found in the cache. */
  bytesFetched = 0;
  private readonly options: FilesOptions;
  private readonly kept: string;
  private readonly own: string;
  private readonly lock: FolderLock;

  private constructor(options: FilesOptions, kept: string, { own, lock }: OwnFolder) {
    this.options = options;
    this.kept = kept;
    this.own = own;
    this.lock = lock;
  }

  /** Throws `CommandError` where the cache can't be used. */
  static open(options: FilesOptions): SegmentFiles {
    const folder = join(options.cache, "segments");
    try {
      const kept = join(folder, "kept");
      fs.mkdirSync(kept, { recursive: true, mode: 0o700 });
      clearLeftovers(join(folder, "open"));
      return new SegmentFiles(options, kept, ownFolder(join(folder, "open")));
    } catch (error) {
      throw new CommandError(exit.failed, `Cannot use the cache ${folder}: ${faultText(error)}`, {
        next: "name a folder that can be written to in HOP_CACHE",
        cause: error,
      });
    }
  }

  /** Paths in the order of the segments. Rejects with HASH_MISMATCH where one is not what was sealed. */
  async paths(entries: readonly SegmentEntry[]): Promise<string[]> {
    const { place, cacheBytesMax, each, signal } = this.options;
    const bytes = entries.reduce((sum, { summary }) => sum + summary.segmentBytes, 0);
    if (place.folder === undefined && bytes > cacheBytesMax)
      throw new CommandError(
        exit.failed,
        `Cannot fetch ${entries.length} segments: they have ${bytesText(bytes)}, and the cache takes ${bytesText(cacheBytesMax)}`,
        {
          next: "narrow the query with --since, --until, --namespace or --run, or give more room with --cache-size",
        },
      );
    return inParallel(entries, filesAtOnce, async (entry) => {
      signal.throwIfAborted();
      const path = place.folder === undefined ? await this.copyOf(entry) : await this.original(join(place.folder, entry.segment), entry);
      each(entry.summary.segmentBytes);
      return path;
    });
  }

  [Symbol.dispose](): void {
    fs.rmSync(this.own, { recursive: true, force: true });
    this.lock.release();
    if (this.options.place.folder === undefined) this.trim();
  }

  private async original(path: string, entry: SegmentEntry): Promise<string> {
    if (!fs.existsSync(path)) throw new MissingObjectError(this.options.place.objects, entry.segment);
    const problem = await problemOf(path, entry);
    if (problem === undefined) return path;
    throw new HopError("HASH_MISMATCH", `Cannot query ${entry.segment}: it is not what was sealed: ${problem}`);
  }

  private async copyOf(entry: SegmentEntry): Promise<string> {
    const name = basename(entry.segment);
    const [kept, path] = [join(this.kept, name), join(this.own, name)];
    if (linked(kept, path)) {
      if ((await problemOf(path, entry)) === undefined) {
        const now = new Date();
        fs.utimesSync(path, now, now);
        return path;
      }
      fs.rmSync(path);
      fs.rmSync(kept, { force: true });
    }
    await this.download(entry, path);
    linked(path, kept);
    return path;
  }

  private async download({ segment, summary }: SegmentEntry, path: string): Promise<void> {
    const { place, signal } = this.options;
    const aside = `${path}.part`;
    const file = await fs.promises.open(aside, "w", 0o600);
    try {
      const take = async (bytes: Uint8Array, at: number) => {
        await file.write(bytes, 0, bytes.length, at);
        this.bytesFetched += bytes.length;
      };
      if ((await place.objects.download(segment, take, { sha256: summary.segmentSha256, signal })) === undefined)
        throw new MissingObjectError(place.objects, segment);
    } finally {
      await file.close();
    }
    fs.renameSync(aside, path);
  }

  /** Drops what was used longest ago. */
  private trim(): void {
    const files = fs.readdirSync(this.kept).flatMap((name) => {
      const path = join(this.kept, name);
      const stat = fs.statSync(path, { throwIfNoEntry: false });
      return stat === undefined ? [] : [{ path, bytes: stat.size, usedMs: stat.mtimeMs }];
    });
    let bytes = files.reduce((sum, file) => sum + file.bytes, 0);
    for (const file of files.sort((a, b) => a.usedMs - b.usedMs)) {
      if (bytes <= this.options.cacheBytesMax) return;
      fs.rmSync(file.path, { force: true });
      bytes -= file.bytes;
    }
  }
}

/** What is not as the manifest has it, or undefined. */
async function problemOf(path: string, { summary }: SegmentEntry): Promise<string | undefined> {
  const hash = new Bun.CryptoHasher("sha256");
  let bytes = 0;
  for await (const chunk of Bun.file(path).stream()) {
    hash.update(chunk);
    bytes += chunk.length;
  }
  if (bytes !== summary.segmentBytes) return `it has ${bytes} bytes, want ${summary.segmentBytes}`;
  const got = new Uint8Array(hash.digest());
  return bytesEqual(got, summary.segmentSha256) ? undefined : `SHA-256 is ${toHex(got)}, want ${toHex(summary.segmentSha256)}`;
}

/** False where there is nothing to link, or something is there already. */
function linked(from: string, to: string): boolean {
  try {
    fs.linkSync(from, to);
    return true;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT" || code === "EEXIST") return false;
    throw error;
  }
}

interface OwnFolder {
  readonly own: string;
  readonly lock: FolderLock;
}

/** Somebody who clears leftovers may take a new folder for one, until it is locked. */
function ownFolder(all: string): OwnFolder {
  for (let tries = 1; ; tries++) {
    const own = join(all, crypto.randomUUID());
    try {
      const lock = FolderLock.acquire(own);
      if (fs.existsSync(join(own, "LOCK"))) return { own, lock };
      lock.release();
    } catch (error) {
      if (tries === openTriesMax) throw error;
    }
  }
}

function clearLeftovers(all: string): void {
  if (!fs.existsSync(all)) return;
  for (const name of fs.readdirSync(all)) {
    const folder = join(all, name);
    try {
      const lock = FolderLock.acquire(folder);
      fs.rmSync(folder, { recursive: true, force: true });
      lock.release();
    } catch {
      // Its process lives.
    }
  }
}
