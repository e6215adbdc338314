/**
 * The one worker of a test environment: the executor of production over workflow code in this
 * process, and mock activities. Its answers reach Core in an order that depends on nothing but the
 * runs themselves: by run, and in it by operation.
 */
import { InvariantError, noBytes, type TaskEffect, type Token } from "#core/base";
import {
  decodeWorkerItem,
  encodeWorkerItem,
  fromBytes,
  type Hello,
  type PayloadInit,
  toBytes,
  type WorkerItem,
  type WorkerItemInit,
} from "#proto";
import { ActivityCancelledError } from "#sdk/activity";
import { Executor, type GuestHost } from "#worker/guest";
import { Execution } from "./mock-activity.ts";
import type { ActivityCall, MockActivity } from "./options.ts";
import type { Activation, AskedQuery, CoreSide, WorkerSide } from "./sides.ts";

export interface VirtualWorkerOptions {
  readonly host: GuestHost;
  readonly blobs: (sha256: Uint8Array) => Promise<Uint8Array>;
  readonly activities: Readonly<Record<string, MockActivity>>;
  /** Keys for the host, unique over all environments that share it. */
  readonly nextKey: () => number;
}

const shard = 1;

export class VirtualWorker implements WorkerSide {
  readonly calls: ActivityCall[] = [];
  private readonly options: VirtualWorkerOptions;
  private core!: CoreSide;
  private executor!: Executor;
  /** Of the runs that were activated and have not answered, by handle. */
  private readonly active = new Map<number, string>();
  private readonly runs = new Map<number, string>();
  private queries = 0;
  private items: WorkerItem[] = [];
  private readonly executions = new Map<string, Execution>();
  private isTelling = false;
  private runSlots = Number.POSITIVE_INFINITY;
  private onChange: (() => void) | undefined;

  constructor(options: VirtualWorkerOptions) {
    this.options = options;
    this.connect();
  }

  attach(core: CoreSide): void {
    this.core = core;
  }

  // For Core.

  hello(): Hello {
    const held = [...this.executions.values()].map(({ token }) => ({ ...token }));
    const activities = Object.keys(this.options.activities);
    const own = { workerId: "test-worker", namespace: "", modes: ["v8"], activities, activitySlots: 0, runSlots: 0 };
    return { ...own, version: "test", clusterId: "test", held, wantsLocal: false };
  }

  activate(activation: Activation): void {
    const { handle, run = "", bundle = noBytes, type = "", readOnly = false } = activation;
    if (activation.fromStart) this.runs.set(handle, run);
    this.active.set(handle, this.runs.get(handle) ?? "");
    this.executor.activate({ ...activation, events: [...activation.events], run, bundle, type, readOnly, more: false, shard });
  }

  query({ query, handle, name, input }: AskedQuery): void {
    this.queries++;
    this.executor.query({ query, handle, name, input: input === undefined ? undefined : { data: input.data, ref: undefined }, shard });
  }

  drop(handle: number): void {
    this.active.delete(handle);
    this.executor.drop({ shard, handle });
    this.changed();
  }

  task(task: TaskEffect, dueMs: number): void {
    const key = attemptOf(task.token);
    const known = this.executions.get(key);
    if (known !== undefined) {
      known.token = task.token;
      return;
    }
    const execution = new Execution(task, dueMs, {
      now: () => this.core.nowMs,
      heartbeat: (token, details) => this.heartbeat(token, details),
      changed: () => this.changed(),
    });
    this.executions.set(key, execution);
    const { name, token } = task;
    this.calls.push({ activity: name, input: execution.input, attempt: token.attempt, run: token.run, atMs: this.core.nowMs });
    // Core offers only what the hello named.
    execution.start(this.options.activities[name] as MockActivity);
  }

  cancelTask(token: Token, reason: string): void {
    const execution = this.executions.get(attemptOf(token));
    if (execution === undefined || execution.token.epoch > token.epoch) return;
    execution.cancel(new ActivityCancelledError(`Activity ${execution.task.name} is cancelled: ${reason}`));
  }

  get isSilent(): boolean {
    return this.isAnswered && this.items.length === 0 && !this.isTelling;
  }

  disconnected(): void {
    this.executor.close();
    this.connect();
  }

  // For the environment.

  /** Nothing is under way that goes on without virtual time. */
  get isIdle(): boolean {
    return this.isAnswered && this.awake().length === 0;
  }

  /** Workflow code has answered all that it was told and asked. */
  get isAnswered(): boolean {
    return this.active.size === 0 && this.queries === 0;
  }

