/** A cluster of one shard and one worker inside the test's own process, under a clock that it moves. */
import { noBytes, type Reply, type RunId, toHex } from "#core/base";
import { contentions } from "#core/run";
import { ActivatedStatus } from "#proto";
import type { WorkflowInput, WorkflowOutput } from "#sdk/runtime";
import { Executor } from "#worker/guest";
import { type Code, loadCode } from "./code.ts";
import { crashEverywhere } from "./crash-everywhere.ts";
import { Driver } from "./driver.ts";
import { durationMs } from "./duration.ts";
import { ReplayDivergedError } from "./errors.ts";
import { hasher } from "./hasher.ts";
import { type History, type HistoryFile, readHistoryOf } from "./history.ts";
import type { ActivityCall, CrashOptions, CrashReport, EnvironmentOptions, Fault, LogLine, StartOptions } from "./options.ts";
import { TestChannel } from "./test-channel.ts";
import { refusalOf, TestRun, toPayload } from "./test-run.ts";
import { VirtualCore } from "./virtual-core.ts";
import { VirtualWorker } from "./virtual-worker.ts";

/** The module that exports the workflows: `typeof import("./orders.ts")`. */
export type WorkflowModule = object;
type TypeOf<M> = string & (string extends keyof M ? string : keyof M);
type Get<M, T> = T extends keyof M ? M[T] : never;
type InputOf<M, T> = [Get<M, T>] extends [never] ? unknown : WorkflowInput<Get<M, T>>;
type OutputOf<M, T> = [Get<M, T>] extends [never] ? unknown : WorkflowOutput<Get<M, T>>;
type Args<Input> = undefined extends Input ? [input?: Input, options?: StartOptions] : [input: Input, options?: StartOptions];

const defaultStart = "2026-01-01T00:00:00Z";
const activityMsMaxDefault = 5000;

export class TestEnvironment<M extends WorkflowModule = Record<string, never>> {
  readonly options: EnvironmentOptions;
  /** What workflows logged, each line once. */
  readonly logs: LogLine[] = [];
  /** Runs that were started, in order. */
  readonly runs: TestRun[] = [];
  private readonly code: Code;
  private readonly core: VirtualCore;
  private readonly worker: VirtualWorker;
  private readonly driver: Driver;
  private starts = 0;
  private ids = 0;
  private answers = 0;

  private constructor(code: Code, options: EnvironmentOptions, fault: Fault) {
    this.code = code;
    this.options = options;
    const isRecord = chosen(fault.records);
    const isAnswer = chosen(fault.answers);
    const { activities = {}, startAt = defaultStart, activityMsMax = activityMsMaxDefault } = options;
    const mocks = typeof activities === "function" ? activities() : activities;
    code.onLog = (line) => {
      this.logs.push(line);
      options.onLog?.(line);
    };
    this.worker = new VirtualWorker({ host: code.host, blobs: code.blob, activities: mocks, nextKey: code.nextKey });
    this.core = new VirtualCore({
      hasher,
      startMs: new Date(startAt).getTime(),
      worker: this.worker,
      newest: (type) => code.bundleOf(type),
      crashes: (index) => (isRecord(index) ? (fault.records === "all" ? "sent" : "lost") : undefined),
    });
    this.worker.attach(this.core);
    this.driver = new Driver({
      core: this.core,
      worker: this.worker,
      activityMsMax,
      onAnswered: () => {
        if (isAnswer(++this.answers)) this.worker.evictAll();
      },
    });
  }

  /**
   * Bundles the workflows as a deployment would, and makes an environment for them.
   *
   * ```ts
   * const env = await TestEnvironment.create<typeof import("./orders.ts")>({
   *   workflows: new URL("./orders.ts", import.meta.url),
   *   activities: { charge: async () => ({ id: "ch_1" }) },
   * });
   * expect(await env.run("order", { id: "o1" })).toEqual("shipped");
   * ```
   *
   * Rejects with `BundleError` for what no server would take either.
   */
  static async create<M extends WorkflowModule = Record<string, never>>(options: EnvironmentOptions): Promise<TestEnvironment<M>> {
    return new TestEnvironment<M>(await loadCode(options.workflows), options, {});
  }

  /** Another environment with the same code and options, in which nothing has happened yet. */
  fresh(fault: Fault = {}): TestEnvironment<M> {
    return new TestEnvironment<M>(this.code, this.options, fault);
  }

  /** Starts a run and waits for its result; time passes by itself. */
  async run<T extends TypeOf<M>>(type: T, ...args: Args<InputOf<M, T>>): Promise<OutputOf<M, T>> {
    return (await this.start(type, ...args)).result();
  }

