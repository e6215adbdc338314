/** Which of a shard's sealed segments are worth merging: a pure function of their sizes. */
import type { SegmentEntry } from "#store";

export interface CompactionPolicy {
  /** Of a merged segment, about; larger ones stay as they are. */
  readonly targetBytes: number;
  /** Events in one: all of them are in memory while it is made. */
  readonly rowsMax: number;
  /** Fewer neighbours are not worth it. */
  readonly segmentsMin: number;
}

const MiB = 1 << 20;

/** Of what nobody asked for. */
export const compactionDefault: CompactionPolicy = { targetBytes: 64 * MiB, rowsMax: 1_000_000, segmentsMin: 8 };

/**
 * Neighbours to merge into one, as [from, end) of `segments`; undefined where nothing is worth it.
 * The largest of them is no larger than all others together, so an event is written again only
 * when what it lies in has doubled.
 */
export function neighboursToMerge(
  segments: readonly SegmentEntry[],
  { targetBytes, rowsMax, segmentsMin }: CompactionPolicy,
): readonly [number, number] | undefined {
  for (let from = 0; from + segmentsMin <= segments.length; from++) {
    let [bytes, rows, largest, end] = [0, 0, 0, from];
    for (const { summary } of segments.slice(from)) {
      if (bytes + summary.segmentBytes > targetBytes || rows + summary.rows > rowsMax) break;
      bytes += summary.segmentBytes;
      rows += summary.rows;
      largest = Math.max(largest, summary.segmentBytes);
      end++;
    }
    if (end - from >= segmentsMin && largest * 2 <= bytes) return [from, end];
  }
  return undefined;
}
