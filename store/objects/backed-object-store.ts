/**
 * The `ObjectStore` over any backend: keys, tries, bodies in parts, and what became of a write
 * whose answer was lost.
 *
 * A write that was refused for the object in its place compares that one with what was to be
 * written. So it needs not know whether an earlier try was carried out: whoever's bytes are there
 * has won.
 */
import { assert, bytesEqual, HopError, toHex } from "#core/base";
import { deleteCountMax, type ObjectBackend, type ObjectBody, type ObjectPage } from "./object-backend.ts";
import { AttemptError } from "./object-error.ts";
import { checkKey, checkPrefix, keyDepthDefault, keyProblem } from "./object-key.ts";
import type {
  DownloadOptions,
  GetOptions,
  ListedObject,
  ListOptions,
  ObjectHead,
  ObjectStore,
  PutOptions,
  PutOutcome,
} from "./object-store.ts";
import { ObjectUpload } from "./object-upload.ts";
import { type Attempt, type ObjectTiming, Retry, type RetryPolicy, type Task } from "./retry.ts";
import { sha256Of } from "./sha256.ts";

export interface ObjectStoreOptions {
  /** Segments of each key. */
  readonly keyDepth?: number | undefined;
  readonly retry?: RetryPolicy | undefined;
  readonly timing?: ObjectTiming | undefined;
  /** By default large bodies are hashed off this thread, whose end no simulator can tell. */
  readonly sha256Of?: ((bytes: Uint8Array) => Uint8Array | Promise<Uint8Array>) | undefined;
}

interface Signalled {
  readonly signal?: AbortSignal | undefined;
}

const chunkBytesDefault = 8 << 20;
/** Times that a write is begun anew, where a server that refused it shows nothing in its way. */
const roundsMax = 3;

export class BackedObjectStore implements ObjectStore {
  readonly url: string;
  readonly keyDepth: number;
  private readonly backend: ObjectBackend;
  private readonly retry: Retry;
  private readonly sha256Of: (bytes: Uint8Array) => Uint8Array | Promise<Uint8Array>;

  constructor(backend: ObjectBackend, options: ObjectStoreOptions = {}) {
    const { keyDepth = keyDepthDefault, retry, timing } = options;
    this.url = backend.url;
    this.keyDepth = keyDepth;
    this.backend = backend;
    this.retry = new Retry(retry, timing);
    this.sha256Of = options.sha256Of ?? sha256Of;
  }

  /** `inParts`: also where the bytes are few. The preflight asks for it. */
  async put(key: string, bytes: Uint8Array, options: PutOptions & { readonly inParts?: true } = {}): Promise<PutOutcome> {
    checkKey(key, this.keyDepth);
    const sha256 = await this.sha256Of(bytes);
    const task = this.task(`put object ${key} of ${bytes.length} bytes to`, options, bytes.length);
    if (options.sha256 !== undefined && !bytesEqual(options.sha256, sha256)) {
      throw new HopError("HASH_MISMATCH", `Cannot ${task.attempt}: its SHA-256 is ${toHex(sha256)}, want ${toHex(options.sha256)}`);
    }
    const request = { key, bytes, sha256, ifAbsent: options.ifAbsent === true };
    const { uploads } = this.backend;
    const isInParts = uploads !== undefined && bytes.length > 0 && (options.inParts === true || bytes.length > uploads.thresholdBytes);
    const upload = isInParts ? new ObjectUpload({ uploads, retry: this.retry, task, request }) : undefined;
    for (let round = 1; round <= roundsMax; round++) {
      const outcome = await (upload?.run() ?? this.retry.run(task, (attempt) => this.backend.put(request, attempt)));
      if (outcome === "stored") return outcome;
      const whose = await this.retry.run({ ...task, bytes: 0 }, (attempt) => this.whose(request, attempt));
      if (whose === "own") return "stored";
      if (whose === "another's" && request.ifAbsent) return "conflict";
    }
    throw new HopError("STORE_UNAVAILABLE", `Cannot ${task.attempt}: what is in its place comes and goes (looked ${roundsMax} times)`);
  }

  async get(key: string, options: GetOptions = {}): Promise<Uint8Array | undefined> {
    checkKey(key, this.keyDepth);
    const { range, sha256 } = options;
    if (range !== undefined) assert(range.begin >= 0 && range.begin < range.end, `range ${range.begin}-${range.end} has bytes`);
    const body = await this.fetch({ key, range, version: undefined, sha256 }, options);
    return body?.bytes;
  }

