/** Cuts a byte stream into frames: four bytes of length, little-endian, then that many bytes. */
import { CodecError } from "../codec/reader.ts";

const headerBytes = 4;

export class FrameReader {
  /** No frame that begins from now on may be larger. */
  bytesMax: number;
  private readonly take: (frame: Uint8Array) => void;
  private chunks: Uint8Array[] = [];
  private held = 0;
  /** Bytes that must be there before another look is worth it. */
  private wanted = headerBytes;

  constructor(bytesMax: number, take: (frame: Uint8Array) => void) {
    this.bytesMax = bytesMax;
    this.take = take;
  }

  /** Takes a copy of `chunk`. Throws `CodecError` for a frame that is announced as too large. */
  push(chunk: Uint8Array): void {
    this.chunks.push(chunk.slice());
    this.held += chunk.length;
    if (this.held < this.wanted) return;
    const bytes = this.chunks.length === 1 ? (this.chunks[0] as Uint8Array) : join(this.chunks, this.held);
    const rest = this.cut(bytes);
    this.chunks = rest.length > 0 ? [rest] : [];
    this.held = rest.length;
  }

  private cut(bytes: Uint8Array): Uint8Array {
    let at = 0;
    while (bytes.length - at >= headerBytes) {
      const length = lengthAt(bytes, at);
      if (length > this.bytesMax) throw new CodecError(`Cannot read a frame: it has ${length} bytes, at most ${this.bytesMax} are allowed`);
      this.wanted = headerBytes + length;
      if (bytes.length - at < this.wanted) return bytes.subarray(at);
      this.take(bytes.subarray(at + headerBytes, at + this.wanted));
      at += this.wanted;
      this.wanted = headerBytes;
    }
    return bytes.subarray(at);
  }
}

function lengthAt(b: Uint8Array, at: number): number {
  return ((b[at] as number) | ((b[at + 1] as number) << 8) | ((b[at + 2] as number) << 16) | ((b[at + 3] as number) << 24)) >>> 0;
}

function join(chunks: readonly Uint8Array[], length: number): Uint8Array {
  const out = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    out.set(chunk, at);
    at += chunk.length;
  }
  return out;
}

/** Writes the length of the frame that follows the first four bytes of `frame`. */
export function sealFrame(frame: Uint8Array): void {
  const length = frame.length - headerBytes;
  frame[0] = length;
  frame[1] = length >>> 8;
  frame[2] = length >>> 16;
  frame[3] = length >>> 24;
}
