/**
 * Keeps zero-filled segment space ahead of the log, off the hot path.
 *
 * The current segment is filled up to its size, and the next one is prepared from when the
 * current one is half full, a megabyte at a time with pauses, so that the log's own writes pass
 * between. A full disk is tried again until there is space.
 */
import fs from "node:fs";
import { isNoSpace, type LogDisk } from "./log-disk.ts";
import { beginSegment, createSegment, drawHeader, extendZeros, headerBytes, type OpenSegment } from "./segment-file.ts";

export const retryMs = 250;
/** Between two megabytes of zeros. */
const pauseMs = 5;

export interface SupplyOptions {
  readonly dir: string;
  readonly disk: LogDisk;
  readonly segmentBytes: number;
}

export class SegmentSupply {
  current: OpenSegment;
  /** The last attempt to get space ahead failed for want of it. */
  lacksSpace = false;
  private next: OpenSegment | undefined;
  private creating: Promise<OpenSegment> | undefined;
  private running: Promise<void> | undefined;
  private closed = false;
  private wake = () => {};
  private readonly options: SupplyOptions;

  constructor(current: OpenSegment, options: SupplyOptions) {
    this.current = current;
    this.options = options;
  }

  /** Zero-filled bytes that are ready to be written. */
  aheadBytes(): number {
    const next = this.next === undefined ? 0 : this.next.zeroedTo - headerBytes;
    return Math.max(0, this.current.zeroedTo - this.current.end) + next;
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
    const next = this.next ?? (await this.prepare());
    await beginSegment(this.options.dir, next, this.options.disk);
    this.current = next;
    this.next = undefined;
    return next;
  }

  async close(): Promise<void> {
    this.closed = true;
    this.wake();
    await this.running;
    await this.current.zeroing?.catch(() => {});
    fs.closeSync(this.current.fd);
    if (this.next === undefined) return;
    fs.closeSync(this.next.fd);
    fs.rmSync(this.next.path, { force: true });
  }

  private isWanting(): boolean {
    const { segmentBytes } = this.options;
    if (this.current.zeroedTo < segmentBytes) return true;
    return this.current.end > segmentBytes / 2 && (this.next === undefined || this.next.zeroedTo < segmentBytes);
  }

  private async fill(): Promise<void> {
    while (!this.closed && this.isWanting()) {
      try {
        const isCurrent = this.current.zeroedTo < this.options.segmentBytes;
        const target = isCurrent ? this.current : (this.next ?? (await this.prepare()));
        if (target.zeroedTo < this.options.segmentBytes) await extendZeros(target, this.options.segmentBytes, this.options.disk);
        this.lacksSpace = false;
        await this.pause(pauseMs);
      } catch (error) {
        // Zeros acknowledge nothing: any failure here is only tried again, and shows itself in the log's own writes.
        this.lacksSpace = isNoSpace(error);
        await this.pause(retryMs);
      }
    }
  }

  /** The next segment with its header; two callers share one. */
  private prepare(): Promise<OpenSegment> {
    const { header } = this.current;
    this.creating ??= createSegment(this.options.dir, drawHeader(header.number + 1, header.logId), this.options.disk)
      .then((segment) => {
        this.next = segment;
        return segment;
      })
      .finally(() => {
        this.creating = undefined;
      });
    return this.creating;
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
