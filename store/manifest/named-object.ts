/** Objects that a manifest names, as those read them that trust the manifest: one that is not there is damage. */
import { HopError } from "#core/base";
import type { GetOptions, ObjectStore } from "../objects/object-store.ts";
import { SealedReader } from "../segment/sealed/sealed-reader.ts";
import type { SegmentEntry } from "./manifest.ts";

/** What a manifest names is not there: that manifest is old, or somebody deleted it. */
export class MissingObjectError extends HopError {
  constructor(objects: Pick<ObjectStore, "url">, key: string) {
    super("HASH_MISMATCH", `Cannot read ${key}: a manifest names it, and ${objects.url} does not have it`);
  }
}

/** Rejects with `MissingObjectError` where there certainly is no such object. */
export async function namedObject(objects: ObjectStore, key: string, options?: GetOptions): Promise<Uint8Array> {
  const bytes = await objects.get(key, options);
  if (bytes === undefined) throw new MissingObjectError(objects, key);
  return bytes;
}

/** Reads of one segment by ranges; nothing is believed that its summary does not cover. */
export function segmentReader(objects: ObjectStore, { segment, index, summary }: SegmentEntry): SealedReader {
  return new SealedReader(summary, {
    segment,
    index,
    read: (object, at, bytes) => namedObject(objects, object === "segment" ? segment : index, { range: { begin: at, end: at + bytes } }),
  });
}
