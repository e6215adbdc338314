/**
 * Files that lie in the executable, written to a folder of the cache so that the system can load
 * them.
 *
 * A folder is named by the hash of what it holds, so versions do not mix. A file appears under its
 * name only with all its bytes and after its SHA-256 was checked (written aside, then renamed), so
 * any number of processes may extract at once. A later start compares a stamp (size, times, inode)
 * and hashes again only where that differs.
 */
import { constants } from "node:fs";
import { access, chmod, mkdir, open, readFile, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";

export interface Asset {
  /** Path in its folder. */
  readonly name: string;
  /** Hex SHA-256 of the file, not of its compressed form. */
  readonly sha256: string;
  readonly bytes: number;
  readonly compression: "zstd" | "none";
  readonly executable: boolean;
  /** Where the executable holds it. */
  readonly file: string;
}

export interface AssetFolder {
  readonly name: string;
  /** Hex SHA-256 over the names and hashes of its files. */
  readonly sha256: string;
  readonly files: readonly Asset[];
}

/** The cache can't be used; the message says what to do. */
export class AssetError extends Error {
  override name = "AssetError";
}

const stampName = ".verified.json";
type Stamp = Readonly<Record<string, string>>;

/** Makes all files of `folder` present and right below `cache`. Returns the folder's path. */
export async function extractFolder(cache: string, folder: AssetFolder): Promise<string> {
  const path = join(cache, `${folder.name}-${folder.sha256.slice(0, 16)}`);
  try {
    if (!(await isVerified(path, folder))) await extract(path, folder);
  } catch (error) {
    throw error instanceof AssetError ? error : unusable(path, error);
  }
  await checkExecutable(path, folder);
  return path;
}

function unusable(path: string, cause: unknown): AssetError {
  const code = (cause as NodeJS.ErrnoException).code ?? "";
  const full = code === "ENOSPC" || code === "EDQUOT";
  const advice = full ? "free some space there, or name another folder in HOP_CACHE" : "name a folder that can be written to in HOP_CACHE";
  return new AssetError(
    `Cannot extract the native parts to ${path}: ${cause instanceof Error ? cause.message : String(cause)}; ${advice}`,
    { cause },
  );
}

async function extract(path: string, folder: AssetFolder): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 });
  const { uid, mode } = await stat(path);
  const ownUid = process.getuid?.() ?? uid;
  if (uid !== ownUid || (mode & 0o022) !== 0) {
    throw new AssetError(
      `Cannot trust the native parts in ${path}: others may write there (owner ${uid}, this is ${ownUid}); remove it, or name another folder in HOP_CACHE`,
    );
  }
  for (const asset of folder.files) if (!(await isRight(join(path, asset.name), asset))) await extractFile(path, asset);
  await writeAside(join(path, stampName), Buffer.from(JSON.stringify(await stampOf(path, folder))), 0o600);
}

async function extractFile(folder: string, asset: Asset): Promise<void> {
  const held = await Bun.file(asset.file).bytes();
  const bytes = asset.compression === "zstd" ? await Bun.zstdDecompress(held) : held;
  const got = hashOf(bytes);
  if (got !== asset.sha256 || bytes.length !== asset.bytes) {
    throw new AssetError(`The executable is damaged: its ${asset.name} has SHA-256 ${got}, want ${asset.sha256}; install it again`);
  }
  const path = join(folder, asset.name);
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await writeAside(path, bytes, asset.executable ? 0o700 : 0o600);
}

/** Whole or not at all: nobody ever sees a part of the file under its name. */
async function writeAside(path: string, bytes: Uint8Array, mode: number): Promise<void> {
  const aside = `${path}.${process.pid}.${crypto.randomUUID().slice(0, 8)}.tmp`;
  try {
    const file = await open(aside, "wx", mode);
    try {
      await file.writeFile(bytes);
      await file.sync();
    } finally {
      await file.close();
    }
    // The mode asked for is less what the umask takes.
    await chmod(aside, mode);
    await rename(aside, path);
  } catch (error) {
    await rm(aside, { force: true });
    throw error;
  }
}

const hashOf = (bytes: Uint8Array) => new Bun.CryptoHasher("sha256").update(bytes).digest("hex");

async function isRight(path: string, asset: Asset): Promise<boolean> {
  const bytes = await readFile(path).catch(ifMissing);
  return bytes !== undefined && bytes.length === asset.bytes && hashOf(bytes) === asset.sha256;
}

async function isVerified(path: string, folder: AssetFolder): Promise<boolean> {
  const text = await readFile(join(path, stampName), "utf8").catch(ifMissing);
  return text !== undefined && text === JSON.stringify(await stampOf(path, folder));
}

/** What a file's metadata says of its bytes, for each file that is there. */
async function stampOf(path: string, folder: AssetFolder): Promise<Stamp> {
  const stamp: Record<string, string> = {};
  for (const { name } of folder.files) {
    const found = await stat(join(path, name)).catch(ifMissing);
    if (found !== undefined) stamp[name] = [found.size, found.mtimeMs, found.ctimeMs, found.ino].join(" ");
  }
  return stamp;
}

function ifMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT") throw error;
}

async function checkExecutable(path: string, folder: AssetFolder): Promise<void> {
  for (const { name } of folder.files.filter((asset) => asset.executable)) {
    try {
      // Says no on a file system that is mounted noexec as well.
      await access(join(path, name), constants.X_OK);
    } catch (cause) {
      throw new AssetError(
        `Cannot run ${join(path, name)}: programs may not run from there (is it mounted noexec?); name another folder in HOP_CACHE`,
        { cause },
      );
    }
  }
}
