/** Where the pieces of a blob go: to the disk as a rule, to memory where the disk takes none and somebody waits for the bytes. */
import { bytesEqual, HopError, toHex } from "#core/base";
import type { DurableRef } from "#proto";

export interface BlobSink {
  /** So many of the blob's first bytes are there: what follows is asked for from here on. */
  readonly bytes: number;
  /** Keeps the piece as it is. Rejects with `HopError` where no more can be taken. */
  write(piece: Uint8Array): Promise<void>;
  reset(): Promise<void>;
  /** Rejects with HASH_MISMATCH where what came is another blob. */
  finish(): Promise<DurableRef>;
  abandon(): Promise<void>;
}

export class MemorySink implements BlobSink {
  private readonly sha256: Uint8Array;
  private pieces: Uint8Array[] = [];
  private taken = 0;

  constructor(sha256: Uint8Array) {
    this.sha256 = sha256;
  }

  get bytes(): number {
    return this.taken;
  }

  data(): Uint8Array {
    return new Uint8Array(Buffer.concat(this.pieces));
  }

  async write(piece: Uint8Array): Promise<void> {
    this.pieces.push(piece);
    this.taken += piece.length;
  }

  async reset(): Promise<void> {
    this.pieces = [];
    this.taken = 0;
  }

  async finish(): Promise<DurableRef> {
    const hasher = new Bun.CryptoHasher("sha256");
    for (const piece of this.pieces) hasher.update(piece);
    const got = new Uint8Array(hasher.digest().buffer);
    if (!bytesEqual(got, this.sha256))
      throw new HopError(
        "HASH_MISMATCH",
        `Cannot read blob ${toHex(this.sha256)}: the ${this.taken} bytes that came have SHA-256 ${toHex(got)}`,
      );
    return { sha256: this.sha256, size: this.taken };
  }

  async abandon(): Promise<void> {}
}