  /** Starts a run, which goes on as far as it can without time. */
  async start<T extends TypeOf<M>>(type: T, ...[input, options = {}]: Args<InputOf<M, T>>): Promise<TestRun<OutputOf<M, T>>> {
    const number = ++this.starts;
    const { instance = `run-${number}`, namespace = "default", contention = "attach", overrideReason } = options;
    if (!contentions.includes(contention))
      throw new TypeError(`Cannot start a run with contention ${contention}: want one of ${contentions.join(", ")}`);
    const run = `${namespace}:${instance}` as RunId;
    await this.driver.settle();
    const reply = this.core.command({
      kind: "start",
      run,
      type,
      bundle: this.code.hashOf(type),
      input: toPayload(input),
      contention,
      // A start whose answer is lost with Core is sent again, and counts once.
      idempotencyKey: options.idempotencyKey ?? `start-${number}`,
      deadlineMs: options.deadline === undefined ? 0 : durationMs(options.deadline),
      budgetMs: options.budget === undefined ? 0 : durationMs(options.budget),
      ...(overrideReason === undefined ? {} : { overrideReason }),
      awaitResult: false,
    });
    await this.driver.settle();
    const started = await reply;
    if (started.kind !== "started") throw refusalOf(started);
    return this.made(run, started);
  }

  /** The newest run under an address (`namespace:instance`), be it that a run spawned it. Throws where there is none. */
  handle<Output = unknown>(address: string): TestRun<Output> {
    const generation = this.core.describe(address as RunId)?.summary?.generation ?? 0;
    if (generation === 0) throw new Error(`There is no run ${address}`);
    return this.testRun<Output>(address, { generation });
  }

  /** A channel by its name in namespace "default", or its address (`namespace:name`). */
  channel<T = unknown>(name: string): TestChannel<T> {
    const { core, driver } = this;
    return new TestChannel<T>({ core, driver, nextId: () => ++this.ids }, name.includes(":") ? name : `default:${name}`);
  }

  /** Virtual time, in milliseconds since 1970. It moves by at least one with each decision that Core records. */
  get now(): number {
    return this.core.nowMs;
  }

  /** Lets virtual time pass: milliseconds, or text such as "14d". What is due meanwhile happens, in order. */
  advance(duration: number | string): Promise<void> {
    return this.driver.advance(durationMs(duration));
  }

  /** Calls of mock activities, or of one of them, in order. */
  calls(activity?: string): readonly ActivityCall[] {
    return activity === undefined ? this.worker.calls : this.worker.calls.filter((call) => call.activity === activity);
  }

  /**
   * Runs the code over a history that was recorded elsewhere: that of `TestRun.history`, its JSON, or
   * a file that `hop workflow export` wrote. Throws `ReplayDivergedError`, with both operations named,
   * where the code does other things than the history holds.
   */
  async replay(source: History | HistoryFile | string | URL): Promise<void> {
    const history = readHistoryOf(source, sha256);
    const { events, type } = history.newest();
    const bundle = this.code.hashOf(type);
    const said = await new Promise<{ status: number; problem: string }>((done) => {
      const executor = new Executor({
        host: this.code.host,
        blobs: async (hash) => history.blobs.get(toHex(hash)) ?? this.code.blob(hash),
        send: (item) => {
          if (item.kind === "activated") done({ status: item.value.status ?? ActivatedStatus.ok, problem: item.value.problem ?? "" });
        },
        runSlots: () => 1,
        nextKey: this.code.nextKey,
      });
      const whole = { handle: 1, activation: 1, shard: 1, fromStart: true, more: false, readOnly: true };
      executor.activate({ ...whole, run: history.run, bundle, type, events: [...events] });
    });
    if (said.status === ActivatedStatus.ok) return;
    if (said.status === ActivatedStatus.diverged)
      throw new ReplayDivergedError(`The history of ${history.run} does not replay. ${said.problem}`);
    throw new Error(`Cannot replay the history of ${history.run}: ${said.problem}`);
  }

  /**
   * Runs the scenario once, and then once for each of its awaits, with a crash there: Core ends
   * behind each record that it appended and goes on from its log, and the worker loses all runs
   * behind each of their answers. Throws `CrashError` where one of these gives another result, or
   * another history of a run.
   */
  crashEverywhere<T>(scenario: (env: TestEnvironment<M>) => Promise<T>, options: CrashOptions = {}): Promise<CrashReport> {
    return crashEverywhere((fault) => this.fresh(fault), scenario, options);
  }

  /** Records in Core's log, and answers of workflow code, until now: what a `Fault` names is above these. */
  get progress(): { readonly records: number; readonly answers: number } {
    return { records: this.core.log.lastIndex, answers: this.answers };
  }

  private made<Output>(id: string, started: Extract<Reply, { kind: "started" }>): TestRun<Output> {
    const run = this.testRun<Output>(id, started);
    this.runs.push(run);
    return run;
  }

  private testRun<Output>(
    id: string,
    { generation, ticket = 0 }: { readonly generation: number; readonly ticket?: number },
  ): TestRun<Output> {
    const { core, worker, driver } = this;
    return new TestRun<Output>({ core, worker, driver, nextId: () => ++this.ids }, { id, generation, ticket });
  }
}

function chosen(numbers: readonly number[] | "all" = []): (number: number) => boolean {
  if (numbers === "all") return () => true;
  const set = new Set(numbers);
  return (number) => set.has(number);
}

function sha256(bytes: Uint8Array): Uint8Array {
  const out = new Uint8Array(32);
  hasher.sha256(bytes.length === 0 ? noBytes : bytes, out);
  return out;
}
