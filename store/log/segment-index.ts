/**
 * Where the frames of one segment are, and what they did to each shard's log.
 *
 * Records lie in spans: indexes that follow each other, of one term, with an entry about every
 * 16 KiB that says where the span's records from there on begin and end. A shard has several kinds of them here: those of its **log** as it was at the segment's
 * end, those that a base **retired**, and those of the **archive** that came from elsewhere. What
 * a later record overwrote is cut off here; what it overwrote in earlier segments follows from
 * `firstAppended`, so that closed segments never change.
 *
 * Copies out of trimmed segments overwrite nothing. Those of a log are spans of the log; those of
 * an archive are older than all that is not a copy, and so have lists of their own.
 */
import { classOf, FrameKind, isRebase, isRecord, type PlacedHead } from "./record-frame.ts";

/** Distance of two entries of a span, and so about what a read of one record loads. */
const strideBytes = 16 << 10;
/** What lies between is read too where it is less: that costs no more than to go on elsewhere. */
const nearBytes = 8 << 10;

export interface Span {
  /** Counts the spans of the segment in the order in which they began. */
  readonly number: number;
  readonly first: number;
  last: number;
  readonly term: number;
  /** Of each entry: the index of its first record, where that begins, and where its last one ends. */
  readonly indexes: number[];
  readonly offsets: number[];
  readonly ends: number[];
}

/** Frames that begin in [from, end). */
export interface Stretch {
  readonly from: number;
  /** Of the shard's record at `from`. */
  readonly index: number;
  end: number;
}

/** What one segment has of a shard. */
export interface ShardPart {
  /** Lowest index that was appended before the segment's first base: the log of before ends below it. 0 = none. */
  firstAppended: number;
  /** The newest base in the segment; that of a removed shard is 0. */
  base: { readonly index: number; readonly term: number } | undefined;
  isRemoved: boolean;
  /** Where the log begins since the segment's newest base, as the newest frame that says so has it. */
  compacted: { readonly index: number; readonly term: number } | undefined;
  /** Highest index that the segment says is released; 0 = none. */
  released: number;
  /** The newest hard state in the segment. */
  state: { readonly term: number; readonly vote: number; readonly commit: number } | undefined;
  /** Of the shard's records here, whether they still count or not. */
  bytes: number;
  /** In index order. */
  log: Span[];
  /** In the order in which they were written. */
  readonly retired: Span[];
  readonly archive: Span[];
  readonly movedArchive: Span[];
  readonly movedRetired: Span[];
}

/** All of a part's spans, in lists. */
export const listsOf = ({ log, retired, archive, movedArchive, movedRetired }: ShardPart): Span[][] => [
  log,
  retired,
  archive,
  movedArchive,
  movedRetired,
];

export class SegmentIndex {
  readonly parts = new Map<number, ShardPart>();
  /** Number of the log's first segment, as the newest frame here that says so has it; 0 = none. */
  firstSegment = 0;
  private spanCount = 0;

  /** Takes in the next frame. Returns the span of a record. */
  note(head: PlacedHead): Span | undefined {
    const { kind, shard, index, term } = head;
    if (isRecord(kind)) return this.noteRecord(head);
    if (kind === FrameKind.marker) return undefined;
    if (kind === FrameKind.trimmed) {
      this.firstSegment = index;
      return undefined;
    }
    const part = this.part(shard);
    const holds = classOf(kind);
    if (holds === "log") return this.noteMoved(part, head);
    if (holds !== undefined) return this.noteArchive(part, part[holds], head);
    if (kind === FrameKind.hardState || kind === FrameKind.removed) part.state = { term, vote: head.vote, commit: index };
    if (isRebase(kind)) rebase(part, head);
    if (kind === FrameKind.compacted) part.compacted = { index, term };
    if (kind === FrameKind.released) part.released = Math.max(part.released, index);
    return undefined;
  }

  /** The shard's last index after this segment, where it was `before` before it; copies tell nothing of it. */
  last(shard: number, before: number | undefined): number | undefined {
    const part = this.parts.get(shard);
    if (part === undefined || (part.base === undefined && part.firstAppended === 0)) return before;
    return part.log.at(-1)?.last ?? part.base?.index ?? before;
  }

  /** A part for the shard, empty where there was none. */
  part(shard: number): ShardPart {
    let part = this.parts.get(shard);
    if (part === undefined) {
      part = {
        firstAppended: 0,
        base: undefined,
        isRemoved: false,
        compacted: undefined,
        released: 0,
        state: undefined,
        bytes: 0,
        log: [],
        retired: [],
        archive: [],
        movedArchive: [],
        movedRetired: [],
      };
      this.parts.set(shard, part);
    }
    return part;
  }

