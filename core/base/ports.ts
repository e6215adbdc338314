/**
 * What the shell lends to Core: small synchronous interfaces, each with an in-memory form for
 * the simulator.
 */
import type { Writer } from "#proto";
import type { Index, Partition, ShardId, Term } from "./ids.ts";
import type { KeyRange } from "./key.ts";

export interface Hasher {
  /** SHA-256 of `data` into the 32 bytes of `out`. `out` may not overlap `data`. */
  sha256(data: Uint8Array, out: Uint8Array): void;
}

/** The log's buffer: records are encoded where they will be written from. */
export interface LogWriter {
  /** Opens a record and returns the writer its body goes to. The log may not be read before `end`. */
  begin(shard: ShardId, index: Index, term: Term): Writer;
  /** Seals the record that `begin` opened: length and checksum. */
  end(): void;
}

export interface SavedState {
  readonly state: Uint8Array;
  readonly shard: ShardId;
}

/** Partition states that were checkpointed and dropped from memory. Both throw `HopError` STORE_UNAVAILABLE while they can't be read. */
export interface StateReader {
  /** Encoded state and the shard that saved it, or undefined when the partition has none. */
  load(partition: Partition): SavedState | undefined;
  /** Partitions with a key in `range` and a timer due before `beforeMs`, earliest first. */
  dueBefore(beforeMs: number, limit: number, range: KeyRange): Partition[];
}

/**
 * What clocks show where: rules of time zones, which differ from machine to machine. Only who leads
 * asks, and what follows from an answer is in the log.
 */
export interface ZoneReader {
  /** Milliseconds by which clocks of `zone` (an IANA name) are ahead of UTC at `atMs`; undefined where the machine knows no such zone. */
  offsetMs(zone: string, atMs: number): number | undefined;
}
