/**
 * Seals beside the node: its event loop only packs records into batches and hands them over.
 *
 * One segment at a time, in the order of the calls. The thread starts with the first one and is kept:
 * it has compiled its code when the next one comes. It does not keep the process alive when idle.
 */
import { HopError, InvariantError } from "#core/base";
import { packRecords, type RecordToSeal } from "./record-batch.ts";
import { brokenLog } from "./row-table.ts";
import type { SealOptions } from "./seal.ts";
import type { SealReply, SealRequest } from "./seal-message.ts";
import type { SealedSegment } from "./summary.ts";

/** In the executable, where this module is in a chunk, entry points are found from the top. */
const entry = import.meta.url.includes("/$bunfs/") ? "./store/segment/sealed/seal-worker.ts" : "./seal-worker.ts";

export class SealThread {
  private worker: Worker | undefined;
  private waiting: PromiseWithResolvers<SealReply> | undefined;
  private last: Promise<unknown> = Promise.resolve();
  private closed = false;

  /** As `sealSegment`, in the thread. Rejects with STORE_UNAVAILABLE where the thread ends before it is done. */
  seal(records: AsyncIterable<RecordToSeal> | Iterable<RecordToSeal>, options: SealOptions): Promise<SealedSegment> {
    const sealed = this.last.then(() => this.sealNow(records, options));
    this.last = sealed.catch(() => undefined);
    return sealed;
  }

  /** Gives up what is under way. */
  close(): void {
    this.closed = true;
    this.stop("it was closed");
  }

  private async sealNow(records: AsyncIterable<RecordToSeal> | Iterable<RecordToSeal>, options: SealOptions): Promise<SealedSegment> {
    if (this.closed) throw unavailable("it was closed");
    const worker = this.started();
    worker.ref();
    try {
      const { lastIndex, ...begin } = options;
      await this.ask({ kind: "begin", ...begin });
      for await (const batch of packRecords(records)) await this.ask({ kind: "batch", batch }, [batch.buffer]);
      const reply = await this.ask({ kind: "end", lastIndex });
      if (reply.kind !== "sealed") throw new InvariantError(`The sealing thread answers ${reply.kind} at the end`);
      return reply.sealed;
    } finally {
      worker.unref();
    }
  }

  private started(): Worker {
    if (this.worker !== undefined) return this.worker;
    const worker = new Worker(new URL(entry, import.meta.url).href);
    worker.onmessage = ({ data }: MessageEvent<SealReply>) => {
      const { waiting } = this;
      this.waiting = undefined;
      waiting?.resolve(data);
    };
    worker.onerror = ({ message }) => this.stop(message);
    worker.addEventListener("close", () => this.worker === worker && this.stop("it ended"));
    this.worker = worker;
    return worker;
  }

  private async ask(request: SealRequest, buffers: ArrayBuffer[] = []): Promise<SealReply> {
    if (this.worker === undefined) throw unavailable("it has ended");
    const waiting = Promise.withResolvers<SealReply>();
    this.waiting = waiting;
    this.worker.postMessage(request, buffers);
    const reply = await waiting.promise;
    if (reply.kind === "damaged") throw brokenLog(reply.damage);
    if (reply.kind === "failed") throw new InvariantError(`The sealing thread failed: ${reply.message}`);
    return reply;
  }

  private stop(why: string): void {
    const { worker, waiting } = this;
    this.worker = undefined;
    this.waiting = undefined;
    worker?.terminate();
    waiting?.reject(unavailable(why));
  }
}

const unavailable = (why: string) => new HopError("STORE_UNAVAILABLE", `Cannot seal: the thread that seals is gone: ${why}`);