  /** Activities whose end only the test's own code decides. */
  awake(): string[] {
    return [...this.executions.values()].filter((each) => each.isAwake).map(({ task }) => task.name);
  }

  /** Activities that nap for ever. */
  hanging(): string[] {
    return [...this.executions.values()].filter((each) => each.wakeMs === Number.POSITIVE_INFINITY).map(({ task }) => task.name);
  }

  /** When the next nap is over; infinity where none ends. */
  nextMs(): number {
    let next = Number.POSITIVE_INFINITY;
    for (const { wakeMs } of this.executions.values()) if (wakeMs !== undefined) next = Math.min(next, wakeMs);
    return next;
  }

  /** Ends naps that are over. */
  wake(nowMs: number): void {
    for (const execution of this.executions.values())
      if (execution.wakeMs !== undefined && execution.wakeMs <= nowMs && execution.wakeMs !== Number.POSITIVE_INFINITY) execution.wake();
  }

  /** Resolves when something of it has changed. */
  change(): Promise<void> {
    return new Promise((done) => {
      this.onChange = done;
    });
  }

  /** What its runs said, by run; to be taken once `isAnswered`. */
  takeAnswers(): boolean {
    const items = this.items;
    if (items.length === 0) return false;
    this.items = [];
    const named = items.map((item) => [this.runs.get(handleOf(item)) ?? "", item] as const);
    named.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    const { executor } = this;
    this.isTelling = true;
    for (const [, item] of named) this.tell(item, executor);
    this.isTelling = false;
    this.core.pump();
    return true;
  }

  /** Tells Core the end of one activity, the first by run and operation. False where none has ended. */
  takeEnd(): boolean {
    const over = [...this.executions].filter(([, { ended }]) => ended !== undefined);
    const first = over.sort(([, a], [, b]) => compareTokens(a.token, b.token))[0];
    if (first === undefined) return false;
    const [key, execution] = first;
    this.core.fromWorker((session) => {
      this.executions.delete(key);
      const item = decoded({ kind: "taskDone", value: { token: { ...execution.token }, ...execution.ended } });
      return { kind: "task-done", session, message: (item as Extract<WorkerItem, { kind: "taskDone" }>).value };
    });
    return true;
  }

  /** Lets go of all runs that it holds: each is rebuilt by replay where it goes on. */
  evictAll(): void {
    this.runSlots = 0;
    this.executor.makeRoom();
    this.runSlots = Number.POSITIVE_INFINITY;
  }

  private connect(): void {
    this.active.clear();
    this.runs.clear();
    this.items = [];
    this.queries = 0;
    const { host, blobs, nextKey } = this.options;
    const executor = new Executor({
      host,
      blobs,
      send: (item) => {
        if (this.executor === executor) this.receive(decoded(item));
      },
      runSlots: () => this.runSlots,
      nextKey,
    });
    this.executor = executor;
  }

  private receive(item: WorkerItem): void {
    if (item.kind === "activated") this.active.delete(item.value.handle);
    if (item.kind === "queryAnswer") this.queries--;
    this.items.push(item);
    this.changed();
  }

  private tell(item: WorkerItem, from: Executor): void {
    this.core.fromWorker((session) => {
      // Core has ended meanwhile, and with it the stream that this is for.
      if (this.executor !== from) return undefined;
      switch (item.kind) {
        case "activated":
          return { kind: "activated", session, message: item.value };
        case "queryAnswer":
          return { kind: "query-answered", session, message: item.value };
        case "evicted":
          return { kind: "evicted", session, handle: item.value.handle };
        default:
          throw new InvariantError(`The executor said ${item.kind}`);
      }
    });
  }

  private heartbeat(token: Token, details: PayloadInit | undefined): void {
    const item = decoded({ kind: "heartbeat", value: { token: { ...token }, details } });
    if (item.kind === "heartbeat") this.core.fromWorker((session) => ({ kind: "heartbeat", session, message: item.value }));
  }

  private changed(): void {
    const { onChange } = this;
    this.onChange = undefined;
    onChange?.();
  }
}

const decoded = (item: WorkerItemInit): WorkerItem => fromBytes(decodeWorkerItem, toBytes(encodeWorkerItem, item));

const handleOf = (item: WorkerItem): number => (item.kind === "activated" || item.kind === "evicted" ? item.value.handle : 0);

const attemptOf = ({ run, generation, op, attempt }: Token) => `${run}/${generation}.${op}.${attempt}`;

function compareTokens(a: Token, b: Token): number {
  if (a.run !== b.run) return a.run < b.run ? -1 : 1;
  return a.generation - b.generation || a.op - b.op || a.attempt - b.attempt;
}
