/** A shard with a worker that executes sagas, and a world in which their activities have effects. */
import { asSessionId, type Effect, type RunId, runPartition, type TaskEffect } from "#core/base";
import { SessionCapacity } from "#core/dispatch";
import { decodeBody, type RunEvent } from "#core/run";
import { type CommandInit, CommandKind, decodeEvent, decodeRecord, EventKind, fromBytes, RunStatus } from "#proto";
import { RecordLog, StateTable, soleShard } from "../../tests/shard-maker.ts";
import { Led } from "./led-fixture.ts";

export const order = "default:o-1" as RunId;
export const partition = runPartition(order);

/** What the workflow asks for, in order; it waits after each activity. */
export type Step =
  | { readonly undo: string; readonly always?: true; readonly attempts?: number; readonly withinMs?: number }
  | { readonly act: string }
  /** Takes back what operation `op` registered. */
  | { readonly take: number };

export const openAccount: readonly Step[] = [
  { undo: "refund_card" },
  { act: "charge_card" },
  { undo: "release_inventory" },
  { act: "reserve_inventory" },
  { act: "ship_order" },
];

/** One execution, from the moment a worker has it to its answer. */
interface Execution {
  readonly task: TaskEffect;
  isCancelled: boolean;
}

export class SagaWorld {
  readonly log = new RecordLog();
  readonly table = new StateTable();
  led: Led;
  /** Activities as their effects took place. */
  readonly done: string[] = [];
  /** Of every execution of a compensation. */
  readonly keys: string[] = [];
  /** Activities whose executions fail. */
  readonly failing = new Set<string>();
  /** Workers do nothing while this is set. */
  isHeld = false;
  /** Executions that are not answered. */
  readonly executing: Execution[] = [];
  readonly replies: Extract<Effect, { kind: "reply" }>["reply"][] = [];
  private readonly steps: readonly Step[];
  private epoch = 1;
  private sessions = 0;

  constructor(steps: readonly Step[] = openAccount) {
    this.steps = steps;
    this.led = this.open();
  }

  private open(): Led {
    const led = new Led({ table: this.table, log: this.log }).lead(this.epoch);
    this.led = led;
    this.join();
    return led;
  }

  private join(): void {
    const activities = ["refund_card", "charge_card", "release_inventory", "reserve_inventory", "ship_order"];
    const hello = { activities, workerId: `w${++this.sessions}` };
    this.take(this.led.joinAs(asSessionId(this.sessions), new SessionCapacity(10), hello));
  }

  /** The node dies, and its worker with it: what was executing has its effects all the same. */
  crash(): void {
    this.finish();
    this.table.checkpoint(soleShard, this.led.machine);
    this.epoch++;
    const { nowMs } = this.led;
    this.led = this.open();
    this.led.nowMs = nowMs;
    this.advance(600);
  }

  /** Takes what a step gave, and what follows of it, until everybody waits. */
  take(effects: readonly Effect[]): void {
    for (const effect of effects) {
      if (effect.kind === "reply") this.replies.push(effect.reply);
      if (effect.kind === "task") this.executing.push({ task: effect, isCancelled: false });
      if (effect.kind === "cancel-task") {
        const { token } = effect;
        const found = this.executing.find(({ task }) => task.token.op === token.op && task.token.generation === token.generation);
        if (found !== undefined) found.isCancelled = true;
      }
      if (effect.kind === "activate" || effect.kind === "replay") this.take(this.led.answer([effect], ...this.commands()));
    }
    if (!this.isHeld) this.work();
  }

