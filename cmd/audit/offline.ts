/**
 * Audits the files of a server that is not running: the log to the byte, every history in it, and
 * every blob. Damage is named and stepped over: what does not depend on it is audited all the
 * same. Nothing in the folder is changed, but for the lock that keeps a server away meanwhile.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { type RunId, runPartition, toHex } from "#core/base";
import { decodeEvent, decodeRecord, encodeEvent, fromBytes, type Record, toBytes } from "#proto";
import { auditBlobs, auditLog, BlobStore, FolderLock, type LogDamage, type PlacedRecord } from "#store";
import { CommandError, exit } from "../failure.ts";
import { visible } from "../terminal.ts";
import { sha256 } from "./hasher.ts";
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
  readonly #warn: (message: string) => void;

  private constructor(folder: string, lock: FolderLock, warn: (message: string) => void) {
    this.#warn = warn;
    this.#folder = folder;
    this.#lock = lock;
    this.#blobs = BlobStore.forReading(join(folder, blobFolder));
  }

  /** Throws where the folder holds no data, or a server uses it. `warn` is told of damage that does not concern what was asked. */
  static open(folder: string, warn: (message: string) => void = warnOnStderr): OfflineData {
    if (!existsSync(join(folder, logFolder))) {
      throw new CommandError(exit.notFound, `Cannot audit ${folder}: it holds no log`, {
        next: "name the folder that `hop server start --data` or `hop dev` uses",
      });
    }
    return new OfflineData(folder, FolderLock.acquire(folder), warn);
  }

  close(): void {
    this.#lock.release();
  }

  /** One run's history, as the log has it. Throws `AuditError` where damage concerns it. */
  source(run: RunId): HistorySource {
    return {
      partition: runPartition(run),
      events: () => this.#events(run),
      blob: (sha256) => this.#blobs.get(sha256),
      claimed: () => Promise.resolve(undefined),
    };
  }

  async *#events(run: RunId): AsyncGenerator<Uint8Array[]> {
    const partition = runPartition(run);
    const damage: LogDamage[] = [];
    let last: Uint8Array | undefined;
    let lastIndex = 0;
    for (const record of auditLog(join(this.#folder, logFolder), (one) => damage.push(one))) {
      const { event, previous } = eventsOf(record);
      const events: Uint8Array[] = [];
      for (const [i, bytes] of event.entries()) {
        if (fromBytes(decodeEvent, bytes).partition !== partition) continue;
        // Without damage the chain itself tells what is missing.
        if (damage.length > 0 && previous[i] !== lastIndex) throw incomplete(run, damage);
        lastIndex = record.index;
        events.push(bytes.slice());
      }
      if (events.length === 0) continue;
      last = events.at(-1);
      yield events;
    }
    if (last === undefined && damage.length > 0) throw incomplete(run, damage);
    if (last === undefined) throw new CommandError(exit.notFound, `Cannot audit ${run}: the log holds no event of it`);
    if (damage.some(({ bytes }) => mayContinue(bytes, partition, last))) throw incomplete(run, damage);
    for (const { error } of damage) this.#warn(`The log is damaged, though not in the history of ${run}: ${error.message}`);
  }

  /**
   * Everything that can be read, in one pass. Throws `AuditError` or `CorruptionError`: of damaged
   * records all are named, with what holds beside them, and of anything else the first.
   */
  async audit(progress: (events: number) => void): Promise<FolderVerdict> {
    const histories = new Map<string, { readonly audit: HistoryAudit; lastIndex: number }>();
    const broken = new Set<string>();
    const damage: LogDamage[] = [];
    const blobs = new BlobAudit((sha256) => this.#blobs.get(sha256));
    const records = auditLog(join(this.#folder, logFolder), (one) => damage.push(one));
    let step = records.next();
    let recordCount = 0;
    let eventCount = 0;
    for (; step.done !== true; step = records.next()) {
      const record = eventsOf(step.value);
      recordCount += 1;
      for (const [i, view] of record.event.entries()) {
        const bytes = view.slice();
        const { partition } = fromBytes(decodeEvent, bytes);
        if (broken.has(partition)) continue;
        let history = histories.get(partition);
        if (damage.length > 0 && record.previous[i] !== (history?.lastIndex ?? 0)) {
          broken.add(partition);
          histories.delete(partition);
          continue;
        }
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
    if (damage.length > 0) throw damagedFolder({ damage, broken, records: recordCount, whole: partitions.length });
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

const warnOnStderr = (message: string): void => void process.stderr.write(`warning: ${visible(message)}\n`);

/** Whether damaged bytes hold the history's next event: it begins with the history's name and ends with the hash of the event before. */
function mayContinue(bytes: Uint8Array, partition: string, last: Uint8Array): boolean {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return text.includes(toBytes(encodeEvent, { partition })) || text.includes(sha256(last));
}

const damageText = (damage: readonly LogDamage[]) => damage.map(({ error }) => error.message).join("; ");

function incomplete(run: RunId, damage: readonly LogDamage[]): AuditError {
  return new AuditError(`The history of ${run} can't be read whole, as the log is damaged: ${damageText(damage)}`, {
    cause: damage[0]?.error,
  });
}

function damagedFolder(found: {
  readonly damage: readonly LogDamage[];
  readonly broken: ReadonlySet<string>;
  readonly records: number;
  readonly whole: number;
}): AuditError {
  const { damage, broken, records, whole } = found;
  const names = [...broken].slice(0, namesMax).join(", ");
  const more = broken.size > namesMax ? ` and ${broken.size - namesMax} more` : "";
  const affected = broken.size === 0 ? "no history goes on behind it with a gap" : `it leaves a gap in ${names}${more}`;
  return new AuditError(
    `The log is damaged: ${damageText(damage)}; ${affected}. Beside it ${records} records can be read, and what they hold of ${whole} other histories is in order`,
    { cause: damage[0]?.error },
  );
}

const namesMax = 10;

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
