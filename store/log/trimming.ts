/**
 * What may go of the log's files: every rule about it.
 *
 * - Only the oldest segment goes, so that what is left is a log without gaps: a segment that is
 *   there proves that all of those before it had been acknowledged, and one that is missing in
 *   the middle is damage. Which is the first one is said by a `trimmed` frame, durable before a
 *   file goes; what a crash leaves in front of it goes when the log is opened.
 * - It goes when reads will find none of their records in it (`neededPieces`), and the segments behind
 *   say of each of its shards all that there is to say (`isSaidBehind`). The newest
 *   closed one stays.
 * - A record that is released, overwritten, or for ever found in a newer segment is not needed. One that is
 *   can be moved: copied into the current segment. A copy cuts nothing, and keeps its class and the place
 *   where it was written at first.
 * - Moving is worth it when more than half of all is of no use (`isWorthMoving`): then less is copied than
 *   comes free, the files take at most twice what is live and a few segments, and no shard
 *   that is idle pins the others.
 */
import { assert, type ShardId } from "#core/base";
import type { LogUsage } from "./log-store.ts";
import type { RecordBatch } from "./record-batch.ts";
import { FrameKind } from "./record-frame.ts";
import { archivePiecesOf, type IndexRange, logPiecesOf, type Piece, type ReadBounds } from "./record-places.ts";
import type { ClosedSegment, Segment } from "./segment-file.ts";
import { listsOf, type ShardPart } from "./segment-index.ts";
import { foldShard, type ShardFacts } from "./shard-fold.ts";

/** The log as trimming sees it. */
export interface TrimView {
  /** Oldest first. */
  readonly closed: readonly ClosedSegment[];
  /** With the one behind them that is written to. */
  readonly segments: readonly Segment[];
  /** What reads see of the shard. */
  bounds(shard: ShardId): ReadBounds;
  /** As of everything appended. */
  facts(shard: ShardId): ShardFacts;
}

/** So many segments' worth of files may be of no use beside half of the rest, if not said otherwise. */
export const slackSegments = 4;
/** Of the closed ones: what the newest one ends with may still be on its way to its sidecar. */
const closedKept = 1;

/** Number of the segment that the log begins with. */
export const firstSegmentOf = (segments: readonly Segment[]) =>
  segments.reduce((first, { index }) => Math.max(first, index.firstSegment), 1);

/** The one that could go next. */
export function oldestOf({ closed }: TrimView): ClosedSegment | undefined {
  return closed.length > closedKept ? closed[0] : undefined;
}

/** So many shards are looked at closely at a time: that takes time with the number of segments. */
const shardsAtOnce = 16;

/**
 * Records in the segment that reads find, or may find later: of shards that are named, or of the
 * first ones that have any. Archive that the log hides is found when the log is cut, or begins anew.
 */
export function neededPieces(view: TrimView, segment: Segment, shards: Iterable<number> = segment.index.parts.keys()): Piece[] {
  const needed: Piece[] = [];
  let count = 0;
  for (const shard of shards) {
    const part = segment.index.parts.get(shard);
    const bounds = view.bounds(shard as ShardId);
    const useless = uselessTo(bounds);
    if (part === undefined || listsOf(part).every((spans) => spans.every((span) => span.last <= useless))) continue;
    if (needed.length > 0 && ++count >= shardsAtOnce) break;
    const range = hullOf(part);
    const all = [...logPiecesOf(view.segments, shard, bounds, range), ...archivePiecesOf(view.segments, shard, bounds, range)];
    needed.push(...all.filter((piece) => piece.segment === segment));
  }
  return needed;
}

/** All indexes that the part has records of. */
function hullOf(part: ShardPart): IndexRange {
  let from = Number.POSITIVE_INFINITY;
  let last = 0;
  for (const spans of listsOf(part)) {
    for (const span of spans) {
      from = Math.min(from, span.first);
      last = Math.max(last, span.last);
    }
  }
  return { from, end: last + 1 };
}

/** All up to here is released, and no part of the log: a log may begin below what was released before. */
const uselessTo = ({ base, end, released }: ReadBounds) => (end > base + 1 ? Math.min(base, released) : released);

