/**
 * Checks a history from its bytes alone: every event is hashed again, the chain is followed and
 * the range is built up anew.
 *
 * A byte that was changed breaks the link that follows it, and that link says only that one of
 * two events was touched. The event after them tells which: it holds the hash of the second.
 */
import { assert, bytesEqual, compareHlc, type Hasher, toHex } from "#core/base";
import { CodecError, decodeEvent, type Event, fromBytes } from "#proto";
import { Mmr } from "./mmr.ts";
import { hashBytes } from "./verify.ts";

/**
 * `decode`: the bytes are no event. `hash`: the bytes are not those that the next event's
 * prev_hash, or the expected last hash, was made of. `prev_hash`: that field does not hold the
 * hash of the event before. `size`, `root`: the history as a whole is not the expected one.
 */
export type HistoryRule = "decode" | "partition" | "seq" | "hlc" | "hash" | "prev_hash" | "size" | "root";

/** The first bad event, by its place in the history. */
export interface HistoryFault {
  readonly seq: number;
  readonly rule: HistoryRule;
  readonly got: string;
  readonly want: string;
}

/** A history that was checked up to `size`. A later check can go on from it. */
export interface VerifiedHead {
  readonly partition: string;
  readonly size: number;
  readonly lastHash: Uint8Array;
  /** 32 bytes each, left to right. */
  readonly peaks: Uint8Array;
  readonly root: Uint8Array;
  /** Time of the last event. */
  readonly timeMs: number;
  readonly logical: number;
}

export type HistoryVerdict = { readonly ok: true; readonly head: VerifiedHead } | { readonly ok: false; readonly fault: HistoryFault };

/** What the history is held against at its end; what is left out is not checked. */
export interface ExpectedHead {
  readonly size?: number;
  readonly lastHash?: Uint8Array;
  readonly root?: Uint8Array;
}

export interface HistoryOptions {
  /** Left out: the first event names it. */
  readonly partition?: string;
  /** Left out: from the first event on. */
  readonly from?: VerifiedHead;
}

/** Takes a history's events one by one; every event after a fault gives that fault again. */
export class HistoryVerifier {
  /** Hash of the last event: the MMR leaf. */
  readonly lastHash = new Uint8Array(hashBytes);
  private readonly hasher: Hasher;
  private readonly mmr: Mmr;
  private readonly trustedSize: number;
  private partition: string | undefined;
  private time = { timeMs: 0, logical: -1 };
  private fault: HistoryFault | undefined;
  /** A broken link: the fault of the event before it, and of the one that holds it. */
  private broken: { readonly before: HistoryFault; readonly holder: HistoryFault } | undefined;

  constructor(hasher: Hasher, options: HistoryOptions = {}) {
    const { from } = options;
    this.hasher = hasher;
    this.partition = options.partition ?? from?.partition;
    this.mmr = new Mmr(from?.size, from?.peaks);
    this.trustedSize = this.mmr.size;
    if (from === undefined || from.size === 0) return;
    assert(from.partition === this.partition, `Cannot go on with ${this.partition}: the head is of ${from.partition}`);
    this.lastHash.set(from.lastHash);
    this.time = { timeMs: from.timeMs, logical: from.logical };
  }

  get size(): number {
    return this.mmr.size;
  }

  /** Checks the next event by its canonical bytes. A broken link is reported one event later. */
  add(bytes: Uint8Array): HistoryFault | undefined {
    if (this.fault !== undefined) return this.fault;
    const event = this.decode(bytes);
    this.fault = this.broken === undefined ? undefined : this.blame(event);
    this.fault ??= event === undefined ? this.at("decode", `${bytes.length} bytes that are no event`, "an event") : this.check(event);
    if (this.fault !== undefined) return this.fault;
    this.hasher.sha256(bytes, this.lastHash);
    this.mmr.append(this.lastHash, this.hasher);
    return undefined;
  }

  /** The verdict over everything that was added. */
  finish(expected: ExpectedHead = {}): HistoryVerdict {
    this.fault ??= this.broken === undefined ? this.compare(expected) : this.blameAtEnd(expected);
    return this.fault === undefined ? { ok: true, head: this.head() } : { ok: false, fault: this.fault };
  }

