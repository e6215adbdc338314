/**
 * Clients that start runs, signal them and read their histories all the time, each by way of a
 * node of its own, and write down what they asked, what they were told, and when.
 *
 * Besides, each node has a watcher that reads at a steady pace whether it is answered or not: one
 * who waits for its answer asks nothing while a node is cut off or stopped, and so never sees
 * that it answers from the past.
 */
import { Prng } from "#core/base";
import { type HopClient, HopError } from "#sdk/client";
import type { Machine, Machines } from "./machines.ts";
import { absent, type Call, type Observed, readState, signalId } from "./run-log.ts";

export interface WorkloadOptions {
  /** Instance names begin with it. */
  readonly prefix: string;
  readonly clients?: number;
  /** Runs that are signalled at one time. */
  readonly width?: number;
  /** Signals that a run takes before another one is begun. */
  readonly signals?: number;
  /** Pause of a client between two requests, at most. */
  readonly pauseMs?: number;
  /** How long a client waits out an outage before it gives up a request, whose outcome is then unknown. */
  readonly patienceMs?: number;
  readonly seed?: number;
}

const watchMs = 50;
/** A watcher comes back to its own node this often, where it was led to another one meanwhile. */
const watcherMs = 1500;
/** Reads of a watcher that wait for an answer, at most. */
const watchesMax = 80;
/** Number of the first watcher, in what was observed. */
const watcherFirst = 1000;

interface Slot {
  run: string;
  isStarted: boolean;
  sent: number;
}

/** After these nobody knows whether the request was carried out. */
const unknownOutcome = new Set(["STORE_UNAVAILABLE", "NOT_LEADER", "STALE_EPOCH", "BUFFER_FULL", "BUDGET_EXPIRED", "NO_SPACE"]);

/** What a disk that is full is given before the next request. */
const noSpaceMs = 200;

const reasonOf = (error: unknown) => (error instanceof HopError ? error.reason : "");

export class Workload {
  readonly observed: Observed[] = [];
  /** Every run that was named, with the number of its signals. */
  readonly runs: string[] = [];
  readonly signals: number;
  readonly beganMs = performance.now();
  private readonly options: Required<WorkloadOptions>;
  private readonly machines: Machines;
  private readonly prng: Prng;
  private readonly slots: Slot[];
  private readonly done: Promise<void>;
  private fault: Error | undefined;
  private isOver = false;

  constructor(machines: Machines, options: WorkloadOptions) {
    this.options = { clients: 6, width: 4, signals: 40, pauseMs: 25, patienceMs: 3000, seed: 1, ...options };
    this.machines = machines;
    this.signals = this.options.signals;
    this.prng = new Prng(this.options.seed);
    this.slots = Array.from({ length: this.options.width }, () => this.nextSlot());
    const clients = Array.from({ length: this.options.clients }, (_, i) => this.drive(i));
    const watchers = machines.all.map((machine) => this.watch(machine));
    this.done = Promise.all([...clients, ...watchers]).then(() => {});
  }

  /** Resolves when every client has its last answer. Throws where one got an answer that it should never get. */
  async stop(): Promise<void> {
    this.isOver = true;
    await this.done;
    if (this.fault !== undefined) throw this.fault;
  }

  /** Asks nothing more. What it has seen is of no use. */
  abandon(): void {
    this.isOver = true;
  }

  /** Clients that wait for each answer before they ask again, and were answered something that they asked after `fromMs`. */
  answeredSince(fromMs: number): number {
    const answered = this.observed.filter(
      ({ client, beginMs, endMs }) => client < watcherFirst && beginMs >= fromMs && endMs !== undefined,
    );
    return new Set(answered.map(({ client }) => client)).size;
  }

  get clients(): number {
    return this.options.clients;
  }

  private nextSlot(): Slot {
    const run = `${this.options.prefix}-${this.runs.length + 1}`;
    this.runs.push(run);
    return { run, isStarted: false, sent: 0 };
  }

  private async drive(number: number): Promise<void> {
    const { all } = this.machines;
    const client = this.machines.client(all[number % all.length], this.options.patienceMs);
    try {
      while (!this.isOver && this.fault === undefined) {
        await this.act(client, number);
        await Bun.sleep(this.prng.below(this.options.pauseMs + 1));
      }
    } catch (error) {
      this.fault ??= error instanceof Error ? error : new Error(String(error));
    } finally {
      client.close();
    }
  }

