/**
 * Executes activities in the worker's own process.
 *
 * It outlives streams: what runs while a stream is lost is named in the next hello and answered
 * on the next stream. One attempt runs at most once here, however often it is delivered.
 */
import type { PayloadInit, Task, TaskDoneInit, TaskToken, TaskTokenInit, WorkerItemInit } from "#proto";
import { type Activities, ActivityCancelledError, WorkerShutdownError } from "#sdk/activity";
import type { BlobSource } from "../blob-source.ts";
import type { OnLog } from "../log.ts";
import { failure } from "./activity-failure.ts";
import { ActivityTask } from "./activity-task.ts";
import { attemptKey, Completions } from "./completions.ts";

export interface ActivityHostParts {
  readonly activities: Activities;
  readonly slots: number;
  readonly blobs: BlobSource;
  readonly onLog: OnLog;
  /** False where there is no stream to send on. */
  readonly send: (item: WorkerItemInit) => boolean;
  readonly nowMs?: () => number;
}

interface Running {
  readonly execution: ActivityTask;
  readonly task: Task;
}

export class ActivityHost {
  private readonly parts: ActivityHostParts;
  private readonly nowMs: () => number;
  private readonly running = new Map<string, Running>();
  private readonly queue: Running[] = [];
  private readonly completions = new Completions();
  private readonly onIdle: (() => void)[] = [];
  private activeCount = 0;

  constructor(parts: ActivityHostParts) {
    this.parts = parts;
    this.nowMs = parts.nowMs ?? Date.now;
  }

  get names(): string[] {
    return Object.keys(this.parts.activities);
  }

  /** Executions that have not ended, those that wait for a slot included. */
  get count(): number {
    return this.running.size;
  }

  /** Everything was executed, and sent at least once. */
  get isSettled(): boolean {
    return this.running.size === 0 && !this.completions.hasUnsent;
  }

  take(task: Task): void {
    const { token } = task;
    if (token === undefined) return;
    const key = attemptKey(token);
    const running = this.running.get(key);
    if (running !== undefined) {
      running.execution.token = token;
      return;
    }
    const done = this.completions.again(token, this.nowMs());
    if (done === undefined) this.begin(key, task, token);
    else this.parts.send({ kind: "taskDone", value: done });
  }

  cancel(token: TaskToken, reason: string): void {
    const running = this.running.get(attemptKey(token));
    const message = `Activity ${running?.task.name ?? ""} is cancelled: ${reason}`;
    running?.execution.cancel(new ActivityCancelledError(message));
  }

  /** Tokens for the hello of a new stream. */
  held(): TaskTokenInit[] {
    const held = [...this.running.values()].map((running) => running.execution.token);
    return [...held, ...this.completions.tokens(this.nowMs())];
  }

  /** Sends on a new stream what may not have arrived on the ones before. */
  resend(): void {
    for (const done of this.completions.resend(this.nowMs())) this.parts.send({ kind: "taskDone", value: done });
  }

  /** Resolves when nothing is executing any more. */
  idle(): Promise<void> {
    return this.running.size === 0 ? Promise.resolve() : new Promise((done) => this.onIdle.push(done));
  }

  /** Tells what still runs that nobody waits for it any longer. */
  abandon(): void {
    for (const { execution, task } of this.running.values())
      execution.cancel(new WorkerShutdownError(`Activity ${task.name} is given up: its worker shuts down`));
  }

  private begin(key: string, task: Task, token: TaskToken): void {
    const sendHeartbeat = (of: TaskToken, details: PayloadInit | undefined) =>
      this.parts.send({ kind: "heartbeat", value: { token: of, details } });
    const execution = new ActivityTask(task, token, { blobs: this.parts.blobs, onLog: this.parts.onLog, sendHeartbeat });
    const running: Running = { execution, task };
    this.running.set(key, running);
    this.queue.push(running);
    this.fill();
  }

  /** The server keeps to the slots; this holds also where it does not. */
  private fill(): void {
    while (this.activeCount < this.parts.slots) {
      const next = this.queue.shift();
      if (next === undefined) return;
      this.activeCount++;
      this.execute(next).catch((error: unknown) =>
        this.parts.onLog({ level: "error", message: "A result could not be reported", fields: { error } }),
      );
    }
  }

  private async execute({ execution, task }: Running): Promise<void> {
    const activity = Object.hasOwn(this.parts.activities, task.name) ? this.parts.activities[task.name] : undefined;
    const done = activity === undefined ? this.unknown(task) : await execution.run(activity);
    this.activeCount--;
    this.running.delete(attemptKey(execution.token));
    this.report({ ...done, token: execution.token }, task);
    this.fill();
    if (this.running.size === 0) for (const settle of this.onIdle.splice(0)) settle();
  }

  private report(done: TaskDoneInit, task: Task): void {
    const { failure: failed, token } = done;
    if (failed !== undefined) {
      const fields = {
        run: token?.run,
        op: token?.op,
        attempt: token?.attempt,
        activity: task.name,
        type: failed.type,
        error: failed.message,
      };
      this.parts.onLog({ level: "warn", message: "Activity failed", fields });
    }
    const nowMs = this.nowMs();
    const isSent = this.parts.send({ kind: "taskDone", value: done });
    this.completions.add(done, isSent ? nowMs : undefined, nowMs);
  }

  /** Another worker may have it: a newer deployment, for example. */
  private unknown(task: Task): TaskDoneInit {
    const known = this.names.map((name) => JSON.stringify(name)).join(", ") || "none";
    const message = `This worker has no activity ${JSON.stringify(task.name)}, it has ${known}`;
    return { failure: failure("ActivityNotFound", message, { nonRetryable: false }) };
  }
}