  /** What the workflow asks for next: it waits for each activity. */
  private commands(): CommandInit[] {
    const run = this.run();
    if (run === undefined || run.status !== RunStatus.running) return [];
    if (run.cancelRequested) return [{ kind: CommandKind.cancelled }];
    if (run.pending.size > 0) return [];
    const last = this.events().findLast(({ kind }) => kind === EventKind.activityFailed || kind === EventKind.runStarted);
    if (last?.kind === EventKind.activityFailed) return [{ kind: CommandKind.fail, failure: last.body.failure ?? {} }];
    const commands: CommandInit[] = [];
    let next = run.nextOp;
    // Those that withdraw have no number of their own.
    let at = 0;
    for (let op = 1; op < next; at++) if (!("take" in (this.steps[at] as Step))) op++;
    for (const step of this.steps.slice(at)) {
      if ("take" in step) {
        commands.push({ kind: CommandKind.withdrawCompensation, op: step.take });
        continue;
      }
      const op = next++;
      const payload = { data: new TextEncoder().encode('"o-1"') };
      if ("act" in step) {
        commands.push({ kind: CommandKind.activity, op, name: step.act, payload, options: { retry: { attemptsMax: 1 } } });
        return commands;
      }
      const retry = { attemptsMax: step.attempts ?? 2, initialMs: 100, intervalMsMax: 100 };
      const options = { retry, scheduleToCloseMs: step.withinMs ?? 0 };
      commands.push({ kind: CommandKind.compensate, op, name: step.undo, payload, trigger: step.always ? 1 : 0, options });
    }
    return [...commands, { kind: CommandKind.complete, payload: { data: new TextEncoder().encode("7") } }];
  }

  /** Executes everything there is to execute. */
  work(): void {
    for (let next = this.executing[0]; next !== undefined; next = this.executing[0]) this.execute(next);
  }

  /** The effect takes place, then the answer comes. */
  execute(execution: Execution): void {
    this.executing.splice(this.executing.indexOf(execution), 1);
    const { task } = execution;
    if (task.options?.idempotencyKey !== undefined && task.options.idempotencyKey !== "")
      this.keys.push(`${task.name} ${task.options.idempotencyKey}`);
    const hasFailed = this.failing.has(task.name);
    if (!hasFailed) this.done.push(task.name);
    const failure = { type: "Error", message: `no ${task.name}`, stack: "", details: undefined, nonRetryable: false, cause: undefined };
    const message = { token: task.token, result: undefined, failure: hasFailed ? failure : undefined };
    this.take(this.led.step({ kind: "task-done", session: task.session, message }));
  }

  /** Effects of what executes, without answers: their worker dies. */
  private finish(): void {
    for (const { task } of this.executing.splice(0)) if (!this.failing.has(task.name)) this.done.push(task.name);
  }

  advance(ms: number): void {
    for (let passed = 0; passed < ms; passed += 100) this.take(this.led.advance(100));
  }

  run() {
    for (const live of this.led.machine.liveRuns()) if (live.partition === partition) return live.run;
    return undefined;
  }

  get state() {
    const found = this.led.machine.describe(partition);
    if (found === undefined) throw new Error("There is no run");
    return found;
  }

  start(
    options: { readonly contention?: "queue" | "supersede" | "attach"; readonly deadlineMs?: number; readonly awaitResult?: boolean } = {},
  ): void {
    const { contention = "attach", deadlineMs = 0, awaitResult = false } = options;
    const more = { input: undefined, idempotencyKey: "", overrideReason: contention === "supersede" ? "wedged" : "" };
    const command = {
      kind: "start",
      run: order,
      type: "openAccount",
      bundle: new Uint8Array(32),
      contention,
      deadlineMs,
      awaitResult,
      ...more,
    } as const;
    this.take(this.led.command(command));
  }

  terminate(): void {
    this.take(this.led.command({ kind: "terminate", run: order, reason: "wedged" }));
  }

  events(): RunEvent[] {
    const events = this.log.records.flatMap((body) => fromBytes(decodeRecord, body).event.map((bytes) => fromBytes(decodeEvent, bytes)));
    return events.flatMap(({ kind, payload }) => decodeBody(kind, payload) ?? []);
  }

  kinds(): number[] {
    return this.events().map(({ kind }) => kind);
  }

  /** Names of the compensations in the order of their execution, as the history has it. */
  undone(): string[] {
    const events = this.events();
    const names = new Map(events.flatMap(({ kind, body }) => (kind === EventKind.compensationRegistered ? [[body.op, body.name]] : [])));
    return events.flatMap(({ kind, body }) => (kind === EventKind.compensationStarted ? [names.get(body.op) ?? ""] : []));
  }

  /** Effects that took place and were not undone after. */
  notUndone(): string[] {
    const pairs = { charge_card: "refund_card", reserve_inventory: "release_inventory" };
    return Object.entries(pairs).flatMap(([act, undo]) => (this.done.lastIndexOf(act) > this.done.lastIndexOf(undo) ? [act] : []));
  }
}
