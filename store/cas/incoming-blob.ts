/**
 * A blob on its way to the disk, in pieces: in a file of its own until all of it is there and has
 * its hash. What is lost on the way goes on from `bytes`.
 */
import fs from "node:fs";
import { bytesEqual, HopError, toHex } from "#core/base";
import type { DurableRef } from "#proto";
import { wrapped } from "./blob-file.ts";

/** Gives the file its final name. */
export type Settle = (path: string, ref: DurableRef) => Promise<void>;

export class IncomingBlob {
  private readonly path: string;
  private readonly sha256: Uint8Array;
  private readonly settle: Settle;
  private file: fs.promises.FileHandle | undefined;
  private hasher = new Bun.CryptoHasher("sha256");
  private taken = 0;

  constructor(path: string, sha256: Uint8Array, settle: Settle) {
    this.path = path;
    this.sha256 = sha256;
    this.settle = settle;
  }

  /** So many of its first bytes are there. */
  get bytes(): number {
    return this.taken;
  }

  /** Takes what follows. Rejects with NO_SPACE or STORE_UNAVAILABLE; then it can only be abandoned, or begun anew. */
  async write(piece: Uint8Array): Promise<void> {
    try {
      this.file ??= await fs.promises.open(this.path, "w", 0o600);
      for (let at = 0; at < piece.length; ) at += (await this.file.write(piece, at, piece.length - at, this.taken + at)).bytesWritten;
    } catch (error) {
      throw wrapped(`store ${this.taken + piece.length} bytes of blob ${toHex(this.sha256)}`, error);
    }
    this.hasher.update(piece);
    this.taken += piece.length;
  }

  /** Begins anew. */
  async reset(): Promise<void> {
    await this.abandon();
    this.hasher = new Bun.CryptoHasher("sha256");
    this.taken = 0;
  }

  /** Resolves when the blob is stored. Rejects with HASH_MISMATCH where what came is another one, else as `write`. */
  async finish(): Promise<DurableRef> {
    const got = new Uint8Array(this.hasher.copy().digest().buffer);
    if (!bytesEqual(got, this.sha256))
      throw new HopError(
        "HASH_MISMATCH",
        `Cannot store blob ${toHex(this.sha256)}: the ${this.taken} bytes that came have SHA-256 ${toHex(got)}`,
      );
    const ref = { sha256: this.sha256, size: this.taken };
    try {
      this.file ??= await fs.promises.open(this.path, "w", 0o600);
      await this.file.datasync();
      await this.close();
      await this.settle(this.path, ref);
      return ref;
    } catch (error) {
      throw wrapped(`store blob ${toHex(this.sha256)} of ${this.taken} bytes`, error);
    }
  }

  /** Leaves nothing behind; after `finish` it changes nothing. */
  async abandon(): Promise<void> {
    await this.close().catch(() => {});
    await fs.promises.rm(this.path, { force: true }).catch(() => {});
  }

  private async close(): Promise<void> {
    const { file } = this;
    this.file = undefined;
    await file?.close();
  }
}
