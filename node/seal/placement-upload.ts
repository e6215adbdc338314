/**
 * Placement in object storage: nodes, the shard map, deployments, namespaces, policies.
 *
 * Whoever leads placement puts its states there when they have changed, under numbers that are
 * used once and never written over; a few old ones are kept. A cluster can't be rebuilt without them:
 * what its runs are pinned to and who may do what is in no shard.
 *
 * An object is the SHA-256 of what follows it, and a `PlacementUpload`.
 */
import { bytesEqual, errorText, type Hasher, HopError, toHex } from "#core/base";
import { uploadedPlacement } from "#core/placement";
import {
  decodePlacementStates,
  decodePlacementUpload,
  encodePlacementUpload,
  fromBytes,
  toBytes,
  type PlacementUpload as Uploaded,
} from "#proto";
import { blobKey, type ObjectStore, type PlacementNumber, placementKey, placementNumber, placementPrefix } from "#store";
import { rebuiltElsewhere } from "../restore/claims.ts";
import { Rounds } from "../rounds.ts";
import type { Note } from "../shard/shard-host.ts";
import type { Timing } from "../timing.ts";

const lookMs = 500;
const pauseMs = { min: 1000, max: 60_000 };
const kept = 5;
const hashBytes = 32;

/** Placement as the node that leads it has it. */
export interface UploadablePlacement {
  /** Changes with each change of the states. */
  readonly version: number;
  /** Committed, as of that version or later. */
  states(): Uint8Array;
}

export interface PlacementUploadParts {
  readonly cluster: string;
  readonly clusterId: string;
  readonly restoreEpoch: number;
  readonly objects: ObjectStore;
  readonly hasher: Hasher;
  readonly timing: Timing;
  readonly note: Note;
  /** Undefined while this node does not lead placement, or has not committed its last change. */
  readonly placement: () => UploadablePlacement | undefined;
  /** Bytes of a blob, wherever in the cluster they are. */
  readonly blob: (sha256: Uint8Array) => Promise<Uint8Array>;
}

export class PlacementUpload {
  private readonly parts: PlacementUploadParts;
  private readonly knownBlobs = new Set<string>();
  /** Version that is uploaded, as far as this node knows; another leader may have uploaded it before. */
  private uploaded = 0;
  private number = 0;
  private readonly rounds: Rounds;

  constructor(parts: PlacementUploadParts) {
    this.parts = parts;
    this.rounds = new Rounds({
      timing: parts.timing,
      everyMs: lookMs,
      round: () => this.look(),
      failed: (error, inMs) => parts.note("warn", "placement is not uploaded, and that is tried again", { inMs, reason: errorText(error) }),
      pauseMs,
    });
  }

  start(): void {
    this.rounds.start();
  }

  stop(): void {
    this.rounds.stop();
  }

  private async look(): Promise<void> {
    const now = this.parts.placement();
    // Whoever leads next begins anew: what others uploaded meanwhile is not known here.
    if (now === undefined) this.uploaded = 0;
    if (now === undefined || now.version <= this.uploaded) return;
    const { version } = now;
    await this.upload(now.states());
    this.uploaded = version;
  }

  private async upload(states: Uint8Array): Promise<void> {
    const { cluster, clusterId, restoreEpoch, objects, timing } = this.parts;
    const elsewhere = await rebuiltElsewhere(objects, cluster, restoreEpoch);
    if (elsewhere !== undefined) throw new HopError("FOREIGN_CLUSTER", elsewhere);
    await this.uploadBundles(states);
    const all = await uploadsOf(objects, cluster);
    this.number = Math.max(this.number, 0, ...all.filter(({ epoch }) => epoch === restoreEpoch).map(({ number }) => number));
    for (;;) {
      const number = ++this.number;
      const key = placementKey(cluster, { epoch: restoreEpoch, number });
      const bytes = packPlacement(
        { clusterId, restoreEpoch, number, timeMs: Math.round(timing.wallMs()), states: fromBytes(decodePlacementStates, states) },
        this.parts.hasher,
      );
      if ((await objects.put(key, bytes, { ifAbsent: true })) === "conflict") continue;
      const back = await objects.get(key);
      if (back === undefined || !bytesEqual(back, bytes))
        throw new HopError("STORE_UNAVAILABLE", `Cannot read ${key} back from ${objects.url}`);
      break;
    }
    await objects.delete(all.slice(0, Math.max(0, all.length + 1 - kept)).map((each) => placementKey(cluster, each)));
  }

