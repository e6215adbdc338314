/**
 * What must hold of schedules, told from events alone: a schedule fires as its table says. Of an
 * interval the table is plain arithmetic: each instant is dealt with once and in order, started,
 * skipped by policy or missed, never early, and what was missed was late by more than its window.
 */
import { InstantOutcome, EventKind as Kind, OverlapPolicy, type ScheduleConfig, type ScheduleNext } from "#proto";
import type { PartitionJournal } from "../journal.ts";
import type { JournalEvent } from "../model.ts";
import { claim } from "../violation.ts";

const rule = "firesAsItsTable";

interface Table {
  readonly config: ScheduleConfig;
  /** The first that is not dealt with. */
  next: ScheduleNext;
  isPaused: boolean;
  /** Names of runs that are to be started still. */
  waiting: string[];
  /** Starts that did not come to their end. */
  readonly live: Set<number>;
}

export class Schedules {
  private readonly tables = new Map<string, Table>();
  /** Runs that schedules asked for, and how often one was started so. */
  private readonly runs = new Map<string, number>();
  private readonly refused = new Set<string>();

  event(at: PartitionJournal, e: JournalEvent): void {
    const { event, partition } = e;
    if (event.kind === Kind.runStarted && event.body.startedBy?.partition.startsWith("sched/") === true) return this.begun(partition);
    if (!partition.startsWith("sched/")) return;
    if (event.kind === Kind.scheduleCreated) return this.created(e, event.body);
    const table = this.tables.get(partition);
    claim(rule, table !== undefined, () => `${partition} seq ${e.seq} of kind ${e.kind} is of no schedule that is there`);
    this.change(at, e, table);
  }

  private created(
    e: JournalEvent,
    { config, next, paused }: { config?: ScheduleConfig | undefined; next?: ScheduleNext | undefined; paused: boolean },
  ): void {
    claim(rule, config?.spec !== undefined && next !== undefined, () => `${e.partition} has no times`);
    const table: Table = { config, next, isPaused: paused, waiting: [], live: new Set() };
    this.tables.set(e.partition, table);
    this.comesNext(e, table, next);
  }

  private change(at: PartitionJournal, e: JournalEvent, table: Table): void {
    const { event, partition } = e;
    switch (event.kind) {
      case Kind.schedulePaused:
        table.isPaused = true;
        return;
      case Kind.scheduleResumed:
        table.isPaused = false;
        return this.comesNext(e, table, event.body.next);
      case Kind.scheduleFired:
        return this.fired(e, table, event.body);
      case Kind.scheduleMissed:
        return this.missed(e, table, event.body);
      case Kind.scheduleTriggered:
        return this.dealt(e, table, event.body);
      case Kind.childSpawned: {
        const { to, op } = event.body;
        const place = table.waiting.indexOf(to);
        claim(rule, place === 0, () => `${partition} starts ${to} at place ${place} of what waits`);
        table.waiting.shift();
        claim(rule, !this.runs.has(to), () => `${partition} starts ${to} a second time`);
        const isAlone = table.live.size === 0 || table.config.policy?.overlap === OverlapPolicy.allowAll;
        claim("overlapKept", isAlone, () => `${partition} starts ${to} while operations ${[...table.live].join()} are live`);
        this.runs.set(to, 0);
        table.live.add(op);
        return;
      }
      case Kind.childStarted:
        if (event.body.failure === undefined) return;
        table.live.delete(event.body.op);
        this.refused.add(event.body.from.slice("run/".length));
        return;
      case Kind.childEnded:
        table.live.delete(event.body.op);
        return;
      case Kind.scheduleDeleted:
        this.tables.delete(partition);
        return;
      default:
        claim(rule, false, () => `${at.partition} seq ${e.seq} is of kind ${e.kind}`);
    }
  }

