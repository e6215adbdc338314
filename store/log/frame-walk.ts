/**
 * Walks the frames of a byte range of a segment file, checking each.
 *
 * Has no I/O of its own: it says what it wants read and is told what came, so that one walk
 * serves synchronous replay and asynchronous reads.
 */
import fs from "node:fs";
import { type Frame, type FrameFault, isFault, readFrame, refuseUnknown, type Salt } from "./record-frame.ts";

const chunkBytes = 1 << 20;

export interface Range {
  /** Where the first frame begins. */
  readonly from: number;
  /** No frame goes past it. */
  readonly end: number;
  /** Frames that begin at or behind it are not wanted. */
  readonly beginBefore?: number;
}

/** The file that is walked. */
export interface Walked {
  readonly path: string;
  readonly header: Salt;
}

export class FrameWalk {
  /** File offset of the next frame. */
  offset: number;
  private readonly end: number;
  private readonly beginBefore: number;
  private readonly file: Walked;
  private bytes: Uint8Array;
  private at = 0;
  private filled = 0;
  private need = 0;
  private short = false;
  private readonly keepsBodies: boolean;

  /** `keepsBodies`: bodies stay valid for ever, instead of until more is read. */
  constructor(range: Range, file: Walked, { chunk = chunkBytes, keepsBodies = false } = {}) {
    this.keepsBodies = keepsBodies;
    this.offset = range.from;
    this.end = range.end;
    this.beginBefore = Math.min(range.end, range.beginBefore ?? range.end);
    this.file = file;
    this.bytes = new Uint8Array(Math.max(64, Math.min(chunk, range.end - range.from, this.beginBefore - range.from + 4096)));
  }

  /**
   * The next frame, its fault, "more" when bytes are needed first, or undefined at the end. Throws
   * STORE_UNAVAILABLE at a frame that a newer version wrote.
   */
  next(): Frame | FrameFault | "more" | undefined {
    if (this.offset >= this.beginBefore) return undefined;
    const found = readFrame(this.bytes, this.at, this.filled, this.offset, this.end, this.file.header);
    if (typeof found === "number") {
      if (this.short)
        return {
          offset: this.offset,
          got: `a file that ends at byte ${this.offset + this.filled - this.at}`,
          want: `at least ${this.end}`,
        };
      this.need = found;
      return "more";
    }
    if (!isFault(found)) {
      refuseUnknown(found, this.file.path);
      this.at += found.end - found.offset;
      this.offset = found.end;
    }
    return found;
  }

  /** File position of the next bytes wanted. */
  get position(): number {
    return this.offset + this.filled - this.at;
  }

  /** Where the next bytes go. What is left moves to the front. */
  room(): Uint8Array {
    const left = this.bytes.subarray(this.at, this.filled);
    const replaces = this.need > this.bytes.length || (this.keepsBodies && this.filled > 0);
    const target = replaces ? new Uint8Array(this.need) : this.bytes;
    target.set(left);
    this.bytes = target;
    this.filled = left.length;
    this.at = 0;
    return target.subarray(this.filled, Math.min(target.length, this.filled + this.end - this.position));
  }

  /** `count` bytes came; 0 = the file has no more. */
  took(count: number): void {
    if (count === 0) this.short = true;
    this.filled += count;
  }
}

/** All frames of a walk, then its fault if it met one. */
export function* walkSync(fd: number, walk: FrameWalk): Generator<Frame, FrameFault | undefined> {
  for (;;) {
    const found = walk.next();
    if (found === undefined) return undefined;
    if (found === "more") {
      const room = walk.room();
      walk.took(fs.readSync(fd, room, 0, room.length, walk.position));
    } else if (isFault(found)) return found;
    else yield found;
  }
}

/** Reads what the walk wants next. */
export function readMore(fd: number, walk: FrameWalk): Promise<void> {
  const room = walk.room();
  return new Promise((resolve, reject) => {
    fs.read(fd, room, 0, room.length, walk.position, (error, count) => {
      if (error) return reject(error);
      walk.took(count);
      resolve();
    });
  });
}
