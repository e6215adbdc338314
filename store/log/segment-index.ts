/**
 * Where the frames of one segment are, and what they did to each shard's log.
 *
 * Records lie in spans: indexes that follow each other, of one term, with an entry about every
 * 16 KiB that says where the span's records from there on begin and end. A shard has three kinds of them here: those of its **log** as it was at the segment's
 * end, those that a base **retired**, and those of the **archive** that came from elsewhere. What
 * a later record overwrote is cut off here; what it overwrote in earlier segments follows from
 * `firstAppended`, so that closed segments never change.
 */
import { FrameKind, isArchive, isRebase, isRecord, type PlacedHead } from "./record-frame.ts";

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
  /** The newest hard state in the segment. */
  state: { readonly term: number; readonly vote: number; readonly commit: number } | undefined;
  /** In index order. */
  log: Span[];
  /** In the order in which they were written. */
  readonly retired: Span[];
  readonly archive: Span[];
}

export class SegmentIndex {
  readonly parts = new Map<number, ShardPart>();
  private spanCount = 0;

  /** Takes in the next frame. Returns the span of a record. */
  note(head: PlacedHead): Span | undefined {
    const { kind, shard, index, term } = head;
    if (isRecord(kind)) return this.noteRecord(head);
    if (isArchive(kind)) return this.noteArchive(head);
    if (kind === FrameKind.hardState || kind === FrameKind.removed) this.part(shard).state = { term, vote: head.vote, commit: index };
    if (isRebase(kind)) rebase(this.part(shard), head);
    return undefined;
  }

  /** The shard's last index after this segment, where it was `before` before it. */
  last(shard: number, before: number | undefined): number | undefined {
    const part = this.parts.get(shard);
    return part?.log.at(-1)?.last ?? part?.base?.index ?? before;
  }

  /** A part for the shard, empty where there was none. */
  part(shard: number): ShardPart {
    let part = this.parts.get(shard);
    if (part === undefined) {
      part = { firstAppended: 0, base: undefined, isRemoved: false, state: undefined, log: [], retired: [], archive: [] };
      this.parts.set(shard, part);
    }
    return part;
  }

  private noteRecord(head: PlacedHead): Span {
    const { index, term } = head;
    const part = this.part(head.shard);
    const span = part.log[part.log.length - 1];
    if (span !== undefined && index === span.last + 1 && term === span.term) return extend(span, head);
    if (part.base === undefined && (part.firstAppended === 0 || index < part.firstAppended)) part.firstAppended = index;
    cutSpans(part.log, index);
    return this.begin(part.log, head);
  }

  private noteArchive(head: PlacedHead): Span {
    const { archive } = this.part(head.shard);
    const span = archive.at(-1);
    if (span !== undefined && head.index === span.last + 1 && head.term === span.term) return extend(span, head);
    return this.begin(archive, head);
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
