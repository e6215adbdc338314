/** All that a member does about blobs, put together: keeps and fetches them, spreads, uploads, counts and collects them. */
import { statfs } from "node:fs/promises";
import type { BlobStore, LogStore, ObjectStore } from "#store";
import type { Metrics } from "../observe/metrics.ts";
import type { PeerNet } from "../peer/peer-net.ts";
import { BlobUploads } from "../seal/blob-uploads.ts";
import type { Note } from "../shard/shard-host.ts";
import { realTiming as timing } from "../timing.ts";
import { BlobCache, type DiskSpace } from "./blob-cache.ts";
import { BlobCollector } from "./blob-collector.ts";
import { BlobFigures } from "./blob-figures.ts";
import { BlobKeeper } from "./blob-keeper.ts";
import { blobNodes, bundlesIn } from "./blob-nodes.ts";
import { BlobObjects } from "./blob-objects.ts";
import { BlobRemoval } from "./blob-removal.ts";
import { ClusterBlobs } from "./cluster-blobs.ts";
import type { Placement } from "./placement.ts";

export interface BlobKeepingParts {
  readonly store: BlobStore;
  readonly dataDir: string;
  readonly log: LogStore;
  readonly net: PeerNet;
  readonly placement: Placement;
  /** Object storage, where there is one, and what its keys begin with. */
  readonly objects: ObjectStore | undefined;
  readonly cluster: string;
  /** What no event names is kept so long. */
  readonly graceMs: number;
  readonly metrics: Metrics;
  readonly note: Note;
}

export class BlobKeeping {
  readonly blobs: ClusterBlobs;
  /** Undefined without object storage. */
  readonly uploads: BlobUploads | undefined;
  private readonly parts: BlobKeepingParts;
  private readonly keeper: BlobKeeper;
  private readonly collector: BlobCollector;
  private readonly cache: BlobCache | undefined;

  constructor(parts: BlobKeepingParts) {
    this.parts = parts;
    const { store, log, net, placement, objects, cluster, graceMs, metrics, note } = parts;
    const nodes = blobNodes(placement);
    const stored = objects && new BlobObjects(objects, cluster);
    this.blobs = new ClusterBlobs({ local: store, stored, net, nodes, timing, graceMs });
    this.keeper = new BlobKeeper({ blobs: this.blobs, nodes, timing, stored: () => store.hashes(), note });
    const removal = new BlobRemoval({ net, store, log, timing, graceMs });
    this.collector = new BlobCollector({ net, placement, stored, timing, graceMs, note });
    this.cache = stored && new BlobCache({ store, stored, space: () => spaceOf(parts.dataDir), timing, note });
    const uploads = objects && new BlobUploads({ cluster, objects, blob: (sha256) => this.blobs.get(sha256) });
    this.uploads = uploads;
    const figures = new BlobFigures(() => store.kept());
    metrics.watchBlobs({
      count: () => figures.totals().count,
      bytes: () => figures.totals().bytes,
      waiting: () => uploads?.waitingCount ?? 0,
      uploaded: () => uploads?.uploadedCount ?? 0,
      collected: () => removal.removedCount,
    });
  }

  start(): void {
    this.collector.start();
    this.cache?.start();
  }

  /** To be called with each view. */
  onView(): void {
    this.keeper.onMembers();
  }

  /** Code that this node is to upload: it leads placement, which names it. */
  *bundles(): Generator<Uint8Array> {
    const { placement } = this.parts;
    if (placement.leads) yield* bundlesIn(placement.view);
  }

  close(): void {
    this.keeper.close();
    this.collector.close();
    this.cache?.close();
  }
}

async function spaceOf(folder: string): Promise<DiskSpace> {
  const { bavail, blocks, bsize } = await statfs(folder);
  return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
}
