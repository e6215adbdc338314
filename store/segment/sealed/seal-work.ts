/**
 * The part of sealing that takes a processor for long: segments from packed records, and objects from what
 * they pack. A node has it done in a thread of its own (seal-thread.ts).
 */
import { packRecords, type RecordToSeal } from "./record-batch.ts";
import { RowTable } from "./row-table.ts";
import { type SealOptions, sealTable } from "./seal.ts";
import type { SealedSegment } from "./summary.ts";

export type Batches = AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

export interface PackedObject {
  /** A zstd frame. */
  readonly bytes: Uint8Array;
  /** Of `bytes`. */
  readonly sha256: Uint8Array;
}

export interface SealWork {
  /** The segment of the batches' records. Rejects with `CorruptionError` where records are missing or a chain is broken. */
  segment(batches: Batches, options: SealOptions): Promise<SealedSegment>;
  pack(plain: Uint8Array): Promise<PackedObject>;
}

export function packObject(plain: Uint8Array): PackedObject {
  const bytes = Bun.zstdCompressSync(plain as Uint8Array<ArrayBuffer>, { level: 1 });
  const sha256 = new Uint8Array(32);
  Bun.SHA256.hash(bytes, sha256);
  return { bytes, sha256 };
}

/** All at once, on the caller's thread. */
export const sealInPlace: SealWork = {
  async segment(batches, options) {
    const table = new RowTable(options);
    for await (const batch of batches) table.add(batch);
    return sealTable(table, options.lastIndex);
  },
  pack: (plain) => Promise.resolve(packObject(plain)),
};

/** A segment of records that are not packed yet, in place. */
export const sealSegment = (records: AsyncIterable<RecordToSeal> | Iterable<RecordToSeal>, options: SealOptions): Promise<SealedSegment> =>
  sealInPlace.segment(packRecords(records), options);
