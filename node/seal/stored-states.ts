/** The states of a shard as object storage has them, for a node that has lost its own. */
import { HopError, type ShardId } from "#core/base";
import { type Manifest, type ManifestLog, namedObject, type ObjectStore } from "#store";
import type { MayTakeStates, StoredStatesOf } from "../replica/lost-states.ts";
import { type Received, SnapshotSink, type SnapshotStores } from "../replica/snapshot.ts";
import { unpackChunks } from "./chunk-objects.ts";

export interface StoredStatesParts {
  readonly objects: ObjectStore;
  readonly manifests: Pick<ManifestLog, "newest">;
  readonly stores: SnapshotStores;
}

/**
 * Saves the newest uploaded states of a shard in place of all that its keys have here. Returns where
 * they lead to; undefined where object storage certainly has none. Rejects with `HopError`
 * STORE_UNAVAILABLE or HASH_MISMATCH, with nothing changed.
 */
export async function takeStoredStates(
  { objects, manifests, stores }: StoredStatesParts,
  shard: ShardId,
  mayTake: MayTakeStates = () => true,
): Promise<Received | undefined> {
  const stored = await manifests.newest(shard);
  if (stored?.manifest.checkpoint === undefined) return undefined;
  const sink = new SnapshotSink(stores, shard, mayTake);
  try {
    for await (const chunk of chunksOf(objects, stored.manifest)) {
      const received = sink.take(chunk);
      if (received !== undefined) return received;
    }
  } catch (error) {
    sink.drop();
    throw error;
  }
  sink.drop();
  throw new HopError("HASH_MISMATCH", `Cannot take the states of shard ${shard} from ${objects.url}: they end before their last chunk`);
}

async function* chunksOf(objects: ObjectStore, { checkpoint }: Manifest): AsyncGenerator<Uint8Array> {
  for (const { key, sha256 } of checkpoint?.parts ?? []) {
    yield* unpackChunks(await namedObject(objects, key, { sha256 }), key);
  }
}

/** As replicas ask for them. */
export const storedStatesOf =
  ({ objects, manifests }: Pick<StoredStatesParts, "objects" | "manifests">, stores: SnapshotStores): StoredStatesOf =>
  async (shard, mayTake) =>
    (await takeStoredStates({ objects, manifests, stores }, shard, mayTake)) !== undefined;
