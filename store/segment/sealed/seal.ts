/**
 * Seals a range of a shard's log: its events become a Parquet file and an index beside it.
 *
 * Pure: the same records give the same bytes (with the same version of zstd). It takes a few
 * microseconds of processor time an event, all at once: a node does it in a thread of its own (seal-thread.ts).
 */
import { errorText, type Index, InvariantError, keyOfDigest, toHex } from "#core/base";
import { packBlocks } from "./index-block.ts";
import { type ColumnName, columns } from "./parquet-columns.ts";
import { type FooterRowGroup, magic, parquetFooter } from "./parquet-footer.ts";
import { digestOf, filterOf } from "./partition-filter.ts";
import { readBack, type SealedFrom } from "./read-back.ts";
import { type RowGroup, rowGroups } from "./row-group.ts";
import type { RowTable, RowTableOptions } from "./row-table.ts";
import { type BlockPlace, type Extent, encodeDirectory, type RowGroupPlace } from "./segment-directory.ts";
import { type Piece, type SealedSegment, type SegmentExtent, type SegmentSummary, sealedFormat } from "./summary.ts";

/** Index of the first and the last record, both inclusive; every one between must come. */
export interface SealOptions extends RowTableOptions {
  readonly lastIndex: Index;
}

/** Makes the two objects of what a table has gathered, and reads them back: the log is deleted on the strength of them. */
export async function sealTable(table: RowTable, lastIndex: Index): Promise<SealedSegment> {
  table.checkEnd(lastIndex);
  const { order, pieces } = table.sorted();
  const names = [...new Set(pieces.map(({ partition }) => partition))].map((partition) => new TextEncoder().encode(partition));
  const from = { table, order, pieces, digests: names.map(digestOf) };
  const sealed = sealedOf(from, lastIndex);
  try {
    await readBack(sealed, from);
  } catch (error) {
    throw new InvariantError(`A segment does not read back as it was sealed: ${errorText(error)}`);
  }
  return sealed;
}

function sealedOf({ table, order, pieces, digests }: SealedFrom, lastIndex: Index): SealedSegment {
  const { segment, digest, groups } = segmentOf(table, order);
  const segmentSha256 = sha256(segment);
  const { shard, firstIndex, rows, terms } = table;
  const facts = { format: sealedFormat, shard, firstIndex, lastIndex, rows, segmentBytes: segment.length, segmentSha256 };
  const { index, directoryAt } = indexOf(pieces, digests, (blocks, filter) =>
    encodeDirectory({ ...facts, rowGroups: groups, blocks, filter }),
  );
  const summary: SegmentSummary = {
    ...facts,
    terms,
    indexBytes: index.length,
    indexSha256: sha256(index),
    directoryAt,
    directorySha256: sha256(index.subarray(directoryAt)),
    digest,
    extent: extentOf(table, pieces, digests),
  };
  return { segment, index, summary };
}

function segmentOf(table: RowTable, order: Uint32Array): { segment: Uint8Array; digest: Uint8Array; groups: RowGroupPlace[] } {
  const parts: Uint8Array[] = [magic];
  const groups: RowGroupPlace[] = [];
  const footerGroups: { at: number; group: FooterRowGroup }[] = [];
  const hashes = new Bun.CryptoHasher("sha256");
  let at = magic.length;
  for (const group of rowGroups(table, order)) {
    const { place, copy, history } = placed(group, at, groups.at(-1));
    parts.push(copy, history);
    groups.push(place);
    // The bytes are in the parts already: the footer needs none of them.
    footerGroups.push({ at, group: { rows: group.rows, chunks: group.chunks.map((chunk) => ({ ...chunk, parts: [] })) } });
    hashes.update(history.subarray(place.hash.at, place.hash.at + place.hash.bytes));
    at += copy.length + history.length;
  }
  const digest = new Uint8Array(hashes.digest().buffer);
  parts.push(parquetFooter({ rows: table.rows, groups: footerGroups, metadata: metadataOf(table, digest) }));
  return { segment: joined(parts), digest, groups };
}

/** The bytes of a row group that begins at `at`, in its two parts, and what the directory says of them. */
function placed(
  group: RowGroup,
  at: number,
  before: RowGroupPlace | undefined,
): { place: RowGroupPlace; copy: Uint8Array; history: Uint8Array } {
  const partOf = (part: string) => joined(group.chunks.filter((_, i) => columns[i]?.part === part).flatMap(({ parts }) => parts));
  const copy = partOf("copy");
  const history = partOf("history");
  const bodyOf = (name: ColumnName) => {
    let begins = -copy.length;
    for (const [i, chunk] of group.chunks.entries()) {
      if (columns[i]?.name === name)
        return { at: begins + chunk.bodyAt, bytes: chunk.bytes - chunk.bodyAt, plain: chunk.plainBytes - chunk.bodyAt };
      begins += chunk.bytes;
    }
    throw new InvariantError(`no column ${name}`);
  };
  const event = bodyOf("event");
  const place: RowGroupPlace = {
    firstRow: before === undefined ? 0 : before.firstRow + before.rows,
    rows: group.rows,
    copy: { at, bytes: copy.length, sha256: sha256(copy) },
    history: { at: at + copy.length, bytes: history.length, sha256: sha256(history) },
    logIndex: bodyOf("log_index"),
    term: bodyOf("term"),
    hash: bodyOf("hash"),
    event,
    eventBytes: event.plain,
  };
  return { place, copy, history };
}

/** For those who have only the file. */
function metadataOf({ shard, firstIndex, lastIndex, rows }: RowTable, digest: Uint8Array): Record<string, string> {
  return {
    "hopskip.format": `${sealedFormat}`,
    "hopskip.shard": `${shard}`,
    "hopskip.first_index": `${firstIndex}`,
    "hopskip.last_index": `${lastIndex}`,
    "hopskip.rows": `${rows}`,
    "hopskip.digest": toHex(digest),
  };
}

type DirectoryOf = (blocks: readonly BlockPlace[], filter: Extent) => Uint8Array;

function indexOf(
  pieces: readonly Piece[],
  digests: readonly Uint8Array[],
  directoryOf: DirectoryOf,
): { index: Uint8Array; directoryAt: number } {
  const parts: Uint8Array[] = [];
  const blocks: BlockPlace[] = [];
  let at = 0;
  const extentFor = (bytes: Uint8Array): Extent => {
    const extent = { at, bytes: bytes.length, sha256: sha256(bytes) };
    parts.push(bytes);
    at += bytes.length;
    return extent;
  };
  for (const { bytes, ...start } of packBlocks(pieces)) blocks.push({ ...start, extent: extentFor(bytes) });
  const filter = extentFor(filterOf(digests));
  parts.push(directoryOf(blocks, filter));
  return { index: joined(parts), directoryAt: at };
}

function extentOf(table: RowTable, pieces: readonly Piece[], digests: readonly Uint8Array[]): SegmentExtent | undefined {
  const [first, last] = [pieces[0], pieces.at(-1)];
  if (first === undefined || last === undefined) return undefined;
  let [firstKey, lastKey] = [Number.POSITIVE_INFINITY, 0];
  for (const key of digests.map(keyOfDigest)) {
    firstKey = Math.min(firstKey, key);
    lastKey = Math.max(lastKey, key);
  }
  const { firstTimeMs, lastTimeMs } = table;
  return { firstPartition: first.partition, lastPartition: last.partition, firstKey, lastKey, firstTimeMs, lastTimeMs };
}

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

const sha256 = (bytes: Uint8Array) => Bun.SHA256.hash(bytes) as Uint8Array;
