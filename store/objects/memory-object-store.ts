/**
 * Object storage in memory, for the simulator: it answers when its schedule says so, and goes
 * wrong as its faults say. Equal schedules and faults give equal behaviour.
 *
 * All stores over one bucket see the same objects, as clients of one server do.
 */
import { bytesEqual } from "#core/base";
import { BackedObjectStore, type ObjectStoreOptions } from "./backed-object-store.ts";
import { MemoryBucket } from "./memory-bucket.ts";
import type {
  GetRequest,
  ObjectBackend,
  ObjectBody,
  ObjectPage,
  PartRef,
  PartUploads,
  PutRequest,
  WriteOutcome,
} from "./object-backend.ts";
import { AttemptError } from "./object-error.ts";
import type { ObjectFault, ObjectFaults, ObjectVerb } from "./object-fault.ts";
import type { ObjectHead } from "./object-store.ts";
import { type Attempt, type ObjectTiming, realObjectTiming } from "./retry.ts";
import { sha256AtOnce } from "./sha256.ts";

export { MemoryBucket } from "./memory-bucket.ts";

/** Time of the server and of those who wait for it. */
export interface ObjectSchedule extends ObjectTiming {
  nowMs(): number;
  /** How long an undisturbed request takes. */
  latencyMs(): number;
}

const realSchedule: ObjectSchedule = { ...realObjectTiming, nowMs: () => performance.now(), latencyMs: () => 0 };

export interface MemoryObjectOptions extends Omit<ObjectStoreOptions, "timing" | "sha256Of"> {
  readonly schedule?: ObjectSchedule;
  readonly faults?: ObjectFaults;
  /** Objects of one page of a listing. */
  readonly pageCount?: number;
  /** Bodies above this are sent in parts of this size. */
  readonly partBytes?: number;
}

export class MemoryObjectStore extends BackedObjectStore {
  constructor(bucket = new MemoryBucket(), options: MemoryObjectOptions = {}) {
    const { schedule = realSchedule } = options;
    super(new MemoryBackend(bucket, { ...options, schedule }), { ...options, timing: schedule, sha256Of: sha256AtOnce });
  }
}

const partBytesDefault = 8 << 20;

class MemoryBackend implements ObjectBackend {
  readonly url = "memory:";
  readonly uploads: PartUploads;
  private readonly bucket: MemoryBucket;
  private readonly schedule: ObjectSchedule;
  private readonly faults: ObjectFaults;
  private readonly pageCount: number;

  constructor(bucket: MemoryBucket, options: MemoryObjectOptions & { readonly schedule: ObjectSchedule }) {
    this.bucket = bucket;
    this.schedule = options.schedule;
    this.faults = options.faults ?? (() => undefined);
    this.pageCount = options.pageCount ?? 1000;
    this.uploads = this.partUploads(options.partBytes ?? partBytesDefault);
  }

  put({ key, bytes, sha256, ifAbsent }: PutRequest): Promise<WriteOutcome> {
    return this.answer("put", key, (fault) => {
      const before = this.bucket.objects.get(key);
      // Not what lies there whole, and somebody may have read back: that it rots later only a copy helps against.
      const isWhole = before !== undefined && bytesEqual(before.bytes, bytes);
      const outcome = this.write(key, { bytes, sha256 }, ifAbsent && fault?.kind !== "unconditional");
      if (fault?.kind === "rotten" && outcome === "stored" && !isWhole) this.bucket.damage(key);
      return outcome;
    });
  }

  get({ key, range, version }: GetRequest, attempt: Attempt): Promise<ObjectBody | undefined> {
    return this.answer("get", key, (fault) => {
      const object = this.bucket.objects.get(key);
      if (object === undefined) return undefined;
      if (version !== undefined && version !== object.version) {
        throw new AttemptError("replaced", "another object took its place while it was read");
      }
      // A copy, also of a `Buffer`, whose slice is a view.
      let bytes = new Uint8Array(object.bytes.subarray(range?.begin ?? 0, range?.end));
      if (fault?.kind === "cut") bytes = bytes.subarray(0, bytes.length >> 1);
      // Another bit than the one that rots: two faults may not make it right again.
      if (fault?.kind === "damaged" && bytes.length > 0) bytes[bytes.length - 1] = (bytes.at(-1) as number) ^ 2;
      attempt.allow(bytes.length);
      // As the SDK does with the checksum that comes with a whole object.
      const isWhole = range === undefined && fault?.kind !== "cut";
      if (isWhole && !bytesEqual(sha256AtOnce(bytes), object.sha256)) {
        throw new AttemptError("damaged", "the body is not the one that was stored");
      }
      return { bytes, size: object.bytes.length, version: object.version };
    });
  }

