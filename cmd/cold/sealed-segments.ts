/** Sealed segments of a cluster that can have wanted events, found by their manifests and indexes. */
import type { Partition } from "#core/base";
import { type Manifest, type ObjectStore, type SegmentEntry, segmentReader } from "#store";
import { inParallel } from "../parallel.ts";
import { type EventFilter, mayMatch } from "./event-filter.ts";

const indexesAtOnce = 8;

/** Those that may match; where one partition is wanted, their indexes are asked too. */
export async function matchingSegments(objects: ObjectStore, manifests: readonly Manifest[], filter: EventFilter): Promise<SegmentEntry[]> {
  const entries = manifests.flatMap(({ segments }) => segments).filter(({ summary }) => mayMatch(summary, filter));
  const { partition } = filter;
  if (partition === undefined) return entries;
  const held = await inParallel(entries, indexesAtOnce, (entry) => segmentReader(objects, entry).mayHold(partition));
  return entries.filter((_entry, at) => held[at]);
}

/** The segments of a shard that can have the partition, the newest one first. */
export function newestFirst({ segments }: Manifest, partition: Partition): SegmentEntry[] {
  const filter: EventFilter = { sinceMs: undefined, untilMs: undefined, prefix: undefined, partition };
  return segments.filter(({ summary }) => mayMatch(summary, filter)).reverse();
}
