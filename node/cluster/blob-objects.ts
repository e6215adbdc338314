/** Blobs of a cluster in object storage: what is left of them where no node has a copy. */
import { HopError, toHex } from "#core/base";
import { blobKey, type ObjectStore } from "#store";
import type { StoredBlobs } from "./cluster-blobs.ts";

export class BlobObjects implements StoredBlobs {
  private readonly objects: Pick<ObjectStore, "download" | "head" | "url">;
  private readonly cluster: string;

  /** `cluster` begins the keys of its objects. */
  constructor(objects: Pick<ObjectStore, "download" | "head" | "url">, cluster: string) {
    this.objects = objects;
    this.cluster = cluster;
  }

  async size(sha256: Uint8Array): Promise<number | undefined> {
    return (await this.objects.head(blobKey(this.cluster, sha256)))?.bytes;
  }

  async download(sha256: Uint8Array, take: (bytes: Uint8Array) => void | Promise<void>): Promise<number | undefined> {
    const { objects } = this;
    const key = blobKey(this.cluster, sha256);
    const head = await objects.head(key);
    if (head === undefined) return undefined;
    const size = await objects.download(key, take, { sha256 });
    if (size === undefined) throw new HopError("STORE_UNAVAILABLE", `Cannot read blob ${toHex(sha256)}: it left ${objects.url} meanwhile`);
    return size;
  }
}