  private head(): VerifiedHead {
    const { timeMs, logical } = this.time;
    const lastHash = this.lastHash.slice();
    const root = this.mmr.root(this.hasher);
    return {
      partition: this.partition ?? "",
      size: this.size,
      lastHash,
      peaks: this.mmr.peaks(),
      root,
      timeMs,
      logical: Math.max(logical, 0),
    };
  }

  private decode(bytes: Uint8Array): Event | undefined {
    try {
      return fromBytes(decodeEvent, bytes);
    } catch (error) {
      if (error instanceof CodecError) return undefined;
      throw error;
    }
  }

  private check(event: Event): HistoryFault | undefined {
    this.partition ??= event.partition;
    if (event.partition !== this.partition) return this.at("partition", event.partition, this.partition);
    if (event.seq !== this.size) return this.at("seq", `${event.seq}`, `${this.size}`);
    if (!bytesEqual(event.prevHash, this.lastHash)) return this.breakLink(event);
    if (compareHlc(event, this.time) <= 0) return this.at("hlc", clock(event), `above ${clock(this.time)}`);
    this.time = { timeMs: event.timeMs, logical: event.logical };
    return undefined;
  }

  private breakLink(event: Event): HistoryFault | undefined {
    const got = toHex(event.prevHash);
    const want = toHex(this.lastHash);
    const holder = this.at("prev_hash", got, want);
    // What precedes the first event, or a head that was verified before, is not in doubt.
    if (this.size === this.trustedSize) return holder;
    this.broken = { before: { seq: this.size - 1, rule: "hash", got: want, want: got }, holder };
    return undefined;
  }

  /** The event after a broken link vouches for the one that holds it, or does not. */
  private blame(event: Event | undefined): HistoryFault | undefined {
    if (event === undefined) return this.broken?.before;
    return bytesEqual(event.prevHash, this.lastHash) ? this.broken?.before : this.broken?.holder;
  }

  private blameAtEnd(expected: ExpectedHead): HistoryFault | undefined {
    const isHolderChanged = expected.lastHash !== undefined && !bytesEqual(expected.lastHash, this.lastHash);
    return isHolderChanged ? this.broken?.holder : this.broken?.before;
  }

  private compare(expected: ExpectedHead): HistoryFault | undefined {
    const { size, lastHash, root } = expected;
    if (size !== undefined && size !== this.size)
      return { seq: Math.min(size, this.size), rule: "size", got: `${this.size}`, want: `${size}` };
    const seq = Math.max(this.size - 1, 0);
    if (lastHash !== undefined && !bytesEqual(lastHash, this.lastHash))
      return { seq, rule: "hash", got: toHex(this.lastHash), want: toHex(lastHash) };
    const own = this.mmr.root(this.hasher);
    if (root !== undefined && !bytesEqual(root, own)) return { seq, rule: "root", got: toHex(own), want: toHex(root) };
    return undefined;
  }

  private at(rule: HistoryRule, got: string, want: string): HistoryFault {
    return { seq: this.size, rule, got, want };
  }
}

function clock(hlc: { readonly timeMs: number; readonly logical: number }): string {
  return `${hlc.timeMs}.${Math.max(hlc.logical, 0)}`;
}

/** Checks a whole history: canonical bytes of its events, in order. */
export function verifyHistory(
  hasher: Hasher,
  events: Iterable<Uint8Array>,
  options: HistoryOptions & { readonly expected?: ExpectedHead } = {},
): HistoryVerdict {
  const verifier = new HistoryVerifier(hasher, options);
  for (const bytes of events) if (verifier.add(bytes) !== undefined) break;
  return verifier.finish(options.expected);
}

/** One line that names the bad event. */
export function historyFaultText(partition: string, fault: HistoryFault): string {
  return `Event ${fault.seq} of ${partition} is not what was recorded: ${fault.rule} is ${fault.got}, want ${fault.want}`;
}
