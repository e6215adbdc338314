/** Files of blobs: written durably, hashed, and what their faults are called. */
import fs from "node:fs";
import { HopError } from "#core/base";
import { isNoSpace } from "../log/log-disk.ts";

/** A file is hashed in pieces of this size: a large one is never whole in memory. */
const pieceBytes = 1 << 20;

/** Off this thread where hashing would hold it up. */
export async function hashOf(bytes: Uint8Array): Promise<Uint8Array> {
  if (bytes.length <= 1 << 18) return Bun.SHA256.hash(bytes) as Uint8Array;
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
}

/** The file's bytes from `from` on, in pieces that stay as they are. */
export async function* piecesOf(file: fs.promises.FileHandle, from: number): AsyncGenerator<Uint8Array> {
  const { size } = await file.stat();
  for (let at = from; at < size; ) {
    const piece = new Uint8Array(Math.min(pieceBytes, size - at));
    const { bytesRead } = await file.read(piece, 0, piece.length, at);
    if (bytesRead === 0) return;
    yield piece.subarray(0, bytesRead);
    at += bytesRead;
  }
}

export async function hashOfFile(path: string): Promise<Uint8Array> {
  const file = await fs.promises.open(path, "r");
  try {
    const hasher = new Bun.CryptoHasher("sha256");
    for await (const piece of piecesOf(file, 0)) hasher.update(piece);
    return new Uint8Array(hasher.digest().buffer);
  } finally {
    await file.close();
  }
}

export async function writeDurably(path: string, bytes: Uint8Array): Promise<void> {
  const file = await fs.promises.open(path, "w", 0o600);
  try {
    await file.writeFile(bytes);
    await file.datasync();
  } finally {
    await file.close();
  }
}

export async function syncPath(path: string): Promise<void> {
  const file = await fs.promises.open(path, "r");
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

export const isMissing = (error: unknown) => (error as NodeJS.ErrnoException).code === "ENOENT";

export function wrapped(attempt: string, error: unknown): HopError {
  if (error instanceof HopError) return error;
  const reason = isNoSpace(error) ? "NO_SPACE" : "STORE_UNAVAILABLE";
  return new HopError(reason, `Cannot ${attempt}: ${(error as Error).message}`, { cause: error });
}
