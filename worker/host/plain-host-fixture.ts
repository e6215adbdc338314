/**
 * A guest host for tests of what surrounds hosts: workflows are plain functions of this process,
 * with no sandbox. What it does depends on its deliveries alone, as with any host.
 */
import { type CommandInit, CommandKind } from "#proto";
import type { Activation, Delivery, GuestHost, GuestRun, QueryResult } from "./guest-host.ts";

export interface Api {
  readonly input: unknown;
  nowMs(): number;
  activity(name: string, input: unknown): Promise<unknown>;
  sleep(ms: number): Promise<void>;
  signal(name: string): Promise<unknown>;
  withdraw(op: number): void;
  query(name: string, answer: (input: unknown) => unknown): void;
  method(name: string, handler: (input: unknown) => unknown): void;
  /** Rejects when the run is cancelled. */
  cancelled(): Promise<never>;
}

export type PlainWorkflow = (api: Api) => Promise<unknown>;

const encode = (value: unknown) => ({ data: Buffer.from(JSON.stringify(value) ?? "") });
const decode = (bytes: Uint8Array): unknown => (bytes.length === 0 ? undefined : JSON.parse(Buffer.from(bytes).toString()));
const turn = () => new Promise<void>((done) => setImmediate(done));

class PlainRun {
  readonly workflow: PlainWorkflow;
  commands: CommandInit[] = [];
  readonly methods = new Map<string, (input: unknown) => unknown>();
  readonly queries = new Map<string, (input: unknown) => unknown>();
  private nextOp = 1;
  private nowMs = 0;
  private readonly open = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>();
  private readonly buffered = new Map<string, unknown[]>();
  private readonly waits = new Map<string, ((value: unknown) => void)[]>();
  private readonly cancels: ((error: Error) => void)[] = [];

  constructor(workflow: PlainWorkflow) {
    this.workflow = workflow;
  }

  deliver(delivery: Delivery): void {
    this.nowMs = delivery.nowMs;
    switch (delivery.kind) {
      case "start":
        this.workflow(this.api(decode(delivery.input))).then(
          (value) => this.commands.push({ kind: CommandKind.complete, payload: encode(value) }),
          (error: Error) => this.commands.push({ kind: CommandKind.fail, failure: { type: error.name, message: error.message } }),
        );
        return;
      case "resolve":
        this.open.get(delivery.op)?.resolve(decode(delivery.value));
        return;
      case "reject":
        this.open.get(delivery.op)?.reject(new Error(delivery.failure.message));
        return;
      case "signal": {
        const waiting = this.waits.get(delivery.name)?.shift();
        if (waiting !== undefined) waiting(decode(delivery.value));
        else this.buffered.set(delivery.name, [...(this.buffered.get(delivery.name) ?? []), decode(delivery.value)]);
        return;
      }
      case "call": {
        const { call, name, input } = delivery;
        const handler = this.methods.get(name);
        if (handler === undefined) throw new Error(`Calls of ${name} do not wait for its declaration here`);
        Promise.resolve(handler(decode(input))).then(
          (value) => this.commands.push({ kind: CommandKind.answerCall, op: call, payload: encode(value) }),
          (error: Error) =>
            this.commands.push({ kind: CommandKind.answerCall, op: call, failure: { type: error.name, message: error.message } }),
        );
        return;
      }
      // Its methods answer all the same.
      case "cancel-call":
        return;
      case "cancel":
        for (const cancel of this.cancels) cancel(new Error(delivery.reason));
    }
  }

  private ask(command: CommandInit): Promise<unknown> {
    const op = this.nextOp++;
    this.commands.push({ ...command, op });
    return new Promise((resolve, reject) => this.open.set(op, { resolve, reject }));
  }

  private wait(name: string): Promise<unknown> {
    this.commands.push({ kind: CommandKind.awaitSignal, op: this.nextOp++, name });
    const buffered = this.buffered.get(name);
    if (buffered !== undefined && buffered.length > 0) return Promise.resolve(buffered.shift());
    return new Promise((resolve) => this.waits.set(name, [...(this.waits.get(name) ?? []), resolve]));
  }

  private api(input: unknown): Api {
    return {
      input,
      nowMs: () => this.nowMs,
      activity: (name, value) => this.ask({ kind: CommandKind.activity, name, payload: encode(value) }),
      sleep: async (durationMs) => {
        await this.ask({ kind: CommandKind.timer, durationMs });
      },
      signal: (name) => this.wait(name),
      withdraw: (op) => {
        this.commands.push({ kind: CommandKind.cancelOp, op });
      },
      query: (name, answer) => {
        this.queries.set(name, answer);
      },
      method: (name, handler) => {
        this.methods.set(name, handler);
      },
      cancelled: () => new Promise((_, reject) => this.cancels.push(reject)),
    };
  }
}

export class PlainHost implements GuestHost {
  /** May be exchanged, as a new bundle would. */
  workflows: Record<string, PlainWorkflow>;
  /** What the next activations end with instead, in order. */
  readonly faults: Activation[] = [];
  readonly opened: GuestRun[] = [];
  readonly dropped: number[] = [];
  private readonly runs = new Map<number, PlainRun>();

  constructor(workflows: Record<string, PlainWorkflow>) {
    this.workflows = workflows;
  }

  open(run: GuestRun): void {
    this.opened.push(run);
    const workflow = this.workflows[run.type];
    if (workflow !== undefined) this.runs.set(run.key, new PlainRun(workflow));
  }

  has(key: number): boolean {
    return this.runs.has(key);
  }

  get size(): number {
    return this.runs.size;
  }

  async activate(key: number, deliveries: readonly Delivery[]): Promise<Activation> {
    const fault = this.faults.shift();
    if (fault !== undefined) {
      await turn();
      this.runs.delete(key);
      return fault;
    }
    const run = this.runs.get(key);
    if (run === undefined) return { kind: "broken", message: "The bundle has no such workflow" };
    for (const delivery of deliveries) {
      run.deliver(delivery);
      await turn();
    }
    const { commands } = run;
    run.commands = [];
    return { kind: "ok", commands };
  }

  async query(key: number, name: string, input: Uint8Array): Promise<QueryResult> {
    await turn();
    const run = this.runs.get(key);
    if (run === undefined) return { kind: "lost", message: "The host lost the run" };
    const answer = run.queries.get(name);
    if (answer === undefined) return { kind: "not-found", declared: [...run.queries.keys()] };
    try {
      return { kind: "ok", value: encode(answer(decode(input))).data };
    } catch (error) {
      return { kind: "failed", failure: { type: "Error", message: error instanceof Error ? error.message : String(error) } };
    }
  }

  drop(key: number): void {
    this.dropped.push(key);
    this.runs.delete(key);
  }

  async close(): Promise<void> {
    this.runs.clear();
  }
}
