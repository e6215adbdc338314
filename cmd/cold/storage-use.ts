/** What object storage holds of a cluster, by namespace: from manifests, and from indexes where several namespaces share a segment. */
import type { Partition } from "#core/base";
import { type Manifest, type ObjectStore, type SegmentEntry, type SegmentSummary, segmentReader, shardPrefixes } from "#store";
import { inParallel } from "../parallel.ts";
import type { ColdPlace } from "./cold-place.ts";

export interface NamespaceUse {
  /** Empty: partitions of no namespace. */
  readonly namespace: string;
  events: number;
  /** Of segments and their indexes; one that several share is divided by their events. */
  bytes: number;
  /** That have events of it. */
  segments: number;
  /** Events that retention took away; undefined where they were not counted. */
  expired: number | undefined;
}

export interface ObjectsUse {
  count: number;
  bytes: number;
}

export interface StorageUse {
  readonly namespaces: readonly NamespaceUse[];
  readonly segments: ObjectsUse;
  readonly checkpoints: ObjectsUse;
  readonly records: ObjectsUse;
  /** As they are listed now. */
  readonly blobs: ObjectsUse;
  /** Of the four kinds above but blobs: listed, and named by no newest manifest. */
  readonly unnamed: ObjectsUse;
}

const indexesAtOnce = 8;

/** Namespace of a run's partition, which begins with `run/`; empty for others. */
export const namespaceIn = (partition: string) => /^run\/([^:]*):/.exec(partition)?.[1] ?? "";

export async function storageUse(
  { objects, cluster }: Pick<ColdPlace, "objects" | "cluster">,
  manifests: readonly Manifest[],
  { countsExpired = false }: { readonly countsExpired?: boolean } = {},
): Promise<StorageUse> {
  const entries = manifests.flatMap(({ segments }) => segments);
  const lives = countsExpired ? new Map<Partition, Life>() : undefined;
  const parts = await inParallel(entries, indexesAtOnce, (entry) => eventsByNamespace(objects, entry, lives));
  const namespaces = new Map<string, NamespaceUse>();
  for (const [at, { summary }] of entries.entries()) {
    const bytes = summary.segmentBytes + summary.indexBytes;
    for (const [namespace, events] of parts[at] ?? []) {
      const use = namespaces.get(namespace) ?? { namespace, events: 0, bytes: 0, segments: 0, expired: countsExpired ? 0 : undefined };
      namespaces.set(namespace, use);
      use.events += events;
      use.bytes += Math.round((bytes * events) / summary.rows);
      use.segments++;
    }
  }
  // What is sealed of a partition has no gap but where its history expired.
  for (const [partition, { end, events }] of lives ?? []) {
    const use = namespaces.get(namespaceIn(partition));
    if (use !== undefined) use.expired = (use.expired ?? 0) + end - events;
  }
  const named = new Set<string>();
  const sum = (all: readonly { readonly key: string; readonly bytes: number }[]): ObjectsUse => {
    for (const { key } of all) named.add(key);
    return { count: all.length, bytes: all.reduce((bytes, each) => bytes + each.bytes, 0) };
  };
  const segments = sum(entries.flatMap(objectsOf));
  const checkpoints = sum(manifests.flatMap(({ checkpoint }) => checkpoint?.parts ?? []));
  const records = sum(manifests.flatMap((each) => each.records));
  return {
    namespaces: [...namespaces.values()].sort((a, b) => b.bytes - a.bytes),
    segments,
    checkpoints,
    records,
    blobs: await listed(objects, [`${cluster}/blob/`], () => true),
    unnamed: await listed(
      objects,
      manifests.flatMap(({ shard }) => shardPrefixes(cluster, shard)),
      (key) => !named.has(key),
    ),
  };
}

function objectsOf({ segment, index, summary }: SegmentEntry) {
  return [
    { key: segment, bytes: summary.segmentBytes },
    { key: index, bytes: summary.indexBytes },
  ];
}

/** What is there of one partition. */
interface Life {
  end: number;
  events: number;
}

/** With `lives`, every index is read, and what it has of each partition is added up there. */
async function eventsByNamespace(
  objects: ObjectStore,
  entry: SegmentEntry,
  lives: Map<Partition, Life> | undefined,
): Promise<ReadonlyMap<string, number>> {
  const { summary } = entry;
  const only = onlyNamespace(summary);
  if (only !== undefined && lives === undefined) return new Map(summary.rows === 0 ? [] : [[only, summary.rows]]);
  const events = new Map<string, number>();
  for await (const { partition, firstSeq, endSeq } of segmentReader(objects, entry).partitions()) {
    const namespace = namespaceIn(partition);
    events.set(namespace, (events.get(namespace) ?? 0) + endSeq - firstSeq);
    if (lives === undefined) continue;
    const life = lives.get(partition) ?? { end: 0, events: 0 };
    lives.set(partition, { end: Math.max(life.end, endSeq), events: life.events + endSeq - firstSeq });
  }
  return events;
}

/** Partitions are in order: what the first and the last one begin with, all begin with. */
function onlyNamespace({ extent }: SegmentSummary): string | undefined {
  if (extent === undefined) return "";
  const namespace = namespaceIn(extent.firstPartition);
  return namespace !== "" && namespace === namespaceIn(extent.lastPartition) ? namespace : undefined;
}

async function listed(objects: ObjectStore, prefixes: readonly string[], counts: (key: string) => boolean): Promise<ObjectsUse> {
  const use = { count: 0, bytes: 0 };
  for (const prefix of prefixes)
    for await (const { key, bytes } of objects.list(prefix)) {
      if (!counts(key)) continue;
      use.count++;
      use.bytes += bytes;
    }
  return use;
}
