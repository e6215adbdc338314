/** Sealed segments of a cluster that can have wanted events, found by their manifests and indexes. */
import { HopError, type Partition } from "#core/base";
import { type Manifest, type ObjectStore, SealedReader, type SegmentEntry } from "#store";
import { type EventFilter, mayMatch } from "./event-filter.ts";
import { inParallel } from "./parallel.ts";

const indexesAtOnce = 8;

/** Reads of one segment by ranges; nothing is believed that its summary does not cover. */
export function readerOf(objects: ObjectStore, { segment, index, summary }: SegmentEntry): SealedReader {
  return new SealedReader(summary, {
    segment,
    index,
    read: async (object, at, bytes) => {
      const key = object === "segment" ? segment : index;
      const found = await objects.get(key, { range: { begin: at, end: at + bytes } });
      if (found !== undefined) return found;
      throw missing(objects, key);
    },
  });
}

export const missing = (objects: ObjectStore, key: string) =>
  new HopError("HASH_MISMATCH", `Cannot read ${key}: a manifest names it, and ${objects.url} does not have it`);

/** Those that may match; where one partition is wanted, their indexes are asked too. */
export async function matchingSegments(objects: ObjectStore, manifests: readonly Manifest[], filter: EventFilter): Promise<SegmentEntry[]> {
  const entries = manifests.flatMap(({ segments }) => segments).filter(({ summary }) => mayMatch(summary, filter));
  const { partition } = filter;
  if (partition === undefined) return entries;
  const held = await inParallel(entries, indexesAtOnce, (entry) => readerOf(objects, entry).mayHold(partition));
  return entries.filter((_entry, at) => held[at]);
}

/** The segments of a shard that can have the partition, the newest one first. */
export function newestFirst({ segments }: Manifest, partition: Partition): SegmentEntry[] {
  const filter: EventFilter = { sinceMs: undefined, untilMs: undefined, prefix: undefined, partition };
  return segments.filter(({ summary }) => mayMatch(summary, filter)).reverse();
}
