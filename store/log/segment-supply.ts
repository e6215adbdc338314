/**
 * Keeps zero-filled segment space ahead of the log, off the hot path.
 *
 * The current segment is filled up to its size, and the next one is prepared from when the
 * current one is half full, a megabyte at a time with pauses, so that the log's own writes pass
 * between. Where space is short the next one is smaller. A full disk is tried again until there
 * is space; what was prepared of a segment that did not fit is given back before.
 */
import fs from "node:fs";
import { isNoSpace, type LogDisk } from "./log-disk.ts";
import { beginSegment, createSegment, drawHeader, extendZeros, headerBytes, type OpenSegment } from "./segment-file.ts";

export const retryMs = 250;
/** Between two megabytes of zeros. */
const pauseMs = 5;
const leastBytes = 1 << 20;
/** A segment takes at most this part of the free space: others live on the disk too. */
const freeShare = 1 / 4;

export interface SupplyOptions {
  readonly dir: string;
  readonly disk: LogDisk;
  /** Size of a segment where space is not short. */
  readonly segmentBytes: number;
}

export class SegmentSupply {
  current: OpenSegment;
  /** The last attempt to get space ahead failed for want of it. */
  lacksSpace = false;
  /** The log's own write waits for space: until it has landed, none is taken for later ones. */
  isHeld = false;
  private next: OpenSegment | undefined;
  private creating: Promise<OpenSegment> | undefined;
  private running: Promise<void> | undefined;
  private closed = false;
  private isTurning = false;
  /** Bound of the next segment's size: halved when one did not fit, doubled when one did. */
  private bound: number;
  private wake = () => {};
  private readonly options: SupplyOptions;

  constructor(current: OpenSegment, options: SupplyOptions) {
    this.current = current;
    this.options = options;
    this.bound = options.segmentBytes;
  }

  /** Zero-filled bytes that are ready to be written. */
  aheadBytes(): number {
    const next = this.next === undefined ? 0 : this.next.zeroedTo - headerBytes;
    return Math.max(0, this.current.zeroedTo - this.current.end) + next;
  }

  /** What its files take. */
  bytes(): number {
    return this.current.zeroedTo + (this.next?.zeroedTo ?? 0);
  }

  /** Sees to it that space is prepared; returns at once. */
  replenish(): void {
    if (this.running !== undefined || this.closed || !this.isWanting()) return;
    this.running = this.fill().finally(() => {
      this.running = undefined;
    });
  }

  /** Makes the next segment the current one, prepared or not. Rejects as the disk does. */
  async turnOver(): Promise<OpenSegment> {
    this.isTurning = true;
    try {
      const next = this.next ?? (await this.prepare());
      await beginSegment(this.options.dir, next, this.options.disk);
      this.current = next;
      this.next = undefined;
      return next;
    } finally {
      this.isTurning = false;
    }
  }

  async close(): Promise<void> {
    this.closed = true;
    this.wake();
    await this.running;
    await this.current.zeroing?.catch(() => {});
    fs.closeSync(this.current.fd);
    this.discardNext();
  }

  private isWanting(): boolean {
    const { current, next } = this;
    if (current.zeroedTo < current.limit) return true;
    return current.end > current.limit / 2 && (next === undefined || next.zeroedTo < next.limit);
  }

  private async fill(): Promise<void> {
    while (!this.closed && this.isWanting()) {
      if (this.isHeld) {
        this.giveBack();
        await this.pause(retryMs);
      } else await this.extend();
    }
  }

  private async extend(): Promise<void> {
    try {
      const target = this.current.zeroedTo < this.current.limit ? this.current : (this.next ?? (await this.prepare()));
      if (target.zeroedTo < target.limit) await extendZeros(target, this.options.disk);
      if (target === this.next && target.zeroedTo >= target.limit) this.bound = Math.min(this.options.segmentBytes, this.bound * 2);
      this.lacksSpace = false;
      await this.pause(pauseMs);
    } catch (error) {
      // Zeros acknowledge nothing: any failure here is only tried again, and shows itself in the log's own writes.
      this.lacksSpace = isNoSpace(error);
      if (this.lacksSpace) {
        this.bound = Math.max(this.leastBytes(), this.bound / 2);
        this.giveBack();
      }
      await this.pause(retryMs);
    }
  }

  /** Lets go of a next segment that is prepared in part only. */
  private giveBack(): void {
    if (this.next !== undefined && !this.isTurning && this.next.zeroedTo < this.next.limit) this.discardNext();
  }

  private discardNext(): void {
    if (this.next === undefined) return;
    fs.closeSync(this.next.fd);
    fs.rmSync(this.next.path, { force: true });
    this.next = undefined;
  }

  private leastBytes(): number {
    return Math.min(leastBytes, this.options.segmentBytes);
  }

  /** What the next segment may take of the disk as it is now. */
  private nextBytes(): number {
    const { bavail, bsize } = fs.statfsSync(this.options.dir);
    const share = 2 ** Math.floor(Math.log2(Math.max(bavail * bsize * freeShare, 1)));
    return Math.max(this.leastBytes(), Math.min(this.bound, share));
  }

  /** The next segment with its header; two callers share one. */
  private prepare(): Promise<OpenSegment> {
    this.creating ??= this.create().finally(() => {
      this.creating = undefined;
    });
    return this.creating;
  }

  private async create(): Promise<OpenSegment> {
    const { header } = this.current;
    const { dir, disk } = this.options;
    this.next = await createSegment(dir, drawHeader(header.number + 1, header.logId), this.nextBytes(), disk);
    return this.next;
  }

  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
