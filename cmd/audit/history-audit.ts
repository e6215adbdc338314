/**
 * Checks a history from its bytes: each event is hashed again, the chain and the Merkle range are
 * built anew, and every blob that an event names is read and hashed.
 *
 * Nothing of what a server says about the history is believed: what it says is compared.
 */
import { bytesEqual, toHex } from "#core/base";
import {
  bagPeaks,
  bitCount,
  type HistoryFault,
  HistoryVerifier,
  hashBytes,
  historyFaultText,
  NodeList,
  peaksOf,
  type VerifiedHead,
} from "#core/merkle";
import { blobsOf } from "#core/run";
import { CodecError, decodeEvent, decodeHistoryExpired, type Event, EventKind, fromBytes, type HistoryExpired } from "#proto";
import { CommandError, exit, reasonOf } from "../failure.ts";
import { type Described, describe } from "../history.ts";
import { hasher, sha256 } from "./hasher.ts";

/** Rejects with BLOB_NOT_FOUND where there is no such blob. */
export type ReadBlob = (sha256: Uint8Array) => Promise<Uint8Array>;

/** Where the bytes come from: a server, or the files of one. */
export interface HistorySource {
  readonly partition: string;
  /** Events in order, in chunks. */
  events(): AsyncIterable<readonly Uint8Array[]>;
  readonly blob: ReadBlob;
  /** What the history is said to come to; asked for after the last event. */
  claimed(): Promise<ClaimedHead | undefined>;
}

export interface ClaimedHead {
  readonly size: number;
  /** 32 bytes each, left to right. */
  readonly peaks: Uint8Array;
  readonly lastHash?: Uint8Array;
}

export interface AuditedEvent {
  /** Canonical. */
  readonly bytes: Uint8Array;
  readonly event: Event;
  readonly described: Described;
  readonly hash: Uint8Array;
}

/** The first thing that is not as it was recorded. */
export class AuditError extends CommandError {
  override name = "AuditError";

  constructor(message: string, options: { cause?: unknown } = {}) {
    super(exit.failed, message, {
      ...options,
      next: "do not rely on this history from here on: compare it with a copy, and with roots kept elsewhere",
    });
  }
}

/** One history, event by event. */
export class HistoryAudit {
  readonly partition: string;
  #verifier: HistoryVerifier;

  constructor(partition: string) {
    this.partition = partition;
    this.#verifier = new HistoryVerifier(hasher, { partition });
  }

  /** Begins with the event that is left where those before it expired, which says what they came to. */
  beginAt(expired: ExpiredRange): void {
    const { size, peaks, lastHash } = expired;
    const from = { partition: this.partition, size, peaks, lastHash, root: expired.root, timeMs: 0, logical: 0 };
    this.#verifier = new HistoryVerifier(hasher, { partition: this.partition, from });
  }

  /** Takes the next event by its canonical bytes. Throws `AuditError`. */
  add(bytes: Uint8Array): AuditedEvent {
    const fault = this.#verifier.add(bytes);
    if (fault !== undefined) throw this.#error(fault);
    const event = fromBytes(decodeEvent, bytes);
    return { bytes, event, described: this.#described(event), hash: this.#verifier.lastHash.slice() };
  }

  /** The verdict over everything added. Throws `AuditError`. */
  finish(claimed?: ClaimedHead): VerifiedHead {
    const verdict = this.#verifier.finish({
      ...(claimed === undefined ? {} : { size: claimed.size }),
      ...(claimed?.lastHash === undefined ? {} : { lastHash: claimed.lastHash }),
    });
    if (!verdict.ok) throw this.#error(verdict.fault);
    if (claimed === undefined || bytesEqual(claimed.peaks, verdict.head.peaks)) return verdict.head;
    throw new AuditError(
      `The Merkle peaks of ${this.partition} are not those of its ${claimed.size} events: got ${toHex(claimed.peaks)}, want ${toHex(verdict.head.peaks)}`,
    );
  }

  #error(fault: HistoryFault): AuditError {
    return new AuditError(historyFaultText(this.partition, fault));
  }

  #described(event: Event): Described {
    try {
      return describe(event);
    } catch (error) {
      if (!(error instanceof CodecError)) throw error;
      throw new AuditError(
        `Event ${event.seq} of ${this.partition} is not what was recorded: its payload can't be read: ${error.message}`,
        { cause: error },
      );
    }
  }
}

/** Blobs that events name, each read and hashed once. */
export class BlobAudit {
  bytes = 0;
  readonly #read: ReadBlob;
  readonly #sizes = new Map<string, number>();

  constructor(read: ReadBlob) {
    this.#read = read;
  }

