/** The object store that a URL names. */
import { BackedObjectStore, type ObjectStoreOptions } from "./backed-object-store.ts";
import { FileBackend } from "./file-backend.ts";
import { parseObjectUrl } from "./object-url.ts";
import { S3Backend } from "./s3-backend.ts";

export interface OpenOptions extends ObjectStoreOptions {
  /** Nothing of a folder is changed, nor is it made. */
  readonly forReading?: boolean;
}

/**
 * Opens `file:///folder` or `s3://bucket/prefix?endpoint=…&region=…&path-style=…&storage-class=…&sse=…&kms-key=…`.
 *
 * A folder is made where its parent is there. Nothing is asked of an S3 server before the first
 * request: `checkObjectStore` does that. Throws BAD_REQUEST for a URL that it can't use.
 */
export function openObjectStore(url: string, { forReading = false, ...options }: OpenOptions = {}): BackedObjectStore {
  const place = parseObjectUrl(url);
  const backend =
    place.kind === "s3" ? new S3Backend(place.options) : forReading ? FileBackend.openForReading(place.dir) : FileBackend.open(place.dir);
  return new BackedObjectStore(backend, options);
}