  private async watch(machine: Machine): Promise<void> {
    const waiting = new Set<Promise<void>>();
    while (!this.isOver && this.fault === undefined) {
      const client = this.machines.client(machine, this.options.patienceMs);
      const reads: Promise<void>[] = [];
      for (const untilMs = performance.now() + watcherMs; performance.now() < untilMs && !this.isOver; await Bun.sleep(watchMs)) {
        if (waiting.size >= watchesMax) continue;
        const { run } = this.slots[this.prng.below(this.slots.length)] as Slot;
        const read = this.read(client, watcherFirst + machine.number, run)
          .catch((error: unknown) => {
            this.fault ??= error instanceof Error ? error : new Error(String(error));
          })
          .finally(() => waiting.delete(read));
        waiting.add(read);
        reads.push(read);
      }
      void Promise.all(reads).then(() => client.close());
    }
    await Promise.all(waiting);
  }

  private async act(client: HopClient, number: number): Promise<void> {
    const at = this.prng.below(this.slots.length);
    let slot = this.slots[at] as Slot;
    if (slot.sent >= this.signals) {
      slot = this.nextSlot();
      this.slots[at] = slot;
    }
    const draw = this.prng.below(10);
    if (draw < 4) return this.read(client, number, slot.run);
    if (!slot.isStarted) {
      slot.isStarted = await this.start(client, number, slot.run);
      return;
    }
    if (slot.sent < this.signals) return this.append(client, number, { run: slot.run, value: ++slot.sent });
  }

  /** Asks, and writes down what came of it. Returns whether there was an answer. */
  private async observe(number: number, run: string, call: Call, ask: () => Promise<Call | undefined>): Promise<boolean> {
    const beginMs = performance.now();
    try {
      const answered = await ask();
      this.observed.push({ run, client: number, call: answered ?? call, beginMs, endMs: performance.now() });
      return true;
    } catch (error) {
      const reason = reasonOf(error);
      if (reason === "RUN_NOT_FOUND" && call.kind === "append") {
        this.observed.push({ run, client: number, call: { kind: "refused" }, beginMs, endMs: performance.now() });
        return true;
      }
      if (!unknownOutcome.has(reason)) throw new Error(`${call.kind} of ${run} failed: ${String(error)}`, { cause: error });
      if (call.kind !== "read") this.observed.push({ run, client: number, call, beginMs, endMs: undefined });
      if (reason === "NO_SPACE") await Bun.sleep(noSpaceMs);
      return false;
    }
  }

  start(client: HopClient, number: number, run: string): Promise<boolean> {
    return this.observe(number, run, { kind: "start" }, async () => {
      await client.start("tally", { count: this.signals }, { instance: run, idempotencyKey: `key-${run}` });
      return undefined;
    });
  }

  async append(client: HopClient, number: number, { run, value }: { readonly run: string; readonly value: number }): Promise<void> {
    await this.observe(number, run, { kind: "append", value }, async () => {
      await client.handle({ instance: run }).signal("add", value, { id: signalId(value) });
      return undefined;
    });
  }

  async read(client: HopClient, number: number, run: string): Promise<void> {
    await this.observe(number, run, { kind: "read", seen: absent }, async () => ({ kind: "read", seen: await readState(client, run) }));
  }

  get answers(): number {
    return this.observed.filter(({ client, endMs }) => client < watcherFirst && endMs !== undefined).length;
  }

  /**
   * For each client, the longest time between `fromMs` and `toMs` in which nothing that it asked was answered, in
   * milliseconds: what it saw of an outage.
   */
  silences(fromMs: number, toMs: number): number[] {
    return Array.from({ length: this.options.clients }, (_, client) => {
      const ends = this.observed.flatMap((each) => (each.client === client && each.endMs !== undefined ? [each.endMs] : []));
      const inside = ends.filter((endMs) => endMs >= fromMs && endMs <= toMs).sort((a, b) => a - b);
      const edges = [fromMs, ...inside, toMs];
      return Math.max(...edges.slice(1).map((edge, i) => edge - (edges[i] as number)));
    });
  }
}