  private noteRecord(head: PlacedHead): Span {
    const { index, term } = head;
    const part = this.part(head.shard);
    part.bytes += head.end - head.offset;
    const span = part.log[part.log.length - 1];
    // A copy is no record that was appended: the first one behind it has yet to say what it overwrites.
    const isFirst = part.base === undefined && part.firstAppended === 0;
    if (!isFirst && span !== undefined && index === span.last + 1 && term === span.term) return extend(span, head);
    if (part.base === undefined && (isFirst || index < part.firstAppended)) part.firstAppended = index;
    cutSpans(part.log, index);
    return this.begin(part.log, head);
  }

  /** A copy has its place among the records of the log, and cuts nothing. */
  private noteMoved(part: ShardPart, head: PlacedHead): Span | undefined {
    const { index, term } = head;
    part.bytes += head.end - head.offset;
    let at = part.log.length;
    while (at > 0 && (part.log[at - 1] as Span).first > index) at--;
    const span = part.log[at - 1];
    if (span !== undefined && span.last >= index) return undefined;
    if (span !== undefined && index === span.last + 1 && term === span.term) return extend(span, head);
    const begun = this.begin([], head);
    part.log.splice(at, 0, begun);
    return begun;
  }

  private noteArchive(part: ShardPart, spans: Span[], head: PlacedHead): Span {
    part.bytes += head.end - head.offset;
    const span = spans.at(-1);
    if (span !== undefined && head.index === span.last + 1 && head.term === span.term) return extend(span, head);
    return this.begin(spans, head);
  }

  private begin(spans: Span[], { index, term, offset, end }: PlacedHead): Span {
    const span: Span = { number: this.spanCount++, first: index, last: index, term, indexes: [index], offsets: [offset], ends: [end] };
    spans.push(span);
    return span;
  }
}

function extend(span: Span, { index, offset, end }: PlacedHead): Span {
  span.last = index;
  const { offsets, ends } = span;
  const entry = offsets.length - 1;
  if (offset - (offsets[entry] as number) < strideBytes) ends[entry] = end;
  else {
    span.indexes.push(index);
    offsets.push(offset);
    ends.push(end);
  }
  return span;
}

function rebase(part: ShardPart, { kind, index, term }: PlacedHead): void {
  part.retired.push(...part.log);
  part.log = [];
  part.isRemoved = kind === FrameKind.removed;
  part.compacted = undefined;
  // The index of a tombstone is the commit index of its hard state.
  part.base = part.isRemoved ? { index: 0, term: 0 } : { index, term };
}

/** Takes records from `index` on out of a shard's log. */
function cutSpans(spans: Span[], index: number): void {
  while (spans.length > 0 && (spans.at(-1) as Span).first >= index) spans.pop();
  const span = spans.at(-1);
  if (span === undefined || span.last < index) return;
  span.last = index - 1;
  while ((span.indexes.at(-1) as number) > span.last) {
    span.indexes.pop();
    span.offsets.pop();
    span.ends.pop();
  }
}

export interface Entry {
  /** Of its first record. */
  readonly index: number;
  readonly offset: number;
  readonly end: number;
}

/** The entry of the span that the record at `index` belongs to. */
export function locate(span: Span, index: number): Entry {
  return entryAt(span, placeOf(span, index));
}

const entryAt = ({ indexes, offsets, ends }: Span, place: number): Entry => ({
  index: indexes[place] as number,
  offset: offsets[place] as number,
  end: ends[place] as number,
});

function placeOf({ indexes }: Span, index: number): number {
  let low = 0;
  let high = indexes.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((indexes[middle] as number) <= index) low = middle;
    else high = middle - 1;
  }
  return low;
}

/**
 * Ranges in which the span's records first … last are. Near ones are one: a shard that has little
 * here is found without reading all that lies between.
 */
export function stretches(span: Span, first: number, last: number): Stretch[] {
  const out: Stretch[] = [];
  for (let place = placeOf(span, first); place < span.indexes.length; place++) {
    const { index, offset, end } = entryAt(span, place);
    if (index > last) break;
    const before = out.at(-1);
    if (before !== undefined && offset <= before.end + nearBytes) before.end = end;
    else out.push({ from: offset, index, end });
  }
  return out;
}
