/**
 * Checks the two objects of a sealed segment as wholes, bytes in hand: what was uploaded before what it
 * replaces is deleted, and what was fetched before any reader of Parquet opens it.
 */
import { bytesEqual, toHex } from "#core/base";
import { SealedReader } from "./sealed-reader.ts";
import { magicBytes } from "./segment-directory.ts";
import type { SealedSegment } from "./summary.ts";
import { type SealedObject, VerifiedObjects } from "./verified-objects.ts";

/** What messages call the two objects. */
export interface SealedNames {
  readonly segment: string;
  readonly index: string;
}

/** Rejects with `CorruptionError` where one bit is not as it was sealed, and names the part that it is in. */
export async function checkSealed(sealed: SealedSegment, names: SealedNames): Promise<void> {
  const { summary } = sealed;
  const objects = new VerifiedObjects(summary, inMemory(sealed, names));
  const isWhole = (object: SealedObject, bytes: number, sha256: Uint8Array) =>
    sealed[object].length === bytes && bytesEqual(Bun.SHA256.hash(sealed[object]) as Uint8Array, sha256);
  const directory = await objects.directory();
  if (!isWhole("index", summary.indexBytes, summary.indexSha256)) {
    for (const { row, extent } of directory.blocks) await objects.extent("index", extent, `the block of the index with row ${row}`);
    await objects.extent("index", directory.filter, "the filter");
    throw objects.damaged("the index", differing("index", sealed, 0));
  }
  if (isWhole("segment", summary.segmentBytes, summary.segmentSha256)) return;
  let footerAt = magicBytes;
  for (const { firstRow, copy, history } of directory.rowGroups) {
    await objects.extent("segment", copy, `the copies in the row group with row ${firstRow}`);
    await objects.extent("segment", history, `the history part of the row group with row ${firstRow}`);
    footerAt = history.at + history.bytes;
  }
  const magicIsRight = Buffer.from(sealed.segment.subarray(0, magicBytes)).toString() === "PAR1";
  throw objects.damaged(magicIsRight ? "the footer" : "the first bytes", differing("segment", sealed, magicIsRight ? footerAt : 0));
}

function differing(object: SealedObject, { summary, ...sealed }: SealedSegment, at: number) {
  const bytes = sealed[object];
  const [want, sha256] = object === "index" ? [summary.indexBytes, summary.indexSha256] : [summary.segmentBytes, summary.segmentSha256];
  if (bytes.length !== want) return { object, at: Math.min(bytes.length, want), got: `${bytes.length} bytes`, want: `${want}` };
  return { object, at, got: `SHA-256 ${toHex(Bun.SHA256.hash(bytes) as Uint8Array)}`, want: toHex(sha256) };
}

/** `checkSealed`, and what the segment says of itself: each event's hash and place, digest, filter and summary. */
export async function auditSealed(sealed: SealedSegment, names: SealedNames): Promise<void> {
  await checkSealed(sealed, names);
  const { summary } = sealed;
  const objects = inMemory(sealed, names);
  const reader = new SealedReader(summary, objects);
  const hashes = new Bun.CryptoHasher("sha256");
  const faults: string[] = [];
  let rows = 0;
  for await (const group of reader.rows()) {
    for (const { hash, index, term, partition, seq } of group) {
      hashes.update(hash);
      const known = summary.terms.findLast(({ first }) => first <= index)?.term;
      if (index < summary.firstIndex || index > summary.lastIndex || term !== known)
        faults.push(`event ${seq} of ${partition} of record ${index} of term ${term}`);
    }
    rows += group.length;
  }
  for await (const { partition } of reader.partitions())
    if (!(await reader.mayHold(partition))) faults.push(`no ${partition} in the filter`);
  const digest = new Uint8Array(hashes.digest());
  if (!bytesEqual(digest, summary.digest)) faults.push(`digest ${toHex(digest)}`);
  if (rows !== summary.rows) faults.push(`${rows} rows`);
  const [got] = faults;
  if (got === undefined) return;
  const damaged = new VerifiedObjects(summary, objects);
  throw damaged.damaged("all rows", { object: "segment", at: 0, got, want: "what the summary says" });
}

/** Both objects, read where they are. */
export function inMemory({ segment, index }: Pick<SealedSegment, "segment" | "index">, names: SealedNames) {
  const objects = { segment, index };
  return {
    ...names,
    read: (object: SealedObject, at: number, bytes: number) => Promise.resolve(objects[object].subarray(at, at + bytes)),
  };
}
