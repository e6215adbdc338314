/**
 * Objects in a bucket that speaks S3.
 *
 * Every write carries its SHA-256, which the server checks before it takes it; the hash of the
 * whole is kept as metadata too, since a body in parts has another checksum. Conditions are used
 * on writes only where all servers have them: `If-None-Match: *` on PutObject and
 * CompleteMultipartUpload. Nothing rests on conditional deletes, which MinIO carries out regardless.
 */
import type { GetObjectCommandOutput, ListObjectsV2CommandOutput } from "@aws-sdk/client-s3";
import { fromHex, toHex } from "#core/base";
import type {
  GetRequest,
  ObjectBackend,
  ObjectBody,
  ObjectPage,
  PartRef,
  PartUploads,
  PutRequest,
  Upload,
  WriteOutcome,
} from "./object-backend.ts";
import { AttemptError } from "./object-error.ts";
import type { ObjectHead } from "./object-store.ts";
import type { Attempt } from "./retry.ts";
import { type LoadedS3, loadS3, type S3ClientOptions } from "./s3-client.ts";
import { codeOfS3, s3AttemptError, statusOfS3 } from "./s3-error.ts";
import { sha256Of } from "./sha256.ts";

export interface S3Options extends S3ClientOptions {
  readonly bucket: string;
  /** Folder in the bucket, without slashes at its ends; "" = the bucket itself. */
  readonly prefix?: string | undefined;
  readonly storageClass?: string | undefined;
  readonly sse?: "AES256" | "aws:kms" | undefined;
  readonly kmsKey?: string | undefined;
  readonly thresholdBytes?: number | undefined;
  readonly partBytes?: number | undefined;
}

const thresholdBytesDefault = 16 << 20;
const partBytesDefault = 8 << 20;

const hashName = "hop-sha256";

type Work<T> = (s3: LoadedS3, options: { readonly abortSignal: AbortSignal }) => Promise<T>;

export class S3Backend implements ObjectBackend {
  readonly url: string;
  readonly uploads: PartUploads;
  private readonly options: S3Options;
  private readonly folder: string;
  private loaded: Promise<LoadedS3> | undefined;

  constructor(options: S3Options) {
    const { bucket, prefix = "", endpoint } = options;
    this.options = options;
    this.folder = prefix === "" ? "" : `${prefix}/`;
    this.url = `s3://${bucket}${prefix === "" ? "" : `/${prefix}`}${endpoint === undefined ? "" : ` at ${endpoint}`}`;
    this.uploads = {
      thresholdBytes: options.thresholdBytes ?? thresholdBytesDefault,
      partBytes: options.partBytes ?? partBytesDefault,
      begin: (key, sha256, attempt) => this.begin(key, sha256, attempt),
      putPart: (upload, part, attempt) => this.putPart(upload, part, attempt),
      complete: (upload, request, attempt) => this.complete(upload, request, attempt),
      abort: (upload, attempt) => this.abort(upload, attempt),
    };
  }

