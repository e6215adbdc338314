/**
 * One try at one request: what a kind of object storage has to bring.
 *
 * A try that fails rejects with `AttemptError`. Whether it was carried out all the same is not
 * known then; backed-object-store.ts finds out.
 */
import type { ByteRange, ListedObject, ObjectHead } from "./object-store.ts";
import type { Attempt } from "./retry.ts";

export interface PutRequest {
  readonly key: string;
  readonly bytes: Uint8Array;
  readonly sha256: Uint8Array;
  readonly ifAbsent: boolean;
}

export interface GetRequest {
  readonly key: string;
  readonly range: ByteRange | undefined;
  /** Only this version of the object; another one is `replaced`. */
  readonly version: string | undefined;
}

export interface ObjectBody {
  readonly bytes: Uint8Array;
  /** Of the whole object. */
  readonly size: number;
  /** Equal for equal objects in the place of the key. */
  readonly version: string;
}

export interface ObjectPage {
  /** In key order. */
  readonly objects: readonly ListedObject[];
  readonly isLast: boolean;
}

/** `exists`: nothing was written, since `ifAbsent` found an object. */
export type WriteOutcome = "stored" | "exists";

export interface PartRef {
  readonly number: number;
  readonly tag: string;
  readonly sha256: Uint8Array;
}

/** A body sent in parts; nobody sees any of them before `complete`. */
export interface PartUploads {
  /** Bodies above this are sent in parts. */
  readonly thresholdBytes: number;
  readonly partBytes: number;
  begin(key: string, sha256: Uint8Array, attempt: Attempt): Promise<string>;
  putPart(upload: Upload, part: { readonly number: number; readonly bytes: Uint8Array }, attempt: Attempt): Promise<PartRef>;
  /** `gone`: there is no such upload any more; an earlier try may have completed it. */
  complete(
    upload: Upload,
    request: { readonly parts: readonly PartRef[]; readonly ifAbsent: boolean },
    attempt: Attempt,
  ): Promise<WriteOutcome | "gone">;
  /** Gives the parts up; an upload that is gone is no error. */
  abort(upload: Upload, attempt: Attempt): Promise<void>;
}

export interface Upload {
  readonly key: string;
  readonly id: string;
}

export interface ObjectBackend {
  readonly url: string;
  readonly uploads: PartUploads | undefined;
  put(request: PutRequest, attempt: Attempt): Promise<WriteOutcome>;
  get(request: GetRequest, attempt: Attempt): Promise<ObjectBody | undefined>;
  head(key: string, attempt: Attempt): Promise<ObjectHead | undefined>;
  list(request: { readonly prefix: string; readonly after: string }, attempt: Attempt): Promise<ObjectPage>;
  /** At most `deleteCountMax` keys. */
  delete(keys: readonly string[], attempt: Attempt): Promise<void>;
  close(): Promise<void>;
}

export const deleteCountMax = 1000;