  get count(): number {
    return this.#sizes.size;
  }

  /** Throws `AuditError` that names blob and event. */
  async check({ event, described }: AuditedEvent): Promise<void> {
    for (const blob of blobsOf(described.message)) {
      const bad = (problem: string, cause?: unknown) => {
        const where = `named by event ${event.seq} (${described.name}) of ${event.partition}`;
        return new AuditError(`Blob ${toHex(blob.sha256)}, ${where}, is not what was recorded: ${problem}`, { cause });
      };
      const size = await this.#size(blob.sha256, bad);
      if (blob.size !== undefined && blob.size !== size) throw bad(`it has ${size} bytes, want ${blob.size}`);
    }
  }

  async #size(want: Uint8Array, bad: (problem: string, cause?: unknown) => AuditError): Promise<number> {
    const name = toHex(want);
    const known = this.#sizes.get(name);
    if (known !== undefined) return known;
    const bytes = await this.#bytes(want, bad);
    const got = sha256(bytes);
    if (!bytesEqual(got, want)) throw bad(`its bytes hash to ${toHex(got)}`);
    this.#sizes.set(name, bytes.length);
    this.bytes += bytes.length;
    return bytes.length;
  }

  async #bytes(want: Uint8Array, bad: (problem: string, cause?: unknown) => AuditError): Promise<Uint8Array> {
    try {
      return await this.#read(want);
    } catch (error) {
      const reason = reasonOf(error);
      // Anything else says nothing about the blob.
      if (reason === "BLOB_NOT_FOUND" || reason === "HASH_MISMATCH") throw bad((error as Error).message, error);
      throw error;
    }
  }
}

/** Events that retention took away, by the event that was left. */
export interface ExpiredRange {
  readonly size: number;
  readonly peaks: Uint8Array;
  readonly lastHash: Uint8Array;
  readonly root: Uint8Array;
  readonly timeMs: number;
  readonly told: HistoryExpired;
}

export interface AuditedHistory {
  readonly head: VerifiedHead;
  /** What is gone; undefined: nothing. */
  readonly expired: ExpiredRange | undefined;
  /** All hashes of the range, as far as its events are there, for proofs. */
  readonly nodes: NodeList;
  readonly blobCount: number;
  readonly blobBytes: number;
}

/** Checks a whole history, or what retention left of it. `each` is told of each event whose bytes are in place. Throws `AuditError`. */
export async function auditHistory(source: HistorySource, each: (event: AuditedEvent) => void): Promise<AuditedHistory> {
  const audit = new HistoryAudit(source.partition);
  let nodes: NodeList | undefined;
  let expired: ExpiredRange | undefined;
  const blobs = new BlobAudit(source.blob);
  for await (const chunk of source.events()) {
    for (const bytes of chunk) {
      if (nodes === undefined) {
        expired = expiredBefore(source.partition, bytes);
        if (expired !== undefined) audit.beginAt(expired);
        nodes = new NodeList(hasher, [], expired);
      }
      const audited = audit.add(bytes);
      const known = expiryIn(audited.event);
      if (known !== undefined && !bytesEqual(known.peaks, peaksOf(nodes, nodes.size)))
        throw new AuditError(`Event ${audited.event.seq} of ${source.partition} does not say what the events before it come to`);
      nodes.append(audited.hash);
      each(audited);
      await blobs.check(audited);
    }
  }
  const head = audit.finish(await source.claimed());
  return { head, expired, nodes: nodes ?? new NodeList(hasher), blobCount: blobs.count, blobBytes: blobs.bytes };
}

/** What is gone before a history's first event, if it says so. */
function expiredBefore(partition: string, bytes: Uint8Array): ExpiredRange | undefined {
  let event: Event;
  let told: HistoryExpired | undefined;
  try {
    event = fromBytes(decodeEvent, bytes);
    told = event.seq === 0 ? undefined : expiryIn(event);
  } catch (error) {
    // Told as what it is where it is checked.
    if (error instanceof CodecError) return undefined;
    throw error;
  }
  if (told === undefined) return undefined;
  const { seq: size, prevHash: lastHash, timeMs } = event;
  const { peaks } = told;
  if (peaks.length !== bitCount(size) * hashBytes || lastHash.length !== hashBytes)
    throw new AuditError(`Event ${size} of ${partition} does not say what the ${size} events before it came to`);
  return { size, peaks, lastHash, root: bagPeaks(hasher, size, peaks), timeMs, told };
}

const expiryIn = ({ kind, payload }: Event): HistoryExpired | undefined =>
  kind === EventKind.historyExpired ? fromBytes(decodeHistoryExpired, payload) : undefined;
