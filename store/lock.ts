/**
 * One data folder, one process: an advisory lock that the kernel takes back from a process that
 * dies, whatever it dies of.
 *
 * The lock file stays: removing it would let two processes lock two files of one name.
 */
import { dlopen, FFIType } from "bun:ffi";
import fs from "node:fs";
import { join } from "node:path";
import { HopError } from "#core/base";

const lockName = "LOCK";
const exclusiveNow = 2 | 4;

type Flock = (fd: number, operation: number) => number;

export class FolderLock {
  private fd: number | undefined;

  private constructor(fd: number) {
    this.fd = fd;
  }

  /** Locks `dir`, which is made if need be. Throws `HopError` STORE_UNAVAILABLE naming the process that holds it. */
  static acquire(dir: string): FolderLock {
    const path = join(dir, lockName);
    const fd = openLockFile(dir, path);
    if (flock()(fd, exclusiveNow) !== 0) {
      const holder = fs.readFileSync(fd, "latin1").trim();
      fs.closeSync(fd);
      const who = /^\d+$/.test(holder) ? `process ${holder}` : "another process";
      throw new HopError("STORE_UNAVAILABLE", `Cannot open data folder ${dir}: ${who} uses it; stop that one or choose another folder`);
    }
    fs.ftruncateSync(fd);
    fs.writeSync(fd, `${process.pid}\n`, 0);
    return new FolderLock(fd);
  }

  /** Runs `open` under the lock, which is given back when `open` fails. */
  static async hold<T>(dir: string, open: (lock: FolderLock) => Promise<T>): Promise<T> {
    const lock = FolderLock.acquire(dir);
    try {
      return await open(lock);
    } catch (error) {
      lock.release();
      throw error;
    }
  }

  release(): void {
    if (this.fd === undefined) return;
    fs.closeSync(this.fd);
    this.fd = undefined;
  }
}

function openLockFile(dir: string, path: string): number {
  try {
    fs.mkdirSync(dir, { recursive: true, mode: 0o700 });
    return fs.openSync(path, fs.constants.O_RDWR | fs.constants.O_CREAT, 0o600);
  } catch (error) {
    throw new HopError("STORE_UNAVAILABLE", `Cannot open data folder ${dir}: ${(error as Error).message}`, { cause: error });
  }
}

let loaded: Flock | undefined;

function flock(): Flock {
  loaded ??= loadFlock();
  return loaded;
}

/** By the names the C library has: glibc, musl, macOS. */
function loadFlock(): Flock {
  const causes: string[] = [];
  for (const name of process.platform === "darwin" ? ["libSystem.B.dylib"] : ["libc.so.6", "libc.so"]) {
    try {
      return dlopen(name, { flock: { args: [FFIType.i32, FFIType.i32], returns: FFIType.i32 } }).symbols.flock;
    } catch (error) {
      causes.push((error as Error).message);
    }
  }
  throw new HopError("STORE_UNAVAILABLE", `Cannot lock the data folder: the C library was not found (${causes.join("; ")})`);
}