  head(key: string): Promise<ObjectHead | undefined> {
    return this.answer("head", key, () => {
      const object = this.bucket.objects.get(key);
      return object && { bytes: object.bytes.length, sha256: object.sha256 };
    });
  }

  list({ prefix, after }: { prefix: string; after: string }): Promise<ObjectPage> {
    return this.answer("list", prefix, (fault) => {
      const atMs = this.schedule.nowMs() - (fault?.kind === "stale" ? fault.ms : 0);
      const rest = this.bucket.listingAt(atMs).filter(({ key }) => key.startsWith(prefix) && key > after);
      return { objects: rest.slice(0, this.pageCount), isLast: rest.length <= this.pageCount };
    });
  }

  delete(keys: readonly string[]): Promise<void> {
    return this.answer("delete", keys[0] as string, () => {
      for (const key of keys) this.bucket.remove(key, this.schedule.nowMs());
    });
  }

  async close(): Promise<void> {}

  private partUploads(partBytes: number): PartUploads {
    const { uploads } = this.bucket;
    return {
      thresholdBytes: partBytes,
      partBytes,
      begin: (key, sha256) =>
        this.answer("begin", key, () => {
          const id = this.bucket.nextId();
          uploads.set(id, { key, sha256, parts: new Map() });
          return id;
        }),
      putPart: ({ key, id }, { number, bytes }) => {
        const sha256 = sha256AtOnce(bytes);
        return this.answer("part", key, () => {
          const upload = uploads.get(id);
          if (upload === undefined) throw new AttemptError("unavailable", "there is no such upload");
          upload.parts.set(number, bytes.slice());
          return { number, tag: String(number), sha256 };
        });
      },
      complete: ({ key, id }, { parts, ifAbsent }) =>
        this.answer("complete", key, (fault) => this.complete(id, parts, ifAbsent && fault?.kind !== "unconditional")),
      abort: ({ key, id }) => this.answer("abort", key, () => void uploads.delete(id)),
    };
  }

  private complete(id: string, parts: readonly PartRef[], ifAbsent: boolean): WriteOutcome | "gone" {
    const upload = this.bucket.uploads.get(id);
    if (upload === undefined) return "gone";
    const found = parts.map(({ number, sha256 }) => {
      const bytes = upload.parts.get(number);
      const isRight = bytes !== undefined && bytesEqual(sha256AtOnce(bytes), sha256);
      if (!isRight) throw new AttemptError("damaged", `part ${number} is not the one that was sent`);
      return bytes;
    });
    const outcome = this.write(upload.key, { bytes: new Uint8Array(Buffer.concat(found)), sha256: upload.sha256 }, ifAbsent);
    if (outcome === "stored") this.bucket.uploads.delete(id);
    return outcome;
  }

  private write(key: string, content: { readonly bytes: Uint8Array; readonly sha256: Uint8Array }, ifAbsent: boolean): WriteOutcome {
    if (ifAbsent && this.bucket.objects.has(key)) return "exists";
    this.bucket.set(key, content, this.schedule.nowMs());
    return "stored";
  }

  /** Carries a request out and answers, each when it is time to, or not at all. */
  private answer<T>(verb: ObjectVerb, key: string, carryOut: (fault: ObjectFault | undefined) => T): Promise<T> {
    const fault = this.faults({ verb, key });
    return new Promise((resolve, reject) => {
      const act = (reply: boolean) => () => {
        try {
          const result = carryOut(fault);
          if (reply) this.schedule.after(fault?.kind === "slow" ? fault.ms : 0, () => resolve(result));
        } catch (error) {
          if (reply) reject(error);
        }
      };
      const latencyMs = this.schedule.latencyMs();
      switch (fault?.kind) {
        case "refused":
          this.schedule.after(latencyMs, () => reject(new AttemptError("unavailable", "the server answered 503 SlowDown")));
          return;
        case "lost-request":
          return;
        case "lost-answer":
          this.schedule.after(latencyMs, act(false));
          return;
        default:
          this.schedule.after(latencyMs + (fault?.kind === "late" ? fault.ms : 0), act(true));
      }
    });
  }
}
