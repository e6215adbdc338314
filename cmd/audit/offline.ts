/**
 * Audits the files of a server that is not running: the log to the byte, every history in it, and
 * every blob. Nothing in the folder is changed, but for the lock that keeps a server away
 * meanwhile.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { type RunId, runPartition, toHex } from "#core/base";
import { decodeEvent, decodeRecord, fromBytes, type Record } from "#proto";
import { auditBlobs, auditLog, BlobStore, FolderLock, type PlacedRecord } from "#store";
import { CommandError, exit } from "../failure.ts";
import { AuditError, BlobAudit, HistoryAudit, type HistorySource } from "./history-audit.ts";

export interface AuditedPartition {
  readonly partition: string;
  readonly size: number;
  /** Hex. */
  readonly root: string;
}

export interface FolderVerdict {
  readonly partitions: readonly AuditedPartition[];
  readonly records: number;
  readonly events: number;
  readonly blobs: number;
  /** Bytes that a crash may have left behind the log's last whole record, and where; undefined = none. */
  readonly torn: { readonly file: string; readonly offset: number; readonly bytes: number } | undefined;
}

export class OfflineData {
  readonly #folder: string;
  readonly #lock: FolderLock;
  readonly #blobs: BlobStore;

  private constructor(folder: string, lock: FolderLock) {
    this.#folder = folder;
    this.#lock = lock;
    this.#blobs = BlobStore.forReading(join(folder, blobFolder));
  }

  /** Throws where the folder holds no data, or a server uses it. */
  static open(folder: string): OfflineData {
    if (!existsSync(join(folder, logFolder))) {
      throw new CommandError(exit.notFound, `Cannot audit ${folder}: it holds no log`, {
        next: "name the folder that `hop server start --data` or `hop dev` uses",
      });
    }
    return new OfflineData(folder, FolderLock.acquire(folder));
  }

  close(): void {
    this.#lock.release();
  }

  /** One run's history, as the log has it. */
  source(run: RunId): HistorySource {
    const partition = runPartition(run);
    const log = join(this.#folder, logFolder);
    return {
      partition,
      async *events() {
        let found = 0;
        for (const record of auditLog(log)) {
          const events = eventsOf(record)
            .event.filter((bytes) => fromBytes(decodeEvent, bytes).partition === partition)
            .map((bytes) => bytes.slice());
          found += events.length;
          if (events.length > 0) yield events;
        }
        if (found === 0) throw new CommandError(exit.notFound, `Cannot audit ${run}: the log holds no event of it`);
      },
      blob: (sha256) => this.#blobs.get(sha256),
      claimed: () => Promise.resolve(undefined),
    };
  }

  /** Everything, in one pass. Throws `AuditError` or `CorruptionError` that names the first damage. */
  async audit(progress: (events: number) => void): Promise<FolderVerdict> {
    const histories = new Map<string, { readonly audit: HistoryAudit; lastIndex: number }>();
    const blobs = new BlobAudit((sha256) => this.#blobs.get(sha256));
    const records = auditLog(join(this.#folder, logFolder));
    let step = records.next();
    let recordCount = 0;
    let eventCount = 0;
    for (; step.done !== true; step = records.next()) {
      const record = eventsOf(step.value);
      recordCount += 1;
      for (const [i, view] of record.event.entries()) {
        const bytes = view.slice();
        const { partition } = fromBytes(decodeEvent, bytes);
        let history = histories.get(partition);
        if (history === undefined) {
          history = { audit: new HistoryAudit(partition), lastIndex: 0 };
          histories.set(partition, history);
        }
        const audited = history.audit.add(bytes);
        checkPrevious(step.value, { partition, got: record.previous[i] ?? 0, want: history.lastIndex });
        history.lastIndex = step.value.index;
        await blobs.check(audited);
        eventCount += 1;
      }
      progress(eventCount);
    }
    const partitions = [...histories.values()].map(({ audit }) => partitionOf(audit));
    return { partitions, records: recordCount, events: eventCount, blobs: this.#blobCount(), torn: step.value };
  }

  #blobCount(): number {
    let count = 0;
    for (const _blob of auditBlobs(join(this.#folder, blobFolder))) count += 1;
    return count;
  }
}

const logFolder = "log";
const blobFolder = "blobs";

function partitionOf(audit: HistoryAudit): AuditedPartition {
  const head = audit.finish();
  return { partition: audit.partition, size: head.size, root: toHex(head.root) };
}

function eventsOf(record: PlacedRecord): Record {
  try {
    return fromBytes(decodeRecord, record.body);
  } catch (error) {
    throw new AuditError(`${placeOf(record)} can't be read: ${(error as Error).message}`, { cause: error });
  }
}

/** History is read backwards along these: a wrong one would hide events. */
function checkPrevious(
  record: PlacedRecord,
  { partition, got, want }: { readonly partition: string; readonly got: number; readonly want: number },
): void {
  if (got !== want)
    throw new AuditError(
      `${placeOf(record)} is not what was recorded: it says that the event before in ${partition} is in record ${got}, want ${want}`,
    );
}

const placeOf = (record: PlacedRecord) => `Record ${record.index} of shard ${record.shard}, at byte ${record.offset} of ${record.file},`;
