/**
 * Reads the two objects of a new segment back and compares them with what was gathered from the log,
 * event by event: the log is deleted on the strength of them.
 *
 * Where the bytes are those of the log, their hashes and chains are too, which were checked when they
 * were gathered. So nothing is hashed here but what the directory has a hash of.
 */
import { bytesEqual, toHex } from "#core/base";
import { HistoryPart } from "./history-part.ts";
import { mayHold } from "./partition-filter.ts";
import type { RowTable, SortedRows } from "./row-table.ts";
import { SealedReader } from "./sealed-reader.ts";
import type { Piece, SealedSegment } from "./summary.ts";
import { VerifiedObjects } from "./verified-objects.ts";
import { inMemory } from "./verify.ts";

/** What a segment was made of. */
export interface SealedFrom extends SortedRows {
  readonly table: RowTable;
  /** Of the partitions' names. */
  readonly digests: readonly Uint8Array[];
}

/** Rejects with `CorruptionError` or `CodecError` where anything is not as in the table. */
export async function readBack(sealed: SealedSegment, from: SealedFrom): Promise<void> {
  const objects = inMemory(sealed, { segment: "the new segment", index: "its index" });
  const verified = new VerifiedObjects(sealed.summary, objects);
  const digest = await readRows(verified, from);
  if (!bytesEqual(digest, sealed.summary.digest)) throw differs(verified, `digest ${toHex(digest)}`, toHex(sealed.summary.digest));
  await readPieces(verified, new SealedReader(sealed.summary, objects), from);
}

/** Returns the digest of the rows. */
async function readRows(verified: VerifiedObjects, { table, order }: SealedFrom): Promise<Uint8Array> {
  const { rowGroups } = await verified.directory();
  const hashes = new Bun.CryptoHasher("sha256");
  let rows = 0;
  for (const group of rowGroups) {
    await verified.extent("segment", group.copy, "copies");
    const part = new HistoryPart(group, await verified.extent("segment", group.history, "a history part"));
    const differing = part.differingRow(table, order);
    if (differing !== undefined) throw differs(verified, `another event in row ${differing}`, "the log's");
    hashes.update(part.hashes());
    rows += group.rows;
  }
  if (rows !== order.length) throw differs(verified, `${rows} rows`, `${order.length}`);
  return new Uint8Array(hashes.digest());
}

async function readPieces(verified: VerifiedObjects, reader: SealedReader, { pieces, digests }: SealedFrom): Promise<void> {
  let count = 0;
  for await (const piece of reader.partitions()) {
    const want = pieces[count++];
    if (want === undefined || !isSame(piece, want)) throw differs(verified, `piece ${count - 1} of ${piece.partition}`, "another one");
  }
  if (count !== pieces.length) throw differs(verified, `${count} pieces`, `${pieces.length}`);
  const filter = await verified.filter();
  for (const digest of digests)
    if (!mayHold(filter, digest)) throw differs(verified, `no ${toHex(digest)} in the filter`, "all partitions");
}

const isSame = (a: Piece, b: Piece) =>
  a.partition === b.partition &&
  a.firstSeq === b.firstSeq &&
  a.endSeq === b.endSeq &&
  a.firstRow === b.firstRow &&
  bytesEqual(a.prevHash, b.prevHash) &&
  a.previous?.shard === b.previous?.shard &&
  a.previous?.index === b.previous?.index;

const differs = (verified: VerifiedObjects, got: string, want: string) =>
  verified.damaged("all rows", { object: "segment", at: 0, got, want });