  put({ key, bytes, sha256, ifAbsent }: PutRequest, attempt: Attempt): Promise<WriteOutcome> {
    return this.write(ifAbsent, attempt, ({ sdk, client }, options) => {
      const body = { Body: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length), ContentLength: bytes.length };
      const hashes = { ChecksumSHA256: base64(sha256), Metadata: { [hashName]: toHex(sha256) } };
      const condition = ifAbsent ? { IfNoneMatch: "*" } : {};
      return client.send(new sdk.PutObjectCommand({ ...this.place(key), ...body, ...hashes, ...condition, ...this.keeping() }), options);
    });
  }

  async get({ key, range, version }: GetRequest, attempt: Attempt): Promise<ObjectBody | undefined> {
    try {
      return await this.run(attempt, async ({ sdk, client }, options) => {
        const condition = version === undefined || version === "" ? {} : { IfMatch: version };
        const part = range === undefined ? { ChecksumMode: "ENABLED" as const } : { Range: `bytes=${range.begin}-${range.end - 1}` };
        const answer = await client.send(new sdk.GetObjectCommand({ ...this.place(key), ...part, ...condition }), options);
        const size = sizeOf(answer, range?.begin);
        attempt.allow(answer.ContentLength ?? size);
        const bytes = await bodyOf(answer);
        return { bytes, size, version: answer.ETag ?? "" };
      });
    } catch (error) {
      return this.withoutBody({ key, range, version }, error, attempt);
    }
  }

  async head(key: string, attempt: Attempt): Promise<ObjectHead | undefined> {
    try {
      return await this.headOnly(key, attempt);
    } catch (error) {
      if ((statusOfS3((error as AttemptError).cause) ?? 500) >= 500) throw error;
      // The answer to HEAD has no body and so no code: the object may be missing, or the bucket, or a right.
      const body = await this.get({ key, range: { begin: 0, end: 1 }, version: undefined }, attempt);
      return body && { bytes: body.size, sha256: undefined };
    }
  }

  list({ prefix, after }: { prefix: string; after: string }, attempt: Attempt): Promise<ObjectPage> {
    return this.run(attempt, async ({ sdk, client }, options) => {
      const { folder } = this;
      const from = after === "" ? {} : { StartAfter: folder + after };
      const request = { Bucket: this.options.bucket, Prefix: folder + prefix, ...from };
      const answer = await client.send(new sdk.ListObjectsV2Command(request), options);
      return pageOf(answer, folder);
    });
  }

  delete(keys: readonly string[], attempt: Attempt): Promise<void> {
    return this.run(attempt, async ({ sdk, client }, options) => {
      const Delete = { Objects: keys.map((key) => ({ Key: this.folder + key })), Quiet: true };
      const request = { Bucket: this.options.bucket, Delete, ChecksumAlgorithm: "SHA256" as const };
      const { Errors = [] } = await client.send(new sdk.DeleteObjectsCommand(request), options);
      const failed = Errors.find(({ Code }) => Code !== "NoSuchKey");
      if (failed === undefined) return;
      throw Object.assign(new Error(`${failed.Key}: ${failed.Message ?? ""}`), { Code: failed.Code, $metadata: { httpStatusCode: 200 } });
    });
  }

  async close(): Promise<void> {
    const loaded = await this.loaded?.catch(() => undefined);
    loaded?.client.destroy();
  }

  private headOnly(key: string, attempt: Attempt): Promise<ObjectHead> {
    return this.run(attempt, async ({ sdk, client }, options) => {
      const answer = await client.send(new sdk.HeadObjectCommand({ ...this.place(key), ChecksumMode: "ENABLED" }), options);
      if (answer.ContentLength === undefined) throw new AttemptError("unavailable", "the server did not say how long the object is");
      const whole = answer.ChecksumSHA256;
      const isOfParts = whole === undefined || whole.includes("-");
      const sha256 = isOfParts ? fromHex(answer.Metadata?.[hashName] ?? "-") : new Uint8Array(Buffer.from(whole, "base64"));
      return { bytes: answer.ContentLength, sha256 };
    });
  }

  private begin(key: string, sha256: Uint8Array, attempt: Attempt): Promise<string> {
    return this.run(attempt, async ({ sdk, client }, options) => {
      const about = { ChecksumAlgorithm: "SHA256" as const, Metadata: { [hashName]: toHex(sha256) } };
      const { UploadId } = await client.send(
        new sdk.CreateMultipartUploadCommand({ ...this.place(key), ...about, ...this.keeping() }),
        options,
      );
      if (UploadId === undefined) throw new AttemptError("unavailable", "the server gave the upload no id");
      return UploadId;
    });
  }

  private async putPart(
    { key, id }: Upload,
    { number, bytes }: { readonly number: number; readonly bytes: Uint8Array },
    attempt: Attempt,
  ): Promise<PartRef> {
    const sha256 = await sha256Of(bytes);
    return this.run(attempt, async ({ sdk, client }, options) => {
      const body = { Body: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length), ContentLength: bytes.length };
      const part = { UploadId: id, PartNumber: number, ChecksumAlgorithm: "SHA256" as const, ChecksumSHA256: base64(sha256) };
      const { ETag } = await client.send(new sdk.UploadPartCommand({ ...this.place(key), ...part, ...body }), options);
      if (ETag === undefined) throw new AttemptError("unavailable", `the server gave part ${number} no tag`);
      return { number, tag: ETag, sha256 };
    });
  }

  private async complete(
    { key, id }: Upload,
    { parts, ifAbsent }: { readonly parts: readonly PartRef[]; readonly ifAbsent: boolean },
    attempt: Attempt,
  ): Promise<WriteOutcome | "gone"> {
    const Parts = parts.map(({ number, tag, sha256 }) => ({ PartNumber: number, ETag: tag, ChecksumSHA256: base64(sha256) }));
    const condition = ifAbsent ? { IfNoneMatch: "*" } : {};
    try {
      return await this.write(ifAbsent, attempt, ({ sdk, client }, options) => {
        const request = { ...this.place(key), UploadId: id, MultipartUpload: { Parts }, ...condition };
        return client.send(new sdk.CompleteMultipartUploadCommand(request), options);
      });
    } catch (error) {
      if (codeOfS3((error as AttemptError).cause ?? error) === "NoSuchUpload") return "gone";
      throw error;
    }
  }

  private async abort({ key, id }: Upload, attempt: Attempt): Promise<void> {
    await this.run(attempt, ({ sdk, client }, options) =>
      client.send(new sdk.AbortMultipartUploadCommand({ ...this.place(key), UploadId: id }), options),
    );
  }

  /** A read that has no body for an answer: certainly nothing there, nothing in that range, or a failure. */
  private async withoutBody({ key, range, version }: GetRequest, error: unknown, attempt: Attempt): Promise<ObjectBody | undefined> {
    const code = codeOfS3((error as AttemptError).cause ?? error);
    if (code === "NoSuchKey") return undefined;
    if (code === "PreconditionFailed" && version !== undefined) {
      throw new AttemptError("replaced", "another object took its place while it was read");
    }
    if (code !== "InvalidRange" || range === undefined) throw error;
    const head = await this.headOnly(key, attempt);
    if (head.bytes > range.begin) throw error;
    return { bytes: new Uint8Array(0), size: head.bytes, version: version ?? "" };
  }

  private async write(ifAbsent: boolean, attempt: Attempt, work: Work<unknown>): Promise<WriteOutcome> {
    try {
      await this.run(attempt, work);
      return "stored";
    } catch (error) {
      if (ifAbsent && statusOfS3((error as AttemptError).cause) === 412) return "exists";
      throw error;
    }
  }

  /** All failures leave as `AttemptError`, with the SDK's own as cause. */
  private async run<T>({ signal }: Attempt, work: Work<T>): Promise<T> {
    try {
      this.loaded ??= loadS3(this.options);
      return await work(await this.loaded, { abortSignal: signal });
    } catch (error) {
      throw s3AttemptError(error);
    }
  }

  private place(key: string): { Bucket: string; Key: string } {
    return { Bucket: this.options.bucket, Key: this.folder + key };
  }

  private keeping() {
    const { storageClass, sse, kmsKey } = this.options;
    return {
      ...(storageClass !== undefined && { StorageClass: storageClass as "STANDARD" }),
      ...(sse !== undefined && { ServerSideEncryption: sse }),
      ...(kmsKey !== undefined && { SSEKMSKeyId: kmsKey }),
    };
  }
}

