/**
 * The one place where object storage is tried again: a bounded number of tries, each with a
 * bound in time, and between them pauses that double, of which a random part is waited (full
 * jitter, so that those who failed together do not come back together).
 *
 * Time and chance come through a port, so that the simulator decides about both.
 */
import { AttemptError } from "./object-error.ts";

export interface ObjectTiming {
  /** Runs once after `ms` milliseconds; the returned function prevents it. */
  after(ms: number, run: () => void): () => void;
  /** At random in [0, 1). */
  fraction(): number;
}

export const realObjectTiming: ObjectTiming = {
  after(ms, run) {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
  fraction: () => Math.random(),
};

export interface RetryPolicy {
  /** Tries of one request, the first one included. */
  readonly triesMax: number;
  /** The longest pause before the second try; it doubles up to `pauseMsMax`. */
  readonly pauseMsMin: number;
  readonly pauseMsMax: number;
  /** For a try without a body. */
  readonly tryMs: number;
  /** A try is given time for its body at this rate, beside `tryMs`. */
  readonly bytesPerSecondMin: number;
}

/** Above a server's slowest hundredth of 10 s; gives up after about 80 s. */
export const retryPolicyDefault: RetryPolicy = {
  triesMax: 5,
  pauseMsMin: 100,
  pauseMsMax: 5000,
  tryMs: 15_000,
  bytesPerSecondMin: 256 * 1024,
};

/** What one try has. */
export interface Attempt {
  /** Aborts when the try is given up. */
  readonly signal: AbortSignal;
  /** The answer has begun and brings so many bytes: time is counted anew for them. */
  allow(bytes: number): void;
}

export interface Task {
  /** What is being done, as in "Cannot …". */
  readonly attempt: string;
  /** Bytes that are sent. */
  readonly bytes?: number;
  /** In place of the policy's. */
  readonly triesMax?: number;
  readonly signal?: AbortSignal | undefined;
}

export class Retry {
  private readonly policy: RetryPolicy;
  private readonly timing: ObjectTiming;

  constructor(policy: RetryPolicy = retryPolicyDefault, timing: ObjectTiming = realObjectTiming) {
    this.policy = policy;
    this.timing = timing;
  }

  /** What `work` gives. Rejects with `HopError`, with the signal's reason, or with a bug's own error. */
  async run<T>(task: Task, work: (attempt: Attempt) => Promise<T>): Promise<T> {
    const { triesMax = this.policy.triesMax } = task;
    for (let tries = 1; ; tries++) {
      task.signal?.throwIfAborted();
      try {
        return await this.once(task, work);
      } catch (error) {
        if (!(error instanceof AttemptError)) throw error;
        if (!error.isTransient || tries >= triesMax) throw error.toHopError(task.attempt, tries);
      }
      await this.pause(tries, task.signal);
    }
  }

  /** One try. It ends when its time is over, whether or not `work` heeds its signal. */
  private async once<T>(task: Task, work: (attempt: Attempt) => Promise<T>): Promise<T> {
    const abort = new AbortController();
    const ended = Promise.withResolvers<never>();
    let disarm = () => {};
    const giveUp = (reason: unknown) => {
      ended.reject(reason);
      abort.abort();
    };
    const arm = (bytes: number) => {
      disarm();
      const ms = this.tryMs(bytes);
      disarm = this.timing.after(ms, () => giveUp(new AttemptError("unavailable", `there was no whole answer within ${ms} ms`)));
    };
    const onAbort = () => giveUp(task.signal?.reason);
    task.signal?.addEventListener("abort", onAbort, { once: true });
    arm(task.bytes ?? 0);
    let isOver = false;
    try {
      return await Promise.race([work({ signal: abort.signal, allow: (bytes) => isOver || arm(bytes) }), ended.promise]);
    } finally {
      isOver = true;
      disarm();
      task.signal?.removeEventListener("abort", onAbort);
    }
  }

  private tryMs(bytes: number): number {
    return this.policy.tryMs + Math.ceil((bytes / this.policy.bytesPerSecondMin) * 1000);
  }

  private pause(tries: number, signal: AbortSignal | undefined): Promise<void> {
    const { pauseMsMin, pauseMsMax } = this.policy;
    const ms = Math.floor(this.timing.fraction() * Math.min(pauseMsMin * 2 ** (tries - 1), pauseMsMax));
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        cancel();
        reject(signal?.reason);
      };
      const cancel = this.timing.after(ms, () => {
        signal?.removeEventListener("abort", onAbort);
        resolve();
      });
      signal?.addEventListener("abort", onAbort, { once: true });
    });
  }
}
