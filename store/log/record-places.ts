/**
 * Which segment holds a shard's record: the one rule by which reads, scans and audits agree.
 *
 * An index that the shard's log has is read there, from the newest record with it. Any other one
 * is archive: first what came from elsewhere, which had been committed, and then what the log was
 * before its newest base; the newest of each.
 */
import type { Segment } from "./segment-file.ts";
import type { ShardPart, Span } from "./segment-index.ts";

/** Records first … last of a shard, which lie in one span. */
export interface Piece {
  readonly segment: Segment;
  readonly span: Span;
  readonly first: number;
  readonly last: number;
  readonly isArchive: boolean;
}

/** Indexes [from, end). */
export interface IndexRange {
  readonly from: number;
  readonly end: number;
}

/** Oldest first. */
type Segments = readonly Segment[];

/** Where the shard's records of the range are, in index order. `logEnd`: the log has no index from here on. */
export function piecesOf(segments: Segments, shard: number, range: IndexRange, logEnd = Number.POSITIVE_INFINITY): Piece[] {
  const pieces: Piece[] = [];
  let open: IndexRange[] = [range];
  for (const candidate of candidates(segments, shard, logEnd)) {
    open = open.flatMap((gap) => {
      const first = Math.max(gap.from, candidate.first);
      const last = Math.min(gap.end - 1, candidate.last);
      if (first > last) return [gap];
      pieces.push({ ...candidate, first, last });
      return [
        { from: gap.from, end: first },
        { from: last + 1, end: gap.end },
      ].filter((left) => left.from < left.end);
    });
    if (open.length === 0) break;
  }
  return pieces.sort((a, b) => a.first - b.first);
}

/** All spans of the shard with what they may be read for, the preferred ones first. */
function* candidates(segments: Segments, shard: number, logEnd: number): Generator<Piece> {
  yield* logSpans(segments, shard, logEnd - 1);
  for (const [segment, { archive }] of partsOf(segments, shard)) yield* spansOf(segment, archive, Number.POSITIVE_INFINITY, true);
  yield* retiredSpans(segments, shard);
}

function* logSpans(segments: Segments, shard: number, last: number): Generator<Piece> {
  let limit = last;
  for (const [segment, part] of partsOf(segments, shard)) {
    yield* spansOf(segment, part.log, limit);
    if (part.base !== undefined) return;
    limit = limitBefore(part, limit);
  }
}

function* retiredSpans(segments: Segments, shard: number): Generator<Piece> {
  let isRetired = false;
  let limit = Number.POSITIVE_INFINITY;
  for (const [segment, part] of partsOf(segments, shard)) {
    if (isRetired) yield* spansOf(segment, part.log, limit);
    if (part.base !== undefined) {
      isRetired = true;
      limit = Number.POSITIVE_INFINITY;
      yield* spansOf(segment, part.retired, limit);
    }
    limit = limitBefore(part, limit);
  }
}

/** Records of earlier segments above this were overwritten by this one's. */
const limitBefore = ({ firstAppended }: ShardPart, limit: number) => (firstAppended === 0 ? limit : Math.min(limit, firstAppended - 1));

function* spansOf(segment: Segment, spans: readonly Span[], limit: number, isArchive = false): Generator<Piece> {
  for (let i = spans.length - 1; i >= 0; i--) {
    const span = spans[i] as Span;
    const last = Math.min(span.last, limit);
    if (span.first <= last) yield { segment, span, first: span.first, last, isArchive };
  }
}

/** Newest segment first. */
function* partsOf(segments: Segments, shard: number): Generator<readonly [Segment, ShardPart]> {
  for (let i = segments.length - 1; i >= 0; i--) {
    const segment = segments[i] as Segment;
    const part = segment.index.parts.get(shard);
    if (part !== undefined) yield [segment, part];
  }
}