  async download(
    key: string,
    take: (bytes: Uint8Array, at: number) => void | Promise<void>,
    options: DownloadOptions = {},
  ): Promise<number | undefined> {
    checkKey(key, this.keyDepth);
    const { from = 0, sha256, chunkBytes = chunkBytesDefault } = options;
    assert(from === 0 || sha256 === undefined, "a download that goes on has no hash of the whole");
    const hasher = new Bun.CryptoHasher("sha256");
    let version: string | undefined;
    for (let at = from; ; ) {
      const body = await this.fetch({ key, range: { begin: at, end: at + chunkBytes }, version, sha256: undefined }, options);
      if (body === undefined && version === undefined) return undefined;
      if (body === undefined)
        throw new HopError("STORE_UNAVAILABLE", `Cannot get object ${key} from ${this.url}: it was removed meanwhile`);
      version = body.version;
      if (sha256 !== undefined) hasher.update(body.bytes);
      if (body.bytes.length > 0) await take(body.bytes, at);
      at += body.bytes.length;
      if (at < body.size) continue;
      if (sha256 !== undefined) this.checkHash(key, new Uint8Array(hasher.digest().buffer), sha256);
      return body.size;
    }
  }

  async head(key: string, options: Signalled = {}): Promise<ObjectHead | undefined> {
    checkKey(key, this.keyDepth);
    return this.retry.run(this.task(`look for object ${key} in`, options), (attempt) => this.backend.head(key, attempt));
  }

  async *list(prefix: string, options: ListOptions = {}): AsyncGenerator<ListedObject> {
    checkPrefix(prefix, this.keyDepth);
    const task = this.task(`list objects ${prefix}* in`, options);
    for (let after = options.after ?? ""; ; ) {
      const page = await this.retry.run(task, async (attempt) => checkedPage(await this.backend.list({ prefix, after }, attempt), after));
      for (const object of page.objects) {
        after = object.key;
        if (keyProblem(object.key, this.keyDepth) === undefined) yield object;
      }
      if (page.isLast) return;
    }
  }

  async delete(keys: readonly string[], options: Signalled = {}): Promise<void> {
    for (const key of keys) checkKey(key, this.keyDepth);
    for (let at = 0; at < keys.length; at += deleteCountMax) {
      const batch = keys.slice(at, at + deleteCountMax);
      const task = this.task(`delete ${batch.length} objects from ${batch[0]} on in`, options);
      await this.retry.run(task, (attempt) => this.backend.delete(batch, attempt));
    }
  }

  close(): Promise<void> {
    return this.backend.close();
  }

  private task(attempt: string, { signal }: Signalled, bytes = 0): Task {
    return { attempt: `${attempt} ${this.url}`, bytes, signal };
  }

  private fetch(
    { sha256, ...request }: { key: string; range: GetOptions["range"]; version: string | undefined; sha256: Uint8Array | undefined },
    options: Signalled,
  ): Promise<ObjectBody | undefined> {
    return this.retry.run(this.task(`get object ${request.key} from`, options), async (attempt) => {
      const body = await this.backend.get(request, attempt);
      if (body === undefined) return undefined;
      checkLength(body, request.range);
      if (sha256 !== undefined) {
        const got = await this.sha256Of(body.bytes);
        // Worth another try: it may have happened on the way.
        if (!bytesEqual(got, sha256)) throw new AttemptError("damaged", mismatch(got, sha256));
      }
      return body;
    });
  }

  private checkHash(key: string, got: Uint8Array, want: Uint8Array): void {
    if (bytesEqual(got, want)) return;
    throw new HopError("HASH_MISMATCH", `Cannot get object ${key} from ${this.url}: ${mismatch(got, want)}`);
  }

  /** Whose bytes lie under the key. */
  private async whose(
    { key, bytes, sha256 }: { key: string; bytes: Uint8Array; sha256: Uint8Array },
    attempt: Attempt,
  ): Promise<"own" | "another's" | "nobody's"> {
    const head = await this.backend.head(key, attempt);
    if (head === undefined) return "nobody's";
    if (head.bytes !== bytes.length) return "another's";
    let found = head.sha256;
    if (found === undefined) {
      const body = await this.backend.get({ key, range: undefined, version: undefined }, attempt);
      if (body === undefined) return "nobody's";
      checkLength(body, undefined);
      found = await this.sha256Of(body.bytes);
    }
    return bytesEqual(found, sha256) ? "own" : "another's";
  }
}

const mismatch = (got: Uint8Array, want: Uint8Array) => `SHA-256 is ${toHex(got)}, want ${toHex(want)}`;

/** A body may be cut off without an error of the connection. */
function checkLength({ bytes, size }: ObjectBody, range: GetOptions["range"]): void {
  const want = range === undefined ? size : Math.max(Math.min(range.end, size) - range.begin, 0);
  if (bytes.length !== want) throw new AttemptError("unavailable", `the body ended after ${bytes.length} of ${want} bytes`);
}

function checkedPage(page: ObjectPage, after: string): ObjectPage {
  let last = after;
  for (const { key } of page.objects) {
    if (key <= last) {
      throw new AttemptError("unsupported", `the listing has ${key} behind ${last}`, {
        advice: "use a server that lists in the order of keys",
      });
    }
    last = key;
  }
  if (!page.isLast && page.objects.length === 0) throw new AttemptError("unavailable", "the listing has an empty page before its end");
  return page;
}
