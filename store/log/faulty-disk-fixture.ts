/** A real disk with faults that a test switches on. */
import { type DiskError, type LogDisk, realDisk } from "./log-disk.ts";

export class FaultyDisk implements LogDisk {
  isFull = false;
  isBroken = false;
  /** Most bytes that one write takes. */
  takesAtMost = Number.POSITIVE_INFINITY;
  writes = 0;
  /** Writes that it picks wait for `release`. */
  holds: (count: number) => boolean = () => false;
  private readonly held: (() => void)[] = [];
  /** Told of each write before it is made. */
  watch: (count: number, at: number, fd: number) => void = () => {};
  /** Told of each sync before it is made. */
  watchSync: () => void = () => {};

  write(fd: number, bytes: Uint8Array, from: number, count: number, at: number, done: (error: DiskError, count: number) => void): void {
    this.writes++;
    this.watch(count, at, fd);
    const code = this.isBroken ? "EIO" : this.isFull ? "ENOSPC" : undefined;
    if (code !== undefined) setImmediate(() => done(Object.assign(new Error(`${code}: injected`), { code }), 0));
    else {
      const write = () => realDisk.write(fd, bytes, from, Math.min(count, this.takesAtMost), at, done);
      if (this.holds(count)) this.held.push(write);
      else write();
    }
  }

  release(): void {
    this.holds = () => false;
    for (const write of this.held.splice(0)) write();
  }

  sync(fd: number, done: (error: DiskError) => void): void {
    this.watchSync();
    realDisk.sync(fd, done);
  }
}