const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString("base64");

/** Size of the whole object; the answer to a range must be of that range. */
function sizeOf({ ContentRange, ContentLength }: GetObjectCommandOutput, begin: number | undefined): number {
  if (begin === undefined) {
    if (ContentLength === undefined) throw new AttemptError("unavailable", "the server did not say how long the object is");
    return ContentLength;
  }
  const match = /^bytes (\d+)-\d+\/(\d+)$/.exec(ContentRange ?? "");
  if (match === null || Number(match[1]) !== begin) {
    throw new AttemptError("unavailable", `the server answered with range ${ContentRange ?? "nothing"}, want one from byte ${begin}`);
  }
  return Number(match[2]);
}

async function bodyOf({ Body }: GetObjectCommandOutput): Promise<Uint8Array> {
  try {
    return (await Body?.transformToByteArray()) ?? new Uint8Array(0);
  } catch (error) {
    const { message } = error as Error;
    if (/checksum mismatch/i.test(message)) throw new AttemptError("damaged", `the body is not the one that was stored: ${message}`);
    throw error;
  }
}

/** A page that was cut may read like a shorter one: its own count has to be right. */
function pageOf({ Contents = [], IsTruncated, KeyCount }: ListObjectsV2CommandOutput, folder: string): ObjectPage {
  if (IsTruncated === undefined || (KeyCount !== undefined && KeyCount !== Contents.length)) {
    throw new AttemptError("unavailable", `the listing has ${Contents.length} of ${KeyCount ?? "so many"} objects, and may not be whole`);
  }
  const objects = Contents.map(({ Key = "", Size = 0 }) => ({ key: Key.slice(folder.length), bytes: Size }));
  return { objects, isLast: !IsTruncated };
}
