/**
 * Which segment holds a shard's record: the one rule by which reads, scans, audits and trimming agree.
 *
 * An index that the shard's log has is read there, from the newest record with it. Any other one
 * is archive: first what came from elsewhere, which had been committed, and then what the log was
 * before where it begins now; the newest of each, and copies out of trimmed segments after all others.
 * Archive that is released is not there.
 */
import type { RecordClass } from "./record-frame.ts";
import type { Segment } from "./segment-file.ts";
import type { ShardPart, Span } from "./segment-index.ts";

/** Records first … last of a shard, which lie in one span. */
export interface Piece {
  readonly shard: number;
  readonly segment: Segment;
  readonly span: Span;
  readonly first: number;
  readonly last: number;
  /** What its frames hold. */
  readonly holds: RecordClass;
  /** They are of the log of before a base. */
  readonly isRetired: boolean;
}

/** Indexes [from, end). */
export interface IndexRange {
  readonly from: number;
  readonly end: number;
}

/** The log has the indexes above `base` and below `end`. */
export interface LogBounds {
  readonly base: number;
  readonly end: number;
}

export interface ReadBounds extends LogBounds {
  /** Archive up to here is not there. */
  readonly released: number;
}

/** Oldest first. */
type Segments = readonly Segment[];

const everything: IndexRange = { from: 0, end: Number.POSITIVE_INFINITY };

/** Where the shard's records of the range are, in index order. */
export function piecesOf(segments: Segments, shard: number, range: IndexRange, log: ReadBounds): Piece[] {
  const search = new Search(segments, shard, range);
  search.log({ above: log.base, last: log.end - 1 });
  search.archive(log);
  return search.result();
}

/** Where the records of the shard's log are, in index order: those of the range. */
export function logPiecesOf(segments: Segments, shard: number, log: LogBounds, range: IndexRange = everything): Piece[] {
  const search = new Search(segments, shard, range);
  search.log({ above: log.base, last: log.end - 1 });
  return search.result();
}

/** Where the shard's archive of the range is, as reads find it, or would if the log had nothing above its base. */
export function archivePiecesOf(segments: Segments, shard: number, log: ReadBounds, range: IndexRange): Piece[] {
  const search = new Search(segments, shard, range);
  search.archive(log);
  return search.result();
}

/** What spans are read for: their records with index in (above, last]. */
interface Use {
  readonly above: number;
  readonly last?: number;
  readonly holds?: RecordClass;
  readonly isRetired?: boolean;
}

/** Fills a range with the places of its records, the preferred ones first. */
class Search {
  private readonly segments: Segments;
  private readonly shard: number;
  private readonly pieces: Piece[] = [];
  /** What was not found yet. */
  private open: IndexRange[];

  constructor(segments: Segments, shard: number, range: IndexRange) {
    this.segments = segments;
    this.shard = shard;
    this.open = range.from < range.end ? [range] : [];
  }

  result(): Piece[] {
    return this.pieces.sort((a, b) => a.first - b.first);
  }

  log({ above, last }: { readonly above: number; readonly last: number }): void {
    let limit = last;
    this.newestFirst((segment, part) => {
      if (limit <= above) return true;
      this.offer(segment, part.log, { above, last: limit });
      limit = limitBefore(part, limit);
      return part.base !== undefined;
    });
  }

  archive({ base, end, released }: ReadBounds): void {
    const hasMore = this.segments.some(({ index }) => hasOwnArchive(index.parts.get(this.shard)));
    if (hasMore) this.moreArchive("archive", released);
    if (hasMore) this.moreArchive("movedArchive", released);
    this.log({ above: released, last: Math.min(base, end - 1) });
    if (hasMore) this.retired(released);
    if (hasMore) this.moreArchive("movedRetired", released);
  }

  private moreArchive(holds: "archive" | "movedArchive" | "movedRetired", above: number): void {
    const isRetired = holds === "movedRetired";
    this.newestFirst((segment, part) => {
      this.offer(segment, part[holds], { above, holds, isRetired });
      return false;
    });
  }

  private retired(above: number): void {
    let isRetired = false;
    let limit = Number.POSITIVE_INFINITY;
    this.newestFirst((segment, part) => {
      if (isRetired) this.offer(segment, part.log, { above, last: limit, isRetired });
      if (part.base !== undefined) {
        isRetired = true;
        limit = Number.POSITIVE_INFINITY;
        this.offer(segment, part.retired, { above, isRetired });
      }
      limit = limitBefore(part, limit);
      return false;
    });
  }

  /** Until all is found, or `each` says that it has seen enough. */
  private newestFirst(each: (segment: Segment, part: ShardPart) => boolean): void {
    for (let i = this.segments.length - 1; i >= 0 && this.open.length > 0; i--) {
      const segment = this.segments[i] as Segment;
      const part = segment.index.parts.get(this.shard);
      if (part !== undefined && each(segment, part)) return;
    }
  }

  private offer(segment: Segment, spans: readonly Span[], use: Use): void {
    for (let i = spans.length - 1; i >= 0; i--) {
      const span = spans[i] as Span;
      const first = Math.max(span.first, use.above + 1);
      const last = Math.min(span.last, use.last ?? Number.POSITIVE_INFINITY);
      if (first <= last && this.open.some((gap) => first < gap.end && last >= gap.from)) this.take(segment, span, { first, last }, use);
    }
  }

  private take(segment: Segment, span: Span, found: { readonly first: number; readonly last: number }, use: Use): void {
    const { holds = "log", isRetired = false } = use;
    this.open = this.open.flatMap((gap) => {
      const first = Math.max(gap.from, found.first);
      const last = Math.min(gap.end - 1, found.last);
      if (first > last) return [gap];
      this.pieces.push({ shard: this.shard, segment, span, first, last, holds, isRetired });
      return [
        { from: gap.from, end: first },
        { from: last + 1, end: gap.end },
      ].filter((left) => left.from < left.end);
    });
  }
}

/** There is archive beside what the log was up to its base. */
const hasOwnArchive = (part: ShardPart | undefined) =>
  part !== undefined && (part.base !== undefined || part.archive.length + part.movedArchive.length + part.movedRetired.length > 0);

/** Records of earlier segments above this were overwritten by this one's. */
const limitBefore = ({ firstAppended }: ShardPart, limit: number) => (firstAppended === 0 ? limit : Math.min(limit, firstAppended - 1));