  private fired(
    e: JournalEvent,
    table: Table,
    body: { atMs: number; outcome: number; instance: string; next?: ScheduleNext | undefined },
  ): void {
    this.isNext(e, table, body.atMs, body.next, body.atMs);
    claim(rule, e.timeMs >= table.next.dueMs, () => `${e.partition} fires for ${body.atMs} at ${e.timeMs}, due is ${table.next.dueMs}`);
    this.dealt(e, table, body);
    table.next = body.next ?? table.next;
  }

  private missed(
    e: JournalEvent,
    table: Table,
    body: { firstMs: number; lastMs: number; count: number; next?: ScheduleNext | undefined },
  ): void {
    const { everyMs = 0 } = table.config.spec ?? {};
    this.isNext(e, table, body.firstMs, body.next, body.lastMs);
    claim(
      rule,
      body.lastMs === body.firstMs + (body.count - 1) * everyMs,
      () => `${e.partition} missed ${JSON.stringify(body)}, every ${everyMs}`,
    );
    const window = table.config.policy?.catchUpMs ?? 0;
    claim(rule, e.timeMs > body.lastMs + window, () => `${e.partition} gives ${body.lastMs} up at ${e.timeMs}, its window is ${window}`);
    table.next = body.next ?? table.next;
  }

  /** What is dealt with is what comes next, and then comes what is one interval behind the last of it. */
  private isNext(e: JournalEvent, table: Table, firstMs: number, next: ScheduleNext | undefined, lastMs: number): void {
    const { everyMs = 0 } = table.config.spec ?? {};
    claim(rule, !table.isPaused, () => `${e.partition} seq ${e.seq} fires while it is paused`);
    claim(rule, firstMs === table.next.atMs, () => `${e.partition} deals with ${firstMs}, next is ${table.next.atMs}`);
    claim(rule, next?.atMs === lastMs + everyMs, () => `${e.partition} goes on with ${next?.atMs} behind ${lastMs}, every ${everyMs}`);
  }

  private dealt(e: JournalEvent, table: Table, { outcome, instance }: { outcome: number; instance: string }): void {
    const { overlap = 0 } = table.config.policy ?? {};
    const isBusy = overlap !== OverlapPolicy.allowAll && (table.live.size > 0 || table.waiting.length > 0);
    const isStart = outcome === InstantOutcome.started;
    claim("overlapKept", isStart !== isBusy, () => `${e.partition} seq ${e.seq} comes to ${outcome}, ${table.live.size} are live`);
    const skips = overlap === OverlapPolicy.skip || (overlap === OverlapPolicy.bufferOne && table.waiting.length > 0);
    claim(
      "overlapKept",
      !isBusy || skips === (outcome === InstantOutcome.skipped),
      () => `${e.partition} seq ${e.seq} comes to ${outcome}, policy ${overlap}`,
    );
    if (outcome !== InstantOutcome.skipped) table.waiting.push(`default:${instance}`);
  }

  /** After a while in which nothing was to fire: the first multiple of the interval behind what was decided. */
  private comesNext(e: JournalEvent, table: Table, next: ScheduleNext | undefined): void {
    const { everyMs = 1 } = table.config.spec ?? {};
    const atMs = next?.atMs ?? 0;
    // The event's time may be a little behind the step's, where the clock had run ahead.
    const isFirst = atMs % everyMs === 0 && atMs <= e.timeMs + everyMs;
    claim(rule, isFirst, () => `${e.partition} seq ${e.seq} at ${e.timeMs} goes on with ${atMs}, every ${everyMs}`);
    if (next !== undefined) table.next = next;
  }

  private begun(partition: string): void {
    const run = partition.slice("run/".length);
    const count = this.runs.get(run);
    claim(rule, count === 0, () => `${partition} is started by a schedule ${count === undefined ? "that did not ask" : "again"}`);
    this.runs.set(run, 1);
  }

  /** All is well again, and nothing is on its way. */
  checkEnd(): void {
    for (const [run, count] of this.runs) {
      const isDone = count === 1 || this.refused.has(run);
      claim(rule, isDone, () => `a schedule asked for ${run}, which never began and was not refused`);
    }
  }
}
