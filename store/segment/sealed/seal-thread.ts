/**
 * Seals beside the node: its event loop only hands packed records over.
 *
 * One piece of work at a time, in the order of the calls. The thread starts with the first one and is kept:
 * it has compiled its code when the next one comes. It does not keep the process alive when idle.
 */
import { HopError, InvariantError } from "#core/base";
import { brokenLog } from "./row-table.ts";
import type { SealOptions } from "./seal.ts";
import type { SealReply, SealRequest } from "./seal-message.ts";
import type { Batches, PackedObject, SealWork } from "./seal-work.ts";
import type { SealedSegment } from "./summary.ts";

/** In the executable, where this module is in a chunk, entry points are found from the top. */
const entry = import.meta.url.includes("/$bunfs/") ? "./store/segment/sealed/seal-worker.ts" : "./seal-worker.ts";

export class SealThread implements SealWork {
  private worker: Worker | undefined;
  private waiting: PromiseWithResolvers<SealReply> | undefined;
  private last: Promise<unknown> = Promise.resolve();
  private closed = false;

  /** In the thread, which gets copies of the batches. Rejects with STORE_UNAVAILABLE where it ends before it is done. */
  segment(batches: Batches, options: SealOptions): Promise<SealedSegment> {
    return this.inTurn(() => this.segmentNow(batches, options));
  }

  /** `plain` is the thread's from here on. Rejects like `segment`. */
  pack(plain: Uint8Array): Promise<PackedObject> {
    return this.inTurn(async () => {
      const reply = await this.ask({ kind: "pack", plain }, [plain.buffer as ArrayBuffer]);
      if (reply.kind !== "packed") throw new InvariantError(`The sealing thread answers ${reply.kind} to what it is to pack`);
      return reply.packed;
    });
  }

  private inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.last.then(() => this.awake(work));
    this.last = done.catch(() => undefined);
    return done;
  }

  /** The thread keeps the process alive while it works. */
  private async awake<T>(work: () => Promise<T>): Promise<T> {
    if (this.closed) throw unavailable("it was closed");
    const worker = this.started();
    worker.ref();
    try {
      return await work();
    } finally {
      worker.unref();
    }
  }

  /** Gives up what is under way. */
  close(): void {
    this.closed = true;
    this.stop("it was closed");
  }

  private async segmentNow(batches: Batches, { lastIndex, ...begin }: SealOptions): Promise<SealedSegment> {
    await this.ask({ kind: "begin", ...begin });
    for await (const batch of batches) await this.ask({ kind: "batch", batch });
    const reply = await this.ask({ kind: "end", lastIndex });
    if (reply.kind !== "sealed") throw new InvariantError(`The sealing thread answers ${reply.kind} at the end`);
    return reply.sealed;
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
