/**
 * Byte strings of any size packed into objects: each is its length as four little-endian bytes and
 * itself, and an object is the zstd frame of what it packs.
 */
import { errorText, HopError } from "#core/base";

/** Of an object before it is compressed: what is in memory at once. */
const objectBytesMax = 16 << 20;
/** A compressed object that claims to be larger is not one of ours. */
const plainBytesMax = 256 << 20;

/** What objects that hold `chunks` in order are the frames of. */
export async function* plainObjects(chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of chunks) {
    const length = new Uint8Array(4);
    new DataView(length.buffer).setUint32(0, chunk.length, true);
    parts.push(length, chunk.slice());
    bytes += 4 + chunk.length;
    if (bytes < objectBytesMax) continue;
    yield Buffer.concat(parts);
    parts = [];
    bytes = 0;
  }
  if (bytes > 0) yield Buffer.concat(parts);
}

/** What an object packs. `name` is for the message of the `HopError` HASH_MISMATCH where it is not one. */
export function* unpackChunks(object: Uint8Array, name: string): Generator<Uint8Array> {
  const plain = decompressed(object, name);
  const view = new DataView(plain.buffer, plain.byteOffset, plain.length);
  for (let at = 0; at < plain.length; ) {
    const end = at + 4 <= plain.length ? at + 4 + view.getUint32(at, true) : Number.POSITIVE_INFINITY;
    if (end > plain.length) throw broken(name, `a chunk at byte ${at} goes beyond its end at ${plain.length}`);
    yield plain.subarray(at + 4, end);
    at = end;
  }
}

function decompressed(object: Uint8Array, name: string): Uint8Array {
  if (object.length === 0) throw broken(name, "it is empty");
  try {
    const plain = Bun.zstdDecompressSync(object as Uint8Array<ArrayBuffer>);
    if (plain.length <= plainBytesMax) return plain;
  } catch (error) {
    throw broken(name, `it is no zstd frame: ${errorText(error)}`);
  }
  throw broken(name, `it holds more than ${plainBytesMax} bytes`);
}

const broken = (name: string, what: string) => new HopError("HASH_MISMATCH", `Cannot read ${name}: ${what}`);
