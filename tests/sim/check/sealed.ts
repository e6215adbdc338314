/** What must hold of object storage: it has what was committed, once, and nothing else. */
import { drainMicrotasks } from "bun:jsc";
import { bytesEqual, type ShardId } from "#core/base";
import {
  decodeManifest,
  inMemory,
  type Manifest,
  manifestKey,
  manifestNumber,
  manifestPrefix,
  SealedReader,
  type SegmentEntry,
  type StoredObject,
} from "#store";
import { digest } from "../../hashers.ts";
import { coldCluster } from "../cold-store.ts";
import type { Simulation } from "../simulation.ts";
import { claim } from "../violation.ts";

const rule = "sealedIsCommitted";

/** Of each shard, the newest manifest's segments are its committed events up to where it says, byte for byte. */
export function sealedIsCommitted(sim: Simulation): void {
  const checking = [...sim.journal.shards.keys()].filter((shard) => shard !== 0).map((shard) => checkShard(sim, shard));
  let failure: Error | undefined;
  let isDone = false;
  Promise.all(checking).then(
    () => {
      isDone = true;
    },
    (error: Error) => {
      failure = error;
    },
  );
  drainMicrotasks();
  if (failure !== undefined) throw failure as Error;
  claim(rule, isDone, () => "a check of what is sealed waits for something");
}

async function checkShard(sim: Simulation, shard: ShardId): Promise<void> {
  const newest = newestManifest(sim, shard);
  const record = sim.journal.shards.get(shard)?.record;
  claim(
    rule,
    (newest?.number ?? 0) >= (record?.manifest ?? 0),
    () => `shard ${shard} tells of manifest ${record?.manifest}, there are ${newest?.number ?? 0}`,
  );
  if (newest === undefined) return;
  for (const each of [...(newest.checkpoint?.parts ?? []), ...newest.records]) object(sim, each);
  let rows = 0;
  for (const entry of newest.segments) rows += await checkSegment(sim, entry);
  let wanted = 0;
  for (const { events } of sim.journal.partitions.values())
    for (const e of events) if (e.shard === shard && e.index <= newest.through) wanted++;
  claim(rule, rows === wanted, () => `shard ${shard} is sealed through ${newest.through} with ${rows} events, committed are ${wanted}`);
}

/** Each manifest follows the one before; old ones may be gone. */
export function newestManifest(sim: Simulation, shard: ShardId): Manifest | undefined {
  let newest: Manifest | undefined;
  let before: Uint8Array | undefined;
  const prefix = manifestPrefix(coldCluster, shard);
  const numbers = [...sim.cold.bucket.objects.keys()].filter((key) => key.startsWith(prefix)).map((key) => manifestNumber(key) ?? 0);
  const lowest = Math.min(...numbers);
  for (let number = lowest; ; number++) {
    const key = manifestKey(coldCluster, shard, number);
    const stored = sim.cold.bucket.objects.get(key);
    if (stored === undefined) return newest;
    const manifest = decodeManifest(new TextDecoder().decode(stored.bytes), key);
    claim(
      rule,
      (number === lowest && number > 1) || bytesEqual(manifest.previous ?? new Uint8Array(0), before ?? new Uint8Array(0)),
      () => `${key} does not follow the one before it`,
    );
    claim(
      rule,
      manifest.through >= (newest?.through ?? 0),
      () => `${key} is through ${manifest.through}, the one before through ${newest?.through}`,
    );
    newest = manifest;
    before = digest(stored.bytes);
  }
}

async function checkSegment(sim: Simulation, { segment, index, summary }: SegmentEntry): Promise<number> {
  const bytes = {
    segment: object(sim, { key: segment, bytes: summary.segmentBytes, sha256: summary.segmentSha256 }),
    index: object(sim, { key: index, bytes: summary.indexBytes, sha256: summary.indexSha256 }),
  };
  const reader = new SealedReader(summary, inMemory(bytes, { segment, index }));
  let rows = 0;
  for await (const group of reader.rows()) {
    rows += group.length;
    for (const { partition, seq, event, index: at } of group) {
      const committed = sim.journal.of(partition).events[seq];
      const isSame =
        committed !== undefined && committed.shard === summary.shard && committed.index === at && bytesEqual(committed.bytes, event);
      claim(rule, isSame, () => `${segment} has event ${seq} of ${partition} of record ${at}, which is not the committed one`);
    }
  }
  return rows;
}

function object(sim: Simulation, { key, bytes, sha256 }: StoredObject): Uint8Array {
  const stored = sim.cold.bucket.objects.get(key);
  claim(rule, stored !== undefined, () => `a manifest names ${key}, which is not there`);
  claim(
    rule,
    stored.bytes.length === bytes && bytesEqual(digest(stored.bytes), sha256),
    () => `${key} holds other bytes than its manifest says`,
  );
  return stored.bytes;
}
