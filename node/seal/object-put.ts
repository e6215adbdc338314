/** Puts an object that the log is forgotten on the strength of: it counts as stored when it has been read back. */
import { HopError, toHex } from "#core/base";
import type { ObjectStore, PutOptions } from "#store";

/** Its key says which bytes it holds, so that whoever puts it puts the same ones. */
export interface NamedObject {
  readonly key: string;
  readonly bytes: Uint8Array;
  readonly sha256: Uint8Array;
}

/**
 * Resolves when the object is there with its bytes. What lies there with others is damaged, and is
 * written over: these are the right ones. Rejects with `HopError` STORE_UNAVAILABLE, or HASH_MISMATCH
 * where it reads back wrong again.
 */
export async function storeObject(objects: ObjectStore, object: NamedObject): Promise<void> {
  if (await put(objects, object, { ifAbsent: true })) return;
  if (await put(objects, object, {})) return;
  throw new HopError(
    "HASH_MISMATCH",
    `Cannot store ${object.key} at ${objects.url}: it reads back without the hash ${toHex(object.sha256)}, written twice`,
  );
}

async function put(objects: ObjectStore, { key, bytes, sha256 }: NamedObject, how: Pick<PutOptions, "ifAbsent">): Promise<boolean> {
  if ((await objects.put(key, bytes, { ...how, sha256 })) === "conflict") return false;
  try {
    const size = await objects.download(key, () => {}, { sha256 });
    if (size === bytes.length) return true;
    throw new HopError(
      "STORE_UNAVAILABLE",
      `Cannot read ${key} back from ${objects.url}: got ${size ?? "no object"}, want ${bytes.length} bytes`,
    );
  } catch (error) {
    if (error instanceof HopError && error.reason === "HASH_MISMATCH") return false;
    throw error;
  }
}