/** The kind of frame that a record of the piece is copied into. */
export function movedKindOf({ holds, isRetired }: Piece, isData: boolean): FrameKind {
  if (isRetired) return isData ? FrameKind.movedRetiredData : FrameKind.movedRetiredConfig;
  if (holds === "log") return isData ? FrameKind.movedData : FrameKind.movedConfig;
  return isData ? FrameKind.movedArchiveData : FrameKind.movedArchiveConfig;
}

export const isWorthMoving = ({ bytes, liveBytes }: SpaceUsage, slackBytes: number) => bytes > 2 * liveBytes + slackBytes;

/**
 * Says again what only the segment says of its shards, then that the log begins behind it. As
 * these are the last frames so far, they change nothing.
 */
export function addFarewell(view: TrimView, segment: Segment, batch: RecordBatch): void {
  assert(neededPieces(view, segment).length === 0, "a segment goes when no read will find a record in it");
  const behind = view.segments.filter((one) => one !== segment);
  for (const number of segment.index.parts.keys()) {
    const shard = number as ShardId;
    addFacts(shard, view.facts(shard), foldShard(behind, shard), batch);
  }
  batch.add({ kind: FrameKind.trimmed, shard: 0, index: segment.header.number + 1, term: 0 });
}

function addFacts(shard: ShardId, wanted: ShardFacts, said: ShardFacts, batch: RecordBatch): void {
  const { state, base, isRemoved, released } = wanted;
  const head = { shard, index: state.commit, term: state.term };
  if (isRemoved && !said.isRemoved) batch.addVote({ kind: FrameKind.removed, ...head }, state.vote);
  else if (!isSameState(wanted, said) || (wanted.hasLog && !said.hasLog)) batch.addVote({ kind: FrameKind.hardState, ...head }, state.vote);
  if (!isRemoved && !isSameBase(wanted, said)) batch.add({ kind: FrameKind.compacted, shard, index: base.index, term: base.term });
  if (released !== said.released) batch.add({ kind: FrameKind.released, shard, index: released, term: 0 });
}

const isSameState = ({ state: a }: ShardFacts, { state: b }: ShardFacts) => a.term === b.term && a.vote === b.vote && a.commit === b.commit;
const isSameBase = ({ base: a }: ShardFacts, { base: b }: ShardFacts) => a.index === b.index && a.term === b.term;

export type SpaceUsage = Pick<LogUsage, "bytes" | "liveBytes" | "shards">;

/** What the segments behind the oldest one say of the shard is what all of them say. */
function isSaidBehind(segments: readonly Segment[], shard: number): boolean {
  const all = foldShard(segments, shard);
  const behind = foldShard(segments.slice(1), shard);
  return (
    isSameState(all, behind) &&
    isSameBase(all, behind) &&
    all.isRemoved === behind.isRemoved &&
    all.hasLog === behind.hasLog &&
    all.released === behind.released &&
    all.last === behind.last
  );
}

/** The farewell to the oldest segment is durable: its file may go. */
export function assertGoes({ segments }: TrimView): void {
  const [oldest] = segments as readonly [Segment];
  assert(oldest.header.number < firstSegmentOf(segments), "a file goes when it is durable that the log begins behind it");
  for (const shard of oldest.index.parts.keys()) {
    assert(isSaidBehind(segments, shard), `the segments behind say all of shard ${shard} that segment ${oldest.header.number} says`);
  }
}

/** What files take, and about what of it is of use; those that are not closed take `otherBytes`. A step for each segment. */
export function* usageSteps(view: TrimView, otherBytes: number): Generator<void, SpaceUsage> {
  const shards = new Map<ShardId, number>();
  let liveBytes = 0;
  let bytes = otherBytes;
  for (const { size } of view.closed) bytes += size;
  for (const { index } of view.segments) {
    for (const [number, part] of index.parts) {
      const shard = number as ShardId;
      const live = liveBytesOf(part, uselessTo(view.bounds(shard)));
      if (live === 0) continue;
      liveBytes += live;
      shards.set(shard, (shards.get(shard) ?? 0) + live);
    }
    yield;
  }
  return { bytes, liveBytes, shards };
}

/** The part's bytes, by the share of its records that are of use. */
function liveBytesOf(part: ShardPart, useless: number): number {
  let all = 0;
  let live = 0;
  for (const spans of listsOf(part)) {
    for (const { first, last } of spans) {
      all += last - first + 1;
      live += Math.max(0, last - Math.max(first - 1, useless));
    }
  }
  return all === 0 ? 0 : Math.round((part.bytes * live) / all);
}
