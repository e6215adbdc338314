/**
 * Executes activities in the worker's own process.
 *
 * It outlives streams: what runs while a stream is lost is named in the next hello and answered
 * on the next stream. One attempt runs at most once here, however often it is delivered, and by
 * whichever node. A result goes back the way its task came; where that is closed, any node takes
 * it and passes it on.
 */
import type { PayloadInit, Task, TaskDoneInit, TaskToken, TaskTokenInit, WorkerItemInit } from "#proto";
import { type Activities, ActivityCancelledError, WorkerShutdownError } from "#sdk/activity";
import type { BlobSource } from "../blob-source.ts";
import type { OnLog } from "../log.ts";
import { failure } from "./activity-failure.ts";
import { ActivityTask } from "./activity-task.ts";
import { attemptKey, Completions } from "./completions.ts";
import { EpochFence } from "./epoch-fence.ts";

/** The way to a node. */
export interface Road {
  /** False where there is no stream to send on. */
  readonly send: (item: WorkerItemInit) => boolean;
}

/** `send` takes the way to any node that can be reached. */
export interface ActivityHostParts extends Road {
  readonly activities: Activities;
  readonly slots: number;
  readonly blobs: BlobSource;
  readonly onLog: OnLog;
  readonly nowMs?: () => number;
}

interface Running {
  readonly execution: ActivityTask;
  readonly task: Task;
  /** The way by which its newest delivery came. */
  road: Road;
}

export class ActivityHost {
  private readonly parts: ActivityHostParts;
  private readonly nowMs: () => number;
  private readonly running = new Map<string, Running>();
  private readonly queue: Running[] = [];
  private readonly completions = new Completions();
  private readonly fence = new EpochFence();
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

  /** Executions that a node gave, and that have not ended. */
  countOf(road: Road): number {
    let count = 0;
    for (const running of this.running.values()) if (running.road === road) count++;
    return count;
  }

  take(task: Task, road: Road = this.parts): void {
    const { token } = task;
    if (token === undefined || this.isFenced(task, token)) return;
    const key = attemptKey(token);
    const running = this.running.get(key);
    if (running !== undefined) {
      running.execution.token = token;
      running.road = road;
      return;
    }
    const done = this.completions.again(token, this.nowMs());
    if (done === undefined) this.begin(key, { task, token, road });
    else this.deliver(done, road);
  }

  cancel(token: TaskToken, reason: string): void {
    const running = this.running.get(attemptKey(token));
    // A newer leader wants it still.
    if (running === undefined || running.execution.token.epoch > token.epoch) return;
    running.execution.cancel(new ActivityCancelledError(`Activity ${running.task.name} is cancelled: ${reason}`));
  }

  /** Tokens for the hello of a new stream. */
  held(): TaskTokenInit[] {
    const held = [...this.running.values()].map((running) => running.execution.token);
    return [...held, ...this.completions.tokens(this.nowMs())];
  }

  /** Sends on a new stream what may not have arrived on the ones before. */
  resend(road: Road = this.parts): void {
    for (const done of this.completions.all(this.nowMs())) this.deliver(done, road);
  }

  /** Sends by another way what was sent by one that is lost: it may not have arrived. */
  resendLost(road: Road): void {
    const nowMs = this.nowMs();
    // By which node "any way" led is not known.
    for (const done of this.completions.sentBy([road, this.parts], nowMs)) {
      // Where no way is left it is sent on the next stream, or forgotten in its time.
      if (!this.parts.send({ kind: "taskDone", value: done })) return;
      this.completions.add(done, { atMs: nowMs, road: this.parts }, nowMs);
    }
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

  /** Tells by which way it went: the one given, or any other. */
  private tell(item: WorkerItemInit, road: Road): Road | undefined {
    if (road.send(item)) return road;
    return this.parts.send(item) ? this.parts : undefined;
  }

  /** Sends a result, and keeps it until it must have arrived. */
  private deliver(done: TaskDoneInit, road: Road): void {
    const nowMs = this.nowMs();
    const went = this.tell({ kind: "taskDone", value: done }, road);
    this.completions.add(done, went === undefined ? undefined : { atMs: nowMs, road: went }, nowMs);
  }

  /** The user's code hears nothing of it, and neither does the node: it is no leader to be answered. */
  private isFenced({ shard, name }: Task, token: TaskToken): boolean {
    const newest = this.fence.refuses(shard, token.epoch);
    if (newest === undefined) return false;
    const fields = { run: token.run, op: token.op, activity: name, shard, epoch: token.epoch, newestEpoch: newest };
    this.parts.onLog({ level: "warn", message: "A task of a deposed leader is left out", fields });
    return true;
  }

  private begin(key: string, given: { readonly task: Task; readonly token: TaskToken; readonly road: Road }): void {
    const { task, token, road } = given;
    const sendHeartbeat = (of: TaskToken, details: PayloadInit | undefined) =>
      this.tell({ kind: "heartbeat", value: { token: of, details } }, running.road);
    const execution = new ActivityTask(task, token, { blobs: this.parts.blobs, onLog: this.parts.onLog, sendHeartbeat });
    const running: Running = { execution, task, road };
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

  private async execute(running: Running): Promise<void> {
    const { execution, task } = running;
    const activity = Object.hasOwn(this.parts.activities, task.name) ? this.parts.activities[task.name] : undefined;
    const done = activity === undefined ? this.unknown(task) : await execution.run(activity);
    this.activeCount--;
    this.running.delete(attemptKey(execution.token));
    this.report({ ...done, token: execution.token }, running);
    this.fill();
    if (this.running.size === 0) for (const settle of this.onIdle.splice(0)) settle();
  }

  private report(done: TaskDoneInit, { task, road }: Running): void {
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
    this.deliver(done, road);
  }

  /** Another worker may have it: a newer deployment, for example. */
  private unknown(task: Task): TaskDoneInit {
    const known = this.names.map((name) => JSON.stringify(name)).join(", ") || "none";
    const message = `This worker has no activity ${JSON.stringify(task.name)}, it has ${known}`;
    return { failure: failure("ActivityNotFound", message, { nonRetryable: false }) };
  }
}
