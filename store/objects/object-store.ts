/**
 * Objects: immutable bytes under keys, in a bucket or a folder that outlives the cluster.
 *
 * A store answers what is certain. What it can't find out now is STORE_UNAVAILABLE, which may be
 * tried again, and never "missing". Wrong bytes are HASH_MISMATCH. What no second try would
 * change (credentials, permissions, no such bucket, a clock that is wrong) is an
 * `ObjectRefusal` that says what to do.
 */

/** `stored`: the object is there and holds these bytes. `conflict`: with `ifAbsent`, it holds others. */
export type PutOutcome = "stored" | "conflict";

export interface PutOptions {
  /**
   * Only where there is no such object. All writers of a key agree on the first one's bytes: the
   * store compares what is there with what was to be put, so a writer whose answer was lost is
   * told `stored`, and so is one that puts the same bytes again. Writers that must be told apart
   * put what tells them apart into the bytes.
   */
  readonly ifAbsent?: true;
  /** SHA-256 that the bytes must have. */
  readonly sha256?: Uint8Array;
  readonly signal?: AbortSignal;
}

/** `[begin, end)` in bytes; less is returned where the object ends before. */
export interface ByteRange {
  readonly begin: number;
  readonly end: number;
}

export interface GetOptions {
  readonly range?: ByteRange;
  /** SHA-256 that the returned bytes must have. */
  readonly sha256?: Uint8Array;
  readonly signal?: AbortSignal;
}

export interface DownloadOptions {
  /** Goes on from this byte; without `sha256`. */
  readonly from?: number;
  /** SHA-256 of the whole object. */
  readonly sha256?: Uint8Array;
  /** Bytes asked for at a time, and given to `take`. */
  readonly chunkBytes?: number;
  readonly signal?: AbortSignal;
}

export interface ObjectHead {
  readonly bytes: number;
  /** As the store recorded it when it took the object; undefined where it records none. */
  readonly sha256: Uint8Array | undefined;
}

export interface ListedObject {
  readonly key: string;
  readonly bytes: number;
}

export interface ListOptions {
  /** Only keys behind this one. */
  readonly after?: string;
  readonly signal?: AbortSignal;
}

/**
 * Keys obey the rules of object-key.ts. A signal that aborts rejects with its reason; whether a
 * write was carried out is then open, as it is after STORE_UNAVAILABLE: put it again.
 *
 * A put without `ifAbsent` that failed may still be carried out later, over what was put
 * meanwhile. Therefore whatever matters is put with `ifAbsent`, under a key that is used once.
 */
export interface ObjectStore {
  /** Where the objects are, for messages. */
  readonly url: string;

  /** Stores bytes, which may not change before it resolves; durable as far as the server says so. */
  put(key: string, bytes: Uint8Array, options?: PutOptions): Promise<PutOutcome>;

  /**
   * The object's bytes; undefined when there certainly is none. Without a hash of the caller's, S3
   * compares a whole object with the one that it keeps, and a folder compares nothing.
   */
  get(key: string, options?: GetOptions): Promise<Uint8Array | undefined>;

  /**
   * Hands the object to `take` in pieces, in order; each is tried again by itself. Resolves with
   * the object's size when all of it was taken and has the hash: nothing may be relied on before.
   * Undefined when there certainly is none. Rejects where another object takes its place meanwhile.
   */
  download(
    key: string,
    take: (bytes: Uint8Array, at: number) => void | Promise<void>,
    options?: DownloadOptions,
  ): Promise<number | undefined>;

  /** Undefined when there certainly is none. */
  head(key: string, options?: { readonly signal?: AbortSignal }): Promise<ObjectHead | undefined>;

  /**
   * Objects whose keys begin with `prefix`, in the order of their keys' bytes. What a listing
   * shows may be old: it is no proof that an object is there, nor that it is not; ask with `head`.
   * Objects with keys that this store would not take are left out.
   */
  list(prefix: string, options?: ListOptions): AsyncIterable<ListedObject>;

  /** Removes what is there of `keys`, without any condition. */
  delete(keys: readonly string[], options?: { readonly signal?: AbortSignal }): Promise<void>;

  close(): Promise<void>;
}
