/**
 * The hash chain and Merkle Mountain Range of one partition, and the one place where an event is
 * encoded for ever.
 *
 * hash(event) = SHA-256(canonical bytes); the bytes hold the predecessor's hash as their last
 * field. That hash is the MMR leaf. Appending encodes straight into the open log record, so the
 * bytes hashed are the bytes stored and replicated.
 * Invariant: an event is in `size`, `lastHash` and the peaks, or in none of them.
 */
import { assert, bytesEqual, type Hasher, type Index, type Partition, type Rejection, toHex } from "#core/base";
import { type Encode, type Event, encodeIdentity, type IdentityInit, type Writer } from "#proto";
import { Mmr } from "./mmr.ts";
import { hashBytes } from "./verify.ts";

/** A chain's state as it is checkpointed; the bytes are copies. */
export interface ChainHead {
  /** Number of events. */
  readonly size: number;
  /** Hash of the last event; 32 zero bytes where there is none. */
  readonly lastHash: Uint8Array;
  /** MMR peaks, 32 bytes each, left to right. */
  readonly peaks: Uint8Array;
  /** Log index of the record that holds the last event; 0 = none. */
  readonly lastIndex: number;
  /** Shard whose log that is; 0 = the one that the chain is open in. */
  readonly lastShard: number;
}

export class PartitionChain {
  readonly partition: Partition;
  /** Hash of the last event, updated in place: copy what must outlive the next append. */
  readonly lastHash = new Uint8Array(hashBytes);
  /** Log index of the record that holds the last event; 0 = none. */
  lastIndex = 0;
  /** Shard whose log that is; 0 = the one that appends here. */
  lastShard = 0;
  private readonly mmr: Mmr;

  /** Goes on from `head`, which is copied, or begins an empty partition. */
  constructor(partition: Partition, head?: ChainHead) {
    this.partition = partition;
    this.mmr = head === undefined ? new Mmr() : new Mmr(head.size, head.peaks);
    if (head === undefined) return;
    assert(head.lastHash.length === hashBytes, `Cannot open ${partition}: its last hash has ${head.lastHash.length} bytes, want 32`);
    this.lastHash.set(head.lastHash);
    this.lastIndex = head.lastIndex;
    this.lastShard = head.lastShard;
  }

  /** Number of events, and the seq of the next one. */
  get size(): number {
    return this.mmr.size;
  }

  /** Takes in an event by its hash, which may be `lastHash` itself. */
  append(eventHash: Uint8Array, hasher: Hasher): void {
    this.mmr.append(eventHash, hasher);
    if (eventHash !== this.lastHash) this.lastHash.set(eventHash);
  }

  /** A copy of the state: what a checkpoint keeps, and what losing the leadership puts back. */
  head(): ChainHead {
    return {
      size: this.size,
      lastHash: this.lastHash.slice(),
      peaks: this.mmr.peaks(),
      lastIndex: this.lastIndex,
      lastShard: this.lastShard,
    };
  }

  root(hasher: Hasher): Uint8Array {
    return this.mmr.root(hasher);
  }
}

/** An open `Record`: where events go and at which log index. */
export interface OpenRecord {
  readonly writer: Writer;
  readonly index: Index;
  readonly hasher: Hasher;
}

/** What the caller decides of an event; partition, seq and prev_hash come from the chain. */
export interface NewEvent<T> {
  /** Above the time of the partition's last event. */
  readonly timeMs: number;
  readonly logical: number;
  readonly kind: number;
  readonly schemaId: number;
  readonly identity: IdentityInit | undefined;
  /** Writes the payload; it may write nothing. */
  readonly encode: Encode<T>;
  readonly payload: T;
}

/** For a payload that is encoded already. */
export function encodeRaw(writer: Writer, payload: Uint8Array): void {
  writer.raw(payload);
}