  /** Code that is deployed and that no run has started on yet: no shard's segment names it. */
  private async uploadBundles(states: Uint8Array): Promise<void> {
    const { cluster, objects, blob } = this.parts;
    for (const sha256 of uploadedPlacement(states).bundles) {
      const name = toHex(sha256);
      if (this.knownBlobs.has(name)) continue;
      const key = blobKey(cluster, sha256);
      if ((await objects.head(key)) === undefined) {
        await objects.put(key, await blob(sha256), { ifAbsent: true, sha256 });
        await objects.download(key, () => {}, { sha256 });
      }
      this.knownBlobs.add(name);
    }
  }
}

function packPlacement(upload: Uploaded, hasher: Hasher): Uint8Array {
  const body = toBytes(encodePlacementUpload, upload);
  const bytes = new Uint8Array(hashBytes + body.length);
  hasher.sha256(body, bytes.subarray(0, hashBytes));
  bytes.set(body, hashBytes);
  return bytes;
}

/** Throws `HopError` HASH_MISMATCH where the object `key` is not what was uploaded under it. */
export function unpackPlacement(bytes: Uint8Array, key: string, hasher: Hasher): Uploaded {
  const want = new Uint8Array(hashBytes);
  const body = bytes.subarray(hashBytes);
  hasher.sha256(body, want);
  if (!bytesEqual(bytes.subarray(0, hashBytes), want))
    throw new HopError(
      "HASH_MISMATCH",
      `Cannot read ${key}: its bytes have SHA-256 ${toHex(want)}, and it says ${toHex(bytes.subarray(0, hashBytes))}`,
    );
  const upload = fromBytes(decodePlacementUpload, body);
  const named = placementNumber(key);
  if (named?.epoch !== upload.restoreEpoch || named.number !== upload.number)
    throw new HopError("HASH_MISMATCH", `Cannot read ${key}: it is number ${upload.number} of restore epoch ${upload.restoreEpoch}`);
  return upload;
}

/** Uploads of a cluster's placement, oldest first, as far as listings show. */
export async function uploadsOf(objects: ObjectStore, cluster: string): Promise<PlacementNumber[]> {
  const all: PlacementNumber[] = [];
  for await (const { key } of objects.list(placementPrefix(cluster))) {
    const number = placementNumber(key);
    if (number !== undefined) all.push(number);
  }
  return all.sort((a, b) => a.epoch - b.epoch || a.number - b.number);
}

/** The newest upload, undefined where there is none. Rejects with `HopError` HASH_MISMATCH where it is damaged. */
export async function newestPlacement(objects: ObjectStore, cluster: string, hasher: Hasher): Promise<Uploaded | undefined> {
  let newest = (await uploadsOf(objects, cluster)).at(-1);
  if (newest === undefined) return undefined;
  // A listing may be old: behind its end it is asked.
  while ((await objects.head(placementKey(cluster, { ...newest, number: newest.number + 1 }))) !== undefined)
    newest = { ...newest, number: newest.number + 1 };
  const key = placementKey(cluster, newest);
  const bytes = await objects.get(key);
  if (bytes === undefined) throw new HopError("HASH_MISMATCH", `Cannot read ${key}: it was there and is gone; somebody deleted it`);
  return unpackPlacement(bytes, key, hasher);
}
