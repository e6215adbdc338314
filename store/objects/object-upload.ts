/**
 * One large body, sent in parts. Each part is tried again by itself; the object appears whole
 * when the upload is completed, or never.
 */
import type { PartRef, PartUploads, PutRequest, Upload, WriteOutcome } from "./object-backend.ts";
import type { Retry, Task } from "./retry.ts";

/** Parts on their way at one time. */
const activeMax = 3;

export interface ObjectUploadOptions {
  readonly uploads: PartUploads;
  readonly retry: Retry;
  readonly task: Task;
  readonly request: PutRequest;
}

export class ObjectUpload {
  private readonly options: ObjectUploadOptions;
  /** Without bytes: these are requests beside the body. */
  private readonly task: Task;

  constructor(options: ObjectUploadOptions) {
    this.options = options;
    this.task = { ...options.task, bytes: 0 };
  }

  /** `gone`: the server knows the upload no more, so that an earlier try may have completed it. */
  async run(): Promise<WriteOutcome | "gone"> {
    const { uploads, retry, request } = this.options;
    const id = await retry.run(this.task, (attempt) => uploads.begin(request.key, request.sha256, attempt));
    const upload = { key: request.key, id };
    let outcome: WriteOutcome | "gone" | undefined;
    try {
      const parts = await this.sendParts(upload);
      const completion = { parts, ifAbsent: request.ifAbsent };
      outcome = await retry.run(this.task, (attempt) => uploads.complete(upload, completion, attempt));
      return outcome;
    } finally {
      if (outcome === undefined || outcome === "exists") await this.abort(upload);
    }
  }

  private async sendParts(upload: Upload): Promise<PartRef[]> {
    const { uploads, retry, task, request } = this.options;
    const { partBytes } = uploads;
    const parts = new Array<PartRef>(Math.ceil(request.bytes.length / partBytes));
    let next = 0;
    const send = async () => {
      while (next < parts.length) {
        const at = next++;
        const bytes = request.bytes.subarray(at * partBytes, (at + 1) * partBytes);
        const part = { number: at + 1, bytes };
        try {
          parts[at] = await retry.run({ ...task, bytes: bytes.length }, (attempt) => uploads.putPart(upload, part, attempt));
        } catch (error) {
          next = parts.length;
          throw error;
        }
      }
    };
    const lanes = await Promise.allSettled(Array.from({ length: Math.min(activeMax, parts.length) }, send));
    for (const lane of lanes) if (lane.status === "rejected") throw lane.reason;
    return parts;
  }

  /** What is left of an upload costs space and nothing else; a bucket's lifecycle rule clears what this can't. */
  private async abort(upload: Upload): Promise<void> {
    const { uploads, retry } = this.options;
    await retry.run({ attempt: this.task.attempt, triesMax: 1 }, (attempt) => uploads.abort(upload, attempt)).catch(() => {});
  }
}
