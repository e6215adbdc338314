/**
 * Runs TypeScript workflows in real V8: a Node process with guest isolates, beside the worker.
 *
 * Activations of one tick travel and run together. A run that exceeds a limit is gone, and so is
 * its realm: the neighbours in it are `lost`, for the caller to replay. When the process dies all
 * runs are lost and it is started again. A run that it died of (memory ran out, or V8 could not stop
 * it), or that was executing at two deaths in a row, gets `limit`, and for a while again without
 * being executed: each try would cost everyone a process.
 */
import { InvariantError } from "#core/base";
import type { FailureInit } from "#proto";
import type { Activation, BundleSource, Delivery, GuestHost, GuestRun, QueryResult } from "../guest-host.ts";
import type { V8Assets } from "./assets.ts";
import { developmentAssets } from "./assets.ts";
import type { Bundle, Realm, V8Limits } from "./bundles.ts";
import { BrokenBundleError, Bundles } from "./bundles.ts";
import { ChildProcess, type Death } from "./child-process.ts";
import type { Answer } from "./frames.ts";
import { answerStatus, readAnswers } from "./frames.ts";
import type { Records } from "./records.ts";
import { readRecords } from "./records.ts";
import { StackMapper } from "./stack-mapper.ts";

export interface GuestLogLine {
  readonly run: string;
  readonly generation: number;
  readonly type: string;
  readonly level: string;
  readonly message: string;
}

export interface V8HostOptions {
  readonly source: BundleSource;
  readonly assets?: V8Assets;
  /** For runs that don't say. Left out: dense. */
  readonly lane?: "dense" | "isolate";
  readonly limits?: Partial<V8Limits>;
  readonly onLog?: (line: GuestLogLine) => void;
  /** Deaths of the process, and code that could only be held in a slower way. */
  readonly onProblem?: (message: string) => void;
}

const defaultLimits: V8Limits = { deliveryMs: 2000, denseHeapMb: 512, isolateHeapMb: 128, loadMs: 10_000, idleBundles: 16 };
const restartMsMin = 20;
const restartMsMax = 5000;
/** A process that lived for so long begins with no delay after its death. */
const healthyMs = 10_000;
const suspectDeathsMax = 2;
/** For so long a run that ended the process is refused without being executed. */
const condemnedMs = 60_000;

interface OpenRun {
  readonly run: GuestRun;
  realm: Realm | undefined;
}

type Waiter = { readonly run: GuestRun } & (
  | { readonly kind: "activate"; resolve(activation: Activation): void }
  | { readonly kind: "query"; resolve(result: QueryResult): void }
);

export class V8Host implements GuestHost {
  readonly #options: V8HostOptions;
  readonly #assets: V8Assets;
  readonly #bundles: Bundles;
  readonly #mapper = new StackMapper();
  readonly #runs = new Map<number, OpenRun>();
  /** In the order in which answers come; those before `#answered` have theirs. */
  #waiters: Waiter[] = [];
  #answered = 0;
  /** Deaths in a row in which a run was executing, by run and generation. */
  readonly #suspects = new Map<string, number>();
  /** Runs that ended the process: until when they are refused (performance.now()), and why. */
  readonly #condemned = new Map<string, { readonly untilMs: number; readonly message: string }>();
  #child: ChildProcess | undefined;
  #starting: Promise<ChildProcess> | undefined;
  #startedMs = 0;
  #restartMs = restartMsMin;
  #closed = false;

  constructor(options: V8HostOptions) {
    this.#options = options;
    this.#assets = options.assets ?? developmentAssets();
    this.#bundles = new Bundles({ source: options.source, limits: { ...defaultLimits, ...options.limits }, kernel: this.#assets.kernel });
  }

  /** Starts the process and resolves when it is ready; without it, the first activation starts it. */
  async start(): Promise<void> {
    await this.#running();
  }

  /** Of the process that holds V8, while one runs. */
  get pid(): number | undefined {
    return this.#child?.process.pid;
  }

