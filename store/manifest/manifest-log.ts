/**
 * The manifests of a cluster's shards in object storage.
 *
 * Number n is put only where there is none, so of two writers one wins and the other one learns of
 * it; whose bytes are there is asked, not guessed. A listing may be old, so it only says where to
 * begin to look: the newest manifest is the one behind which there certainly is none.
 */
import { bytesEqual, type Hasher, HopError, type ShardId } from "#core/base";
import type { ObjectStore } from "../objects/object-store.ts";
import { decodeManifest, encodeManifest, type Manifest } from "./manifest.ts";
import { manifestKey, manifestNumber, manifestPrefix } from "./object-names.ts";

export interface StoredManifest {
  readonly manifest: Manifest;
  readonly sha256: Uint8Array;
}

/** `lost`: another writer has the number. */
export type Publication =
  | { readonly kind: "published"; readonly sha256: Uint8Array }
  | { readonly kind: "lost"; readonly to: StoredManifest };

export class ManifestLog {
  readonly cluster: string;
  private readonly objects: ObjectStore;
  private readonly hasher: Hasher;

  constructor(objects: ObjectStore, cluster: string, hasher: Hasher) {
    this.objects = objects;
    this.cluster = cluster;
    this.hasher = hasher;
  }

  /** Undefined where the shard certainly has no manifest of this number. Throws `HopError` HASH_MISMATCH where it is damaged. */
  async read(shard: ShardId, number: number): Promise<StoredManifest | undefined> {
    const key = manifestKey(this.cluster, shard, number);
    const bytes = await this.objects.get(key);
    if (bytes === undefined) return undefined;
    const manifest = decodeManifest(new TextDecoder().decode(bytes), key);
    if (manifest.shard !== shard || manifest.number !== number || manifest.cluster !== this.cluster)
      throw new HopError(
        "HASH_MISMATCH",
        `Cannot read ${key}: it is manifest ${manifest.number} of shard ${manifest.shard} of ${manifest.cluster}`,
      );
    return { manifest, sha256: this.hash(bytes) };
  }

  /** The shard's newest manifest, from `known` on where one is known; undefined where there is none. */
  async newest(shard: ShardId, known?: StoredManifest): Promise<StoredManifest | undefined> {
    let newest = known;
    if (newest === undefined) {
      const listed = await this.highestListed(shard);
      // The one before, so that the listed one's place in the chain is looked at; old ones may be gone.
      if (listed > 1) newest = await this.read(shard, listed - 1);
      newest ??= await this.read(shard, Math.max(listed, 1));
      if (newest === undefined && listed > 0) throw this.gap(shard, listed);
    }
    while (newest !== undefined) {
      const next = await this.read(shard, newest.manifest.number + 1);
      if (next === undefined) return newest === known && !(await this.isThere(newest)) ? this.newest(shard) : newest;
      if (!bytesEqual(next.manifest.previous ?? new Uint8Array(), newest.sha256)) throw this.forked(shard, next.manifest.number);
      newest = next;
    }
    return undefined;
  }

  /** Puts the next manifest. Its bytes name its writer, so what another one wrote is never taken for it. */
  async publish(manifest: Manifest): Promise<Publication> {
    const { shard, number } = manifest;
    const bytes = new TextEncoder().encode(encodeManifest(manifest));
    const sha256 = this.hash(bytes);
    const key = manifestKey(this.cluster, shard, number);
    if ((await this.objects.put(key, bytes, { ifAbsent: true, sha256 })) === "stored") return { kind: "published", sha256 };
    const to = await this.read(shard, number);
    if (to === undefined) throw this.gap(shard, number);
    return { kind: "lost", to };
  }

  /** Shards that have a manifest, as far as listings show. */
  async shards(): Promise<ShardId[]> {
    const found = new Set<number>();
    for await (const { key } of this.objects.list(`${this.cluster}/manifest/s`)) {
      const shard = /\/s(\d{10})-\d{12}\.json$/.exec(key)?.[1];
      if (shard !== undefined) found.add(Number(shard));
    }
    return [...found].sort((a, b) => a - b) as ShardId[];
  }

  /** Old manifests are deleted in the order of their numbers: where one is, those behind it are. One that somebody wrote over is gone too. */
  private async isThere({ manifest: { shard, number }, sha256 }: StoredManifest): Promise<boolean> {
    const head = await this.objects.head(manifestKey(this.cluster, shard, number));
    return head !== undefined && bytesEqual(head.sha256 ?? sha256, sha256);
  }

  private async highestListed(shard: ShardId): Promise<number> {
    let highest = 0;
    for await (const { key } of this.objects.list(manifestPrefix(this.cluster, shard)))
      highest = Math.max(highest, manifestNumber(key) ?? 0);
    return highest;
  }

  private hash(bytes: Uint8Array): Uint8Array {
    const out = new Uint8Array(32);
    this.hasher.sha256(bytes, out);
    return out;
  }

  private gap(shard: ShardId, number: number): HopError {
    return new HopError(
      "HASH_MISMATCH",
      `Cannot read the manifests of shard ${shard} at ${this.objects.url}: number ${number} was there and is gone; somebody deleted it`,
    );
  }

  private forked(shard: ShardId, number: number): HopError {
    return new HopError(
      "HASH_MISMATCH",
      `Cannot read the manifests of shard ${shard} at ${this.objects.url}: number ${number} does not follow the one before it`,
    );
  }
}
