/**
 * Takes away the log's oldest segments as `trimming.ts` allows, off the hot path.
 *
 * What it writes rides with group commits, a bounded piece each time, and it looks at the disk
 * before each step: it has no state that a crash could lose. A copy that has landed is found in its
 * new place, and so is not copied again.
 */
import fs from "node:fs";
import { dirname } from "node:path";
import { InvariantError } from "#core/base";
import { FrameWalk, readMore } from "./frame-walk.ts";
import { type LogDisk, syncFolder } from "./log-disk.ts";
import type { RecordBatch } from "./record-batch.ts";
import { entryKindOf, type Frame, isFault, originOf, recordBody } from "./record-frame.ts";
import type { Piece } from "./record-places.ts";
import type { ClosedSegment, Segment } from "./segment-file.ts";
import { type Stretch, stretches } from "./segment-index.ts";
import { Wanted } from "./segment-reader.ts";
import { sidecarOf } from "./sidecar.ts";
import {
  addFarewell,
  assertGoes,
  isWorthMoving,
  movedKindOf,
  neededPieces,
  oldestOf,
  type SpaceUsage,
  type TrimView,
  usageSteps,
} from "./trimming.ts";

/** Most bytes of copies that ride with one group commit. */
const chunkBytes = 256 << 10;
/** So many segments are measured between two pauses. */
const segmentsAtOnce = 8;
/** Between two steps. */
const pauseMs = 2;

/** The log that is trimmed. */
export interface TrimmedLog {
  view(): TrimView;
  /** Bytes of the files that are not closed. */
  openBytes(): number;
  /** Frames may be added; false while a log that begins anew is not durable, too. */
  isReady(): boolean;
  hasRoom(): boolean;
  /** Adds frames to the batch that gathers. False when they did not become durable. */
  addAside(add: (batch: RecordBatch) => void): Promise<boolean>;
  /** The oldest segment is no part of the log any more. */
  dropOldest(): void;
}

export interface TrimmerOptions {
  readonly disk: LogDisk;
  readonly slackBytes: number;
  /** Least time between two looks at what may go. */
  readonly lookMs: number;
}

interface Copy {
  readonly piece: Piece;
  readonly frame: Frame;
}

export class Trimmer {
  /** Bytes of records that were copied, and of files that went, in this life of the log. */
  movedBytes = 0;
  trimmedBytes = 0;
  private readonly log: TrimmedLog;
  private readonly options: TrimmerOptions;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private running: Promise<void> | undefined;
  private isDue = false;
  private isStopped = false;
  /** The segment that is being moved: once begun it is worth it. */
  private moving: Segment | undefined;
  /** Dropped ones whose files are still there. */
  private readonly dropped: ClosedSegment[] = [];
  private wake = () => {};

  constructor(log: TrimmedLog, options: TrimmerOptions) {
    this.log = log;
    this.options = options;
  }

  /** Something may have become useless. Returns at once. */
  due(): void {
    this.isDue = true;
    if (this.timer !== undefined || this.running !== undefined || this.isStopped) return;
    this.timer = setTimeout(this.look, this.options.lookMs);
  }

  async stop(): Promise<void> {
    this.isStopped = true;
    clearTimeout(this.timer);
    this.wake();
    await this.running;
  }

  private readonly look = (): void => {
    this.timer = undefined;
    this.isDue = false;
    this.running = this.run().finally(() => {
      this.running = undefined;
      if (this.isDue) this.due();
    });
  };

  private async run(): Promise<void> {
    try {
      while (!this.isStopped && (await this.step())) await this.pause();
    } catch (error) {
      if (error instanceof InvariantError) throw error;
      // A file that can't be read or removed stays, and readers say why; the next look tries again.
    }
    // What was begun is gone on with, though nothing is written that would ask for it.
    if (this.moving !== undefined || this.dropped.length > 0) this.isDue = true;
  }

  /** Removes a file, or brings that nearer. False when there is nothing to do now. */
  private async step(): Promise<boolean> {
    await this.removeDropped();
    const view = this.log.view();
    const oldest = oldestOf(view);
    if (oldest === undefined) return false;
    if (!this.log.isReady()) return this.later();
    const needed = neededPieces(view, oldest);
    if (needed.length === 0) return this.sayFarewell(view, oldest);
    if (this.moving === oldest) return this.move(oldest, needed);
    if (isWorthMoving(await this.usage(view), this.options.slackBytes)) this.moving = oldest;
    return this.moving === oldest;
  }

  private later(): boolean {
    this.isDue = true;
    return false;
  }