  open(run: GuestRun): void {
    if (this.#runs.has(run.key)) throw new InvariantError(`The key ${run.key} is in use by run ${this.#runs.get(run.key)!.run.run}`);
    if (!(Number.isInteger(run.key) && run.key > 0 && run.key <= 0xffffffff))
      throw new InvariantError(`The key ${run.key} is not a number from 1 to 2^32-1`);
    this.#runs.set(run.key, { run, realm: undefined });
  }

  has(key: number): boolean {
    return this.#runs.has(key);
  }

  async activate(key: number, deliveries: readonly Delivery[]): Promise<Activation> {
    const open = this.#runs.get(key);
    if (open === undefined) return { kind: "lost", message: "The run is not open in this host" };
    if (deliveries.length === 0) return { kind: "ok", commands: [] };
    const first = deliveries[0]!.kind;
    if ((first === "start") !== (open.realm === undefined)) {
      throw new InvariantError(
        `The first delivery to run ${open.run.run} is "${first}", but the run ${open.realm === undefined ? "has not" : "has"} started`,
      );
    }
    const sentence = open.realm === undefined ? this.#sentence(open.run) : undefined;
    if (sentence !== undefined) {
      this.#forget(open);
      return { kind: "limit", message: sentence };
    }
    if (open.realm === undefined && !this.#placeNow(open)) {
      const failed = await this.#loadAndPlace(open);
      if (failed !== undefined) return failed;
    }
    return this.#send(open, deliveries);
  }

  #send(open: OpenRun, deliveries: readonly Delivery[]): Promise<Activation> {
    const { realm } = open;
    if (realm === undefined || this.#child === undefined) return Promise.resolve({ kind: "lost", message: "The V8 process has ended" });
    const last = deliveries.length - 1;
    for (let i = 0; i <= last; i++) this.#child.outbox().delivery(realm.id, open.run, deliveries[i]!, i === last);
    return new Promise((resolve) => this.#waiters.push({ kind: "activate", run: open.run, resolve }));
  }

  async query(key: number, name: string, input: Uint8Array): Promise<QueryResult> {
    const open = this.#runs.get(key);
    if (open?.realm === undefined || this.#child === undefined) return { kind: "lost", message: "The run is not open in this host" };
    this.#child.outbox().query(open.realm.id, key, name, input);
    return new Promise((resolve) => this.#waiters.push({ kind: "query", run: open.run, resolve }));
  }

  drop(key: number): void {
    const open = this.#runs.get(key);
    if (open === undefined) return;
    this.#runs.delete(key);
    if (open.realm === undefined) return;
    if (open.realm.dense) this.#child?.outbox().drop(open.realm.id, key);
    this.#bundles.release(open.realm, key);
  }

  async close(): Promise<void> {
    this.#closed = true;
    const child = this.#child ?? (await this.#starting?.catch(() => undefined));
    await child?.close();
    this.#loseAll("The host was closed");
  }

  /** Finds the run its realm, if its code is there. */
  #placeNow(open: OpenRun): boolean {
    const { run } = open;
    const bundle = this.#child === undefined ? undefined : this.#bundles.ready(run.bundle);
    if (bundle === undefined) return false;
    open.realm = this.#bundles.place(bundle, run.run.slice(0, run.run.indexOf(":")), run.lane ?? this.#options.lane ?? "dense", run.key);
    return true;
  }

  /** Returns why the run has no realm, if it has none. */
  async #loadAndPlace(open: OpenRun): Promise<Activation | undefined> {
    const { key, bundle } = open.run;
    try {
      await this.#running();
      if (this.#bundles.ready(bundle) === undefined) await this.#bundles.load(bundle);
      // It may have been dropped, or its code lost with the process, while that was fetched.
      if (this.#runs.get(key) === open && this.#placeNow(open)) return undefined;
      this.#forget(open);
      return { kind: "lost", message: "The run was dropped, or the V8 process ended, while its code was loaded" };
    } catch (error) {
      this.#forget(open);
      return { kind: error instanceof BrokenBundleError ? "broken" : "lost", message: (error as Error).message };
    }
  }

  /** Unless its key is in use for another run by now. */
  #forget(open: { readonly run: GuestRun }): void {
    if (this.#runs.get(open.run.key)?.run === open.run) this.#runs.delete(open.run.key);
  }

  #running(): Promise<ChildProcess> {
    if (this.#closed) return Promise.reject(new Error("The V8 host is closed"));
    if (this.#child !== undefined) return Promise.resolve(this.#child);
    this.#starting ??= this.#spawn().finally(() => {
      this.#starting = undefined;
    });
    return this.#starting;
  }

  async #spawn(): Promise<ChildProcess> {
    const child = await ChildProcess.start(this.#assets, {
      answers: (body) => readAnswers(body, (answer) => this.#answer(answer)),
      exit: (death) => this.#died(death),
    });
    this.#child = child;
    this.#startedMs = performance.now();
    this.#bundles.attach(child);
    return child;
  }

  #answer(answer: Answer): void {
    const realm = this.#bundles.realm(answer.realm);
    if (answer.status === answerStatus.usage) {
      if (realm !== undefined) this.#bundles.report(realm, answer.key * 1024);
      return;
    }
    const waiter = this.#nextWaiter(answer);
    if (answer.status === answerStatus.ok) {
      this.#settle(waiter, realm, readRecords(answer.text));
      return;
    }
    const message = answer.text.toString("utf8");
    const blamed = answer.status === answerStatus.limit || (answer.status !== answerStatus.lost && this.#suspect(waiter.run));
    if (realm !== undefined) this.#loseRealm(realm);
    this.#forget(waiter);
    if (waiter.kind === "query") waiter.resolve({ kind: "lost", message });
    else waiter.resolve({ kind: blamed ? "limit" : "lost", message });
  }

  #nextWaiter(answer: Answer): Waiter {
    const waiter = this.#waiters[this.#answered];
    if (waiter === undefined || waiter.run.key !== answer.key)
      throw new InvariantError(`The V8 process answered run ${answer.key} out of order`);
    this.#answered++;
    if (this.#answered > 1024 && this.#answered * 2 > this.#waiters.length) {
      this.#waiters = this.#waiters.slice(this.#answered);
      this.#answered = 0;
    }
    return waiter;
  }

  #settle(waiter: Waiter, realm: Realm | undefined, records: Records): void {
    const { run } = waiter;
    for (const line of records.logs) this.#options.onLog?.({ run: run.run, generation: run.generation, type: run.type, ...line });
    if (records.spoiled) this.drop(run.key);
    if (waiter.kind === "query") {
      waiter.resolve(this.#mapped(realm?.bundle, records.answer) ?? { kind: "lost", message: "The run gave no answer" });
      return;
    }
    if (this.#suspects.size > 0) this.#suspects.delete(identity(run));
    if (records.broken !== undefined) {
      this.drop(run.key);
      waiter.resolve({ kind: "broken", message: realm === undefined ? records.broken : this.#mapper.text(realm.bundle, records.broken) });
      return;
    }
    if (realm !== undefined)
      for (const command of records.commands) if (command.failure !== undefined) this.#mapper.failure(realm.bundle, command.failure);
    waiter.resolve({ kind: "ok", commands: records.commands });
  }

  #mapped(bundle: Bundle | undefined, answer: QueryResult | undefined): QueryResult | undefined {
    if (bundle !== undefined && answer?.kind === "failed") this.#mapper.failure(bundle, answer.failure as FailureInit);
    return answer;
  }

  /** True when the run stood at its second death in a row. */
  #suspect(run: GuestRun): boolean {
    const deaths = (this.#suspects.get(identity(run)) ?? 0) + 1;
    if (deaths < suspectDeathsMax) this.#suspects.set(identity(run), deaths);
    else this.#suspects.delete(identity(run));
    return deaths >= suspectDeathsMax;
  }

  #loseRealm(realm: Realm): void {
    for (const key of realm.runs) this.#runs.delete(key);
    this.#bundles.discard(realm);
  }

  /** Why the run is refused, if it is. */
  #sentence(run: GuestRun): string | undefined {
    if (this.#condemned.size === 0) return undefined;
    const now = performance.now();
    for (const [key, { untilMs }] of this.#condemned) if (untilMs <= now) this.#condemned.delete(key);
    return this.#condemned.get(condemnedKey(run))?.message;
  }

  /** Returns why the run is to blame for the death, if it is; it is refused from now on. */
  #condemn(culprit: OpenRun, death: Death): string | undefined {
    const { run, realm } = culprit;
    // A query that ends the process says nothing about the run.
    if (!this.#waiters.some((waiter, i) => i >= this.#answered && waiter.kind === "activate" && waiter.run === run)) return undefined;
    // In a realm that was filling up, whoever comes last runs out of memory: that one gets another try.
    const isCertain = death.excess === "stuck" || (death.excess === "memory" && realm?.full !== true);
    if (!isCertain && !this.#suspect(run)) return undefined;
    this.#suspects.delete(identity(run));
    const message = death.excess === undefined ? death.message : excessText(death);
    this.#condemned.set(condemnedKey(run), { untilMs: performance.now() + condemnedMs, message });
    return message;
  }

  #died(death: Death): void {
    this.#child = undefined;
    this.#bundles.attach(undefined);
    const open = this.#runs.get(death.running);
    const culprit = open?.run;
    const blame = open === undefined ? undefined : this.#condemn(open, death);
    this.#loseAll(death.message, blame === undefined ? undefined : { run: open!.run, message: blame });
    if (this.#closed) return;
    this.#options.onProblem?.(`${death.message}${culprit === undefined ? "" : `; it was executing run ${culprit.run}`}`);
    if (performance.now() - this.#startedMs > healthyMs) this.#restartMs = restartMsMin;
    this.#starting = this.#restartLater();
    this.#starting.catch((error: Error) => this.#options.onProblem?.(error.message));
  }

  async #restartLater(): Promise<ChildProcess> {
    const waitMs = this.#restartMs;
    this.#restartMs = Math.min(waitMs * 2, restartMsMax);
    await new Promise<void>((resolve) => setTimeout(resolve, waitMs).unref());
    try {
      if (this.#closed) throw new Error("The V8 host is closed");
      return await this.#spawn();
    } finally {
      this.#starting = undefined;
    }
  }

  #loseAll(message: string, culprit?: { readonly run: GuestRun; readonly message: string }): void {
    const waiters = this.#waiters.slice(this.#answered);
    this.#waiters = [];
    this.#answered = 0;
    // Those whose code is being loaded hear of the death from their own wait.
    for (const [key, open] of this.#runs) if (open.realm !== undefined || this.#closed) this.#runs.delete(key);
    for (const waiter of waiters) {
      if (waiter.kind === "activate" && waiter.run === culprit?.run) waiter.resolve({ kind: "limit", message: culprit.message });
      else waiter.resolve({ kind: "lost", message });
    }
  }
}

function identity(run: GuestRun): string {
  return `${run.run}#${run.generation}`;
}

/** With repaired code, the run may be executed at once. */
function condemnedKey(run: GuestRun): string {
  return `${identity(run)}@${run.bundle}`;
}

function excessText({ excess, message }: Death): string {
  const advice = "let the workflow hold less, and move large data into activities";
  if (excess === "memory") return `The V8 process ran out of memory while it ran this workflow; ${advice} (${message})`;
  return `The V8 process was ended: this workflow ran past its limits of processor time or memory in one call that can't be interrupted, such as filling a huge array; ${advice} (${message})`;
}