/**
 * Appends one event to an open record (fields `event` and `previous`) and to its chain.
 *
 * Where the chain's last event lies in another shard's log, the record must say so in
 * `previous_shard`: read `lastShard` before.
 * Returns the canonical bytes: a view into the log's buffer, which they leave when the log says so.
 * Costs 0.7 µs of CPU beyond its two hashes, 1.0 µs with them, for an event of 172 bytes on one
 * shared core (scripts/bench-append.ts); a payload encoded beforehand and copied costs 0.1 µs more.
 */
export function appendEvent<T>(record: OpenRecord, chain: PartitionChain, event: NewEvent<T>): Uint8Array {
  const w = record.writer;
  w.varint(10);
  const start = openEvent(w);
  encodeEnvelope(w, chain, event);
  const bytes = closeEvent(w, start);
  record.hasher.sha256(bytes, chain.lastHash);
  chain.append(chain.lastHash, record.hasher);
  w.varint(16);
  w.varint(chain.lastIndex);
  chain.lastIndex = record.index;
  chain.lastShard = 0;
  return bytes;
}

/** The fields of `Event` in number order, as `encodeEvent` has them; the payload is written in place. */
function encodeEnvelope<T>(w: Writer, chain: PartitionChain, event: NewEvent<T>): void {
  if (chain.partition !== "") w.text(10, chain.partition);
  number(w, 16, chain.size);
  number(w, 24, event.timeMs);
  number(w, 32, event.logical);
  number(w, 40, event.kind);
  number(w, 48, event.schemaId);
  if (event.identity !== undefined) {
    const mark = w.begin(58);
    encodeIdentity(w, event.identity);
    w.close(mark);
  }
  const before = w.at;
  const mark = w.begin(66);
  event.encode(w, event.payload);
  if (w.at === mark + 1) w.at = before;
  else w.close(mark);
  w.field(122, chain.lastHash);
}

/** A default is left out: the bytes are canonical. */
function number(w: Writer, tag: number, value: number): void {
  if (value === 0) return;
  w.varint(tag);
  w.varint(value);
}

/** Keeps two bytes for the length, which fits nearly every event: its bytes need not be moved. */
function openEvent(w: Writer): number {
  w.room(2);
  w.at += 2;
  return w.at;
}

function closeEvent(w: Writer, start: number): Uint8Array {
  const length = w.at - start;
  const lengthBytes = length < 1 << 7 ? 1 : length < 1 << 14 ? 2 : length < 1 << 21 ? 3 : 4;
  const from = start - 2 + lengthBytes;
  if (from !== start) {
    w.room(2);
    w.bytes.copyWithin(from, start, start + length);
  }
  w.at = start - 2;
  w.varint(length);
  w.at = from + length;
  return w.bytes.subarray(from, from + length);
}

/** An event that was appended elsewhere or in an earlier life, as the log has it. */
export interface LoggedEvent {
  /** Canonical bytes, and the same decoded. */
  readonly bytes: Uint8Array;
  readonly event: Event;
  /** Log index of the record it is in. */
  readonly index: Index;
}

/**
 * Takes a logged event into its chain, after checking that it is the next one.
 *
 * Refuses with HASH_MISMATCH, the chain unchanged, when partition, seq or prev_hash is another.
 */
export function followEvent(chain: PartitionChain, logged: LoggedEvent, hasher: Hasher): Rejection | undefined {
  const { event } = logged;
  if (event.partition !== chain.partition) return mismatch(chain, "partition", event.partition, chain.partition);
  if (event.seq !== chain.size) return mismatch(chain, "seq", event.seq, chain.size);
  if (!bytesEqual(event.prevHash, chain.lastHash)) return mismatch(chain, "prev_hash", toHex(event.prevHash), toHex(chain.lastHash));
  hasher.sha256(logged.bytes, chain.lastHash);
  chain.append(chain.lastHash, hasher);
  chain.lastIndex = logged.index;
  chain.lastShard = 0;
  return undefined;
}

function mismatch(chain: PartitionChain, what: string, got: string | number, want: string | number): Rejection {
  return { reject: "HASH_MISMATCH", message: `Cannot follow event ${chain.size} of ${chain.partition}: ${what} is ${got}, want ${want}` };
}