  /** Measured with pauses. */
  private async usage(view: TrimView): Promise<SpaceUsage> {
    const steps = usageSteps(view, this.log.openBytes());
    for (let count = 1; ; count++) {
      const step = steps.next();
      if (step.done === true) return step.value;
      if (count % segmentsAtOnce === 0) await this.pause();
    }
  }

  private async sayFarewell(view: TrimView, oldest: ClosedSegment): Promise<boolean> {
    if (!(await this.log.addAside((batch) => addFarewell(view, oldest, batch)))) return this.later();
    assertGoes(this.log.view());
    this.log.dropOldest();
    this.dropped.push(oldest);
    await this.removeDropped();
    return true;
  }

  /** One file at a time is gone for good before the next one goes. */
  private async removeDropped(): Promise<void> {
    for (let segment = this.dropped[0]; segment !== undefined; segment = this.dropped[0]) {
      await fs.promises.rm(segment.path, { force: true });
      await fs.promises.rm(sidecarOf(segment.path), { force: true });
      await syncFolder(this.options.disk, dirname(segment.path));
      this.trimmedBytes += segment.size;
      this.dropped.shift();
    }
  }

  private async move(oldest: Segment, needed: readonly Piece[]): Promise<boolean> {
    if (!this.log.hasRoom()) return this.later();
    const copies = await readCopies(oldest, needed);
    if (this.isStopped) return false;
    // Reading took its time: what was found here may have been released or overwritten meanwhile.
    const view = this.log.view();
    const shards = new Set(copies.map(({ frame }) => frame.shard));
    const still = neededPieces(view, oldest, shards);
    const kept = copies.filter((copy) => still.some((piece) => isOfPiece(copy, piece)));
    if (!this.log.isReady()) return this.later();
    if (kept.length === 0) return true;
    for (const { frame } of kept) this.movedBytes += frame.end - frame.offset;
    return (await this.log.addAside((batch) => addCopies(kept, oldest, batch))) || this.later();
  }

  private pause(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, pauseMs);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

const isOfPiece = ({ piece, frame: { shard, index } }: Copy, { span, first, last, isRetired }: Piece) =>
  span === piece.span && isRetired === piece.isRetired && first <= index && index <= last && shard === piece.shard;

function addCopies(copies: readonly Copy[], { header }: Segment, batch: RecordBatch): void {
  for (const { piece, frame } of copies) {
    const { shard, index, term, kind } = frame;
    const moved = movedKindOf(piece, entryKindOf(kind) === "data");
    batch.addMoved({ kind: moved, shard, index, term }, originOf(frame, header.number), recordBody(frame));
  }
}

/** Records of the pieces, in file order, as many as a chunk takes and at least one. */
async function readCopies(segment: Segment, pieces: readonly Piece[]): Promise<Copy[]> {
  const wanted = Map.groupBy(
    pieces.map((piece) => new Wanted(piece)),
    ({ piece }) => piece.shard,
  );
  const copies: Copy[] = [];
  let bytes = 0;
  const fd = fs.openSync(segment.path, "r");
  try {
    for (const { from, end } of merged(pieces)) {
      const walk = new FrameWalk({ from, end: segment.end, beginBefore: end }, segment, { chunk: chunkBytes, keepsBodies: true });
      for (let found = walk.next(); found !== undefined; found = walk.next()) {
        if (found === "more") await readMore(fd, walk);
        else if (isFault(found)) throw new Error(`Cannot move a record at byte ${found.offset} of ${segment.path}`);
        else {
          const frame = found;
          const taker = wanted.get(frame.shard)?.find((one) => frame.offset >= one.from && one.take(frame));
          if (taker === undefined) continue;
          copies.push({ piece: taker.piece, frame });
          bytes += frame.end - frame.offset;
          if (bytes >= chunkBytes) return copies;
        }
      }
    }
    for (const list of wanted.values()) for (const one of list) one.finish();
  } finally {
    fs.closeSync(fd);
  }
  return copies;
}

/** Where the pieces' records are, in file order, each byte once. */
function merged(pieces: readonly Piece[]): Stretch[] {
  const all = pieces.flatMap(({ span, first, last }) => stretches(span, first, last)).sort((a, b) => a.from - b.from);
  const out: Stretch[] = [];
  for (const stretch of all) {
    const before = out.at(-1);
    if (before !== undefined && stretch.from <= before.end) before.end = Math.max(before.end, stretch.end);
    else out.push({ ...stretch });
  }
  return out;
}
