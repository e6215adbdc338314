/** Hashes of objects. */

export const sha256AtOnce = (bytes: Uint8Array) => Bun.SHA256.hash(bytes) as Uint8Array;

/** Off this thread where hashing would hold it up. */
export async function sha256Of(bytes: Uint8Array): Promise<Uint8Array> {
  if (bytes.length <= 1 << 18) return sha256AtOnce(bytes);
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
}
