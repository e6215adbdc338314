/**
 * The simulator's own copy of the log: every record as it was appended, decoded and checked on
 * the way in, and cut back to what the disk holds when the machine crashes.
 */
import type { LogWriter } from "#core/base";
import { decodeBody } from "#core/run";
import { decodeEvent, decodeRecord, fromBytes, type LeaseGranted, type Record as LogBody, type Writer } from "#proto";
import { digest, nobleHasher } from "../hashers.ts";
import { checkEvent, checkLease, fitsLease } from "./check/appended.ts";
import { type JournalEvent, RunModel } from "./model.ts";
import { claim } from "./violation.ts";

export interface JournalRecord {
  readonly index: number;
  readonly body: Uint8Array;
  readonly record: LogBody;
  readonly events: readonly JournalEvent[];
}

export class PartitionJournal {
  readonly partition: string;
  readonly events: JournalEvent[] = [];
  readonly leases: {
    readonly index: number;
    readonly afterSeq: number;
    readonly op: number;
    readonly attempt: number;
    readonly delivery: number;
  }[] = [];
  model = new RunModel();

  constructor(partition: string) {
    this.partition = partition;
  }
}

export class Journal {
  /** `records[i]` has index i + 1. */
  readonly records: JournalRecord[] = [];
  readonly partitions = new Map<string, PartitionJournal>();
  /** Highest physical time that Core was given. */
  givenMs = 0;
  /** Sums up the log: equal for equal simulations. */
  hash = 0x811c9dc5;

  of(partition: string): PartitionJournal {
    const found = this.partitions.get(partition);
    if (found !== undefined) return found;
    const made = new PartitionJournal(partition);
    this.partitions.set(partition, made);
    return made;
  }

  get lastIndex(): number {
    return this.records.length;
  }

  append(index: number, body: Uint8Array): void {
    claim("noAckedEventLost", index === this.records.length + 1, () => `record ${index} follows record ${this.records.length}`);
    const record = fromBytes(decodeRecord, body);
    for (const byte of body) this.hash = Math.imul(this.hash ^ byte, 0x01000193);
    // A record does not say whether a lease came before or after its events: either is fine.
    const early = record.lease.filter((lease) => fitsLease(this.of(lease.partition).model, lease));
    for (const lease of early) this.lease(index, lease);
    const events: JournalEvent[] = [];
    for (const [i, bytes] of record.event.entries()) events.push(this.event(index, bytes, record, i));
    for (const lease of record.lease) if (!early.includes(lease)) this.lease(index, lease);
    this.records.push({ index, body, record, events });
  }

  /** The crash left the log with records up to `index`. */
  truncate(index: number): void {
    const touched = new Set<PartitionJournal>();
    while (this.records.length > index) {
      const { record, events } = this.records.pop() as JournalRecord;
      for (const e of events) touched.add(this.of(e.partition));
      for (const lease of record.lease) touched.add(this.of(lease.partition));
    }
    for (const at of touched) {
      while ((at.events.at(-1)?.index ?? 0) > index) at.events.pop();
      while ((at.leases.at(-1)?.index ?? 0) > index) at.leases.pop();
      refold(at);
    }
  }

  private lease(index: number, lease: LeaseGranted): void {
    const at = this.of(lease.partition);
    checkLease(at.model, lease);
    at.leases.push({ ...lease, index, afterSeq: at.events.length });
    at.model.foldLease(index, lease);
  }

  private event(index: number, bytes: Uint8Array, record: LogBody, i: number): JournalEvent {
    const raw = fromBytes(decodeEvent, bytes);
    const at = this.of(raw.partition);
    const event = decodeBody(raw.kind, raw.payload);
    claim("chainAndMmrUnbroken", event !== undefined, () => `${raw.partition} holds an event of unknown kind ${raw.kind}`);
    const e: JournalEvent = {
      partition: raw.partition,
      index,
      seq: raw.seq,
      timeMs: raw.timeMs,
      logical: raw.logical,
      kind: raw.kind,
      event,
      bytes,
      hash: digest(bytes, nobleHasher),
      prevHash: raw.prevHash,
      issuer: raw.identity?.issuer ?? "",
      deliveredSeq: record.deliveredSeq,
    };
    checkEvent(at, e, record.previous[i] ?? -1, this.givenMs);
    at.events.push(e);
    at.model.fold(e);
    return e;
  }
}

function refold(at: PartitionJournal): void {
  at.model = new RunModel();
  let lease = 0;
  for (const [i, e] of at.events.entries()) {
    for (let l = at.leases[lease]; l !== undefined && l.afterSeq <= i; l = at.leases[++lease]) at.model.foldLease(l.index, l);
    at.model.fold(e);
  }
  for (let l = at.leases[lease]; l !== undefined; l = at.leases[++lease]) at.model.foldLease(l.index, l);
}

/** Tells the journal what goes into the log. */
export function watched(log: LogWriter, journal: Journal): LogWriter {
  let open: { readonly index: number; readonly writer: Writer } | undefined;
  return {
    begin(shard, index, term) {
      const writer = log.begin(shard, index, term);
      open = { index, writer };
      return writer;
    },
    end() {
      const { index, writer } = open as { index: number; writer: Writer };
      const body = writer.bytes.slice(0, writer.at);
      log.end();
      journal.append(index, body);
    },
  };
}
