/**
 * The two calls that make log bytes durable, as a port: tests put faults here.
 *
 * Files are opened O_DSYNC, so a write that returns is on the disk. A write may be short; the
 * caller goes on with the rest.
 */
import fs from "node:fs";

export type DiskError = NodeJS.ErrnoException | null;

export interface LogDisk {
  /** Writes `count` bytes of `bytes` from `from` at file position `at`; `done` gets the bytes taken. */
  write(fd: number, bytes: Uint8Array, from: number, count: number, at: number, done: (error: DiskError, count: number) => void): void;
  sync(fd: number, done: (error: DiskError) => void): void;
}

export const realDisk: LogDisk = {
  write: (fd, bytes, from, count, at, done) => fs.write(fd, bytes, from, count, at, done),
  sync: (fd, done) => fs.fsync(fd, done),
};

/** No space left, or no quota: the write may be tried again when there is. */
export function isNoSpace(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException).code;
  return code === "ENOSPC" || code === "EDQUOT";
}

/** Writes all of `bytes` at `at`. */
export async function writeAll(disk: LogDisk, fd: number, bytes: Uint8Array, at: number): Promise<void> {
  for (let from = 0; from < bytes.length; ) {
    from += await new Promise<number>((resolve, reject) => {
      disk.write(fd, bytes, from, bytes.length - from, at + from, (error, count) => {
        if (error) reject(error);
        else if (count === 0) reject(Object.assign(new Error("the disk took no bytes"), { code: "ENOSPC" }));
        else resolve(count);
      });
    });
  }
}

export function syncFile(disk: LogDisk, fd: number): Promise<void> {
  return new Promise((resolve, reject) => disk.sync(fd, (error) => (error ? reject(error) : resolve())));
}

/** Makes created and renamed names of a folder durable. */
export async function syncFolder(disk: LogDisk, path: string): Promise<void> {
  const fd = fs.openSync(path, "r");
  try {
    await syncFile(disk, fd);
  } finally {
    fs.closeSync(fd);
  }
}
