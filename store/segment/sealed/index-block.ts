/**
 * Blocks of an index: pieces in the order of rows, each name cut down to what differs from the one before.
 *
 * A piece is: bytes shared with the name before, bytes that follow, those bytes, rows, first seq, and
 * unless that is 0 the hash before it (32 bytes) and shard and index of the record before. Numbers are varints.
 */
import { asIndex, asSeq, asShardId, type Partition } from "#core/base";
import { CodecError, Reader, Writer } from "#proto";
import type { Piece } from "./summary.ts";

const blockBytes = 16 << 10;
const hashBytes = 32;
const noHash = new Uint8Array(hashBytes);

/** What the directory says of a block beside where it is. */
export interface BlockStart {
  readonly name: Uint8Array;
  readonly seq: number;
  readonly row: number;
}

export interface Block extends BlockStart {
  readonly bytes: Uint8Array;
}

/** Packs pieces, which are sorted, into blocks of about 16 KiB. */
export function* packBlocks(pieces: readonly Piece[]): Generator<Block> {
  const writer = new Writer(blockBytes * 2);
  let start: BlockStart | undefined;
  let before: Uint8Array = new Uint8Array(0);
  for (const piece of pieces) {
    const name = new TextEncoder().encode(piece.partition);
    if (start !== undefined && writer.at >= blockBytes) {
      yield { ...start, bytes: writer.finish() };
      start = undefined;
    }
    if (start === undefined) {
      start = { name, seq: piece.firstSeq, row: piece.firstRow };
      before = new Uint8Array(0);
    }
    packPiece(writer, piece, name, before);
    before = name;
  }
  if (start !== undefined) yield { ...start, bytes: writer.finish() };
}

function packPiece(writer: Writer, piece: Piece, name: Uint8Array, before: Uint8Array): void {
  let shared = 0;
  while (shared < name.length && name[shared] === before[shared]) shared++;
  writer.varint(shared);
  writer.varint(name.length - shared);
  writer.raw(name.subarray(shared));
  writer.varint(piece.endSeq - piece.firstSeq);
  writer.varint(piece.firstSeq);
  if (piece.previous === undefined) return;
  writer.raw(piece.prevHash);
  writer.varint(piece.previous.shard);
  writer.varint(piece.previous.index);
}

/** Pieces of a block whose first row is `row`, with their names as bytes. Throws `CodecError` where the bytes are no block. */
export function* unpackBlock(bytes: Uint8Array, row: number): Generator<{ name: Uint8Array; piece: Piece }> {
  const reader = new Reader(bytes);
  let name: Uint8Array = new Uint8Array(0);
  let firstRow = row;
  while (reader.at < bytes.length) {
    name = nameOf(reader, name);
    const rows = reader.varint();
    const firstSeq = asSeq(reader.varint());
    const before = firstSeq === 0 ? { prevHash: noHash, previous: undefined } : beforeOf(reader);
    const partition = new TextDecoder().decode(name) as Partition;
    yield { name, piece: { partition, firstSeq, endSeq: asSeq(firstSeq + rows), firstRow, ...before } };
    firstRow += rows;
  }
}

function nameOf(reader: Reader, before: Uint8Array): Uint8Array {
  const shared = reader.varint();
  if (shared > before.length) throw new CodecError(`Cannot read a name: it shares ${shared} bytes with one of ${before.length}`);
  const rest = reader.view(reader.bytes.length);
  const name = new Uint8Array(shared + rest.length);
  name.set(before.subarray(0, shared));
  name.set(rest, shared);
  return name;
}

function beforeOf(reader: Reader): Pick<Piece, "prevHash" | "previous"> {
  const end = reader.at + hashBytes;
  if (end > reader.bytes.length) throw new CodecError("Cannot read a hash: the block ends inside it");
  const prevHash = reader.bytes.slice(reader.at, end);
  reader.at = end;
  return { prevHash, previous: { shard: asShardId(reader.varint()), index: asIndex(reader.varint()) } };
}
