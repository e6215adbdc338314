/** Everything a node keeps in its data folder, opened together under the folder's lock. */
import { statfsSync } from "node:fs";
import { join } from "node:path";
import type { ShardId } from "#core/base";
import {
  BlobStore,
  CheckpointStore,
  FolderLock,
  type LogDisk,
  Projector,
  realDisk,
  type SealedTier,
  TieredSegmentStore,
  WalLogStore,
} from "#store";

export interface Storage {
  readonly log: WalLogStore;
  readonly blobs: BlobStore;
  readonly checkpoint: CheckpointStore;
  readonly segments: TieredSegmentStore;
  readonly projector: Projector;
  /** Closes in the reverse order, and lets go of the folder; the projector is its user's to close before. */
  close(): Promise<void>;
}

export interface StorageOptions {
  readonly dataDir: string;
  readonly warn: (message: string) => void;
  /** Told of each group commit's duration in milliseconds. */
  readonly onFlush: (ms: number) => void;
  /** Throws where the log of this name is not the folder's: then nothing beside it is touched. */
  readonly requireOwn: (logId: string) => void;
  /** Has what the log releases; undefined where there is no object storage. */
  readonly sealed: SealedTier | undefined;
}

/** Space that is prepared for later commits is written in chunks of this size, which are no commit. */
const preparedChunkBytes = 1 << 20;

/** Rejects with `HopError` STORE_UNAVAILABLE when another process uses the folder. */
export const holdFolder = (dataDir: string): Promise<FolderLock> => FolderLock.hold(dataDir, (lock) => Promise.resolve(lock));

/** Opens a folder that is held. Rejects with `HopError` HASH_MISMATCH when it is damaged. */
export async function openStorage(lock: FolderLock, options: StorageOptions): Promise<Storage> {
  const { dataDir, warn, onFlush, requireOwn, sealed } = options;
  const log = await WalLogStore.open({
    dir: join(dataDir, "log"),
    disk: timed(realDisk, onFlush),
    segmentBytes: segmentBytesFor(dataDir),
  });
  try {
    requireOwn(log.logId);
    if (log.torn !== undefined) warn("The log ended in a write that a crash interrupted; what was never acknowledged of it was cut off");
    return openBeside(log, { dataDir, warn, sealed, release: () => lock.release() });
  } catch (error) {
    await log.close();
    throw error;
  }
}

/** What is derived from the log, and blobs. */
function openBeside(
  log: WalLogStore,
  folder: Pick<StorageOptions, "dataDir" | "warn" | "sealed"> & { readonly release: () => void },
): Storage {
  const { dataDir, warn, release, sealed } = folder;
  const derived = {
    logId: log.logId,
    warn,
    durableIndex: (shard: ShardId) => log.durableIndex(shard),
    isRemoved: (shard: ShardId) => log.isRemoved(shard),
  };
  const checkpoint = CheckpointStore.open({ ...derived, path: join(dataDir, "checkpoint.db") });
  const projector = Projector.open({ ...derived, path: join(dataDir, "visibility.db") });
  return {
    log,
    blobs: BlobStore.open(join(dataDir, "blobs")),
    checkpoint,
    segments: new TieredSegmentStore(log, sealed),
    projector,
    close: async () => {
      await log.close();
      checkpoint.close();
      release();
    },
  };
}

const segmentBytesMax = 64 << 20;
const segmentBytesMin = 1 << 20;

/** Segments are written full of zeros before they are used: on a small disk they are small. */
function segmentBytesFor(dataDir: string): number {
  const { bavail, bsize } = statfsSync(dataDir);
  const share = 2 ** Math.floor(Math.log2(Math.max((bavail * bsize) / 32, segmentBytesMin)));
  return Math.min(share, segmentBytesMax);
}

function timed(disk: LogDisk, onFlush: (ms: number) => void): LogDisk {
  return {
    sync: (fd, done) => disk.sync(fd, done),
    write: (fd, bytes, from, count, at, done) => {
      const startedMs = performance.now();
      disk.write(fd, bytes, from, count, at, (error, taken) => {
        if (error === null && count < preparedChunkBytes) onFlush(performance.now() - startedMs);
        done(error, taken);
      });
    },
  };
}
