/**
 * A schedule's partition: a run without code of its own, which Core carries on. What it starts are
 * its children, so starts, their ends and the messages about them are as of any run; what is here is
 * the rest. An event says the next instant, and nobody who applies it computes one.
 */
import { instanceOf, limits, type RunId } from "#core/base";
import {
  type ChildSpawned,
  type ChildStarted,
  EventKind,
  InstantOutcome,
  MessageKind,
  OverlapPolicy,
  RunStatus,
  type ScheduleBackfilled,
  type ScheduleConfig,
  type ScheduleCreated,
  type ScheduleDeleted,
  type ScheduleFired,
  type ScheduleMissed,
  type ScheduleNext,
  type ScheduleState,
  type ScheduleTriggered,
} from "#proto";
import { askToEnd } from "./child.ts";
import type { EventOf, RunEvent } from "./event.ts";
import { kept, type Run } from "./state.ts";

export type ScheduleEvent = EventOf<
  | "scheduleCreated"
  | "scheduleUpdated"
  | "schedulePaused"
  | "scheduleResumed"
  | "scheduleFired"
  | "scheduleMissed"
  | "scheduleTriggered"
  | "scheduleBackfilled"
  | "scheduleDeleted"
>;

/** Whether the event is one that only a schedule has. */
export const isOfSchedule = (event: RunEvent): event is ScheduleEvent =>
  event.kind >= EventKind.scheduleCreated && event.kind <= EventKind.scheduleDeleted;

const noInstant: ScheduleNext = { atMs: 0, dueMs: 0 };

export function applySchedule(run: Run, event: ScheduleEvent, at: { readonly seq: number; readonly timeMs: number }): void {
  if (event.kind === EventKind.scheduleCreated) return applyCreated(run, event.body, at);
  const { schedule } = run;
  if (schedule === undefined) return;
  switch (event.kind) {
    case EventKind.scheduleUpdated:
      schedule.config = keptConfig(event.body.config);
      schedule.next = event.body.next ?? noInstant;
      schedule.updatedMs = at.timeMs;
      run.type = schedule.config?.action?.type ?? "";
      return;
    case EventKind.schedulePaused:
      schedule.paused = true;
      schedule.pauseReason = event.body.reason;
      return;
    case EventKind.scheduleResumed:
      schedule.paused = false;
      schedule.pauseReason = "";
      schedule.next = event.body.next ?? noInstant;
      return;
    case EventKind.scheduleFired:
      schedule.next = event.body.next ?? noInstant;
      return applyInstant(run, schedule, event.body);
    case EventKind.scheduleTriggered:
      return applyInstant(run, schedule, event.body);
    case EventKind.scheduleMissed:
      return applyMissed(schedule, event.body);
    case EventKind.scheduleBackfilled:
      return applyBackfilled(schedule, event.body);
    case EventKind.scheduleDeleted:
      return applyDeleted(run, event.body, at.timeMs);
  }
}

function applyCreated(run: Run, body: ScheduleCreated, at: { readonly seq: number; readonly timeMs: number }): void {
  const config = keptConfig(body.config);
  run.generation = body.generation;
  run.type = config?.action?.type ?? "";
  run.status = RunStatus.running;
  run.startedMs = at.timeMs;
  run.closedMs = 0;
  run.nextOp = 1;
  run.firstSeq = at.seq;
  run.note = "";
  run.schedule = {
    config,
    paused: body.paused,
    pauseReason: body.reason,
    next: body.next ?? noInstant,
    waiting: [],
    counts: { started: 0, skipped: 0, missed: 0, refused: 0 },
    recent: [],
    updatedMs: at.timeMs,
  };
}

/** Bytes to keep, of what may be a view of a larger message. */
function keptConfig(config: ScheduleConfig | undefined): ScheduleConfig | undefined {
  if (config?.action === undefined) return config;
  return { ...config, action: { ...config.action, input: kept(config.action.input) } };
}

/** What the instant has come to; its start, where it has one at once, is the next event. */
function applyInstant(run: Run, schedule: ScheduleState, body: ScheduleFired | ScheduleTriggered): void {
  const { atMs, outcome, instance } = body;
  if (outcome === InstantOutcome.skipped) count(schedule, "skipped");
  remember(schedule, { atMs, instance, op: 0, outcome, status: 0 });
  if (outcome === InstantOutcome.replaces) {
    for (const { instance: replaced } of schedule.waiting) settle(schedule, replaced, { outcome: InstantOutcome.skipped });
    count(schedule, "skipped", schedule.waiting.length);
    schedule.waiting = [];
    endLive(run, schedule, instance);
  }
  // A start that comes at once waits for no longer than until the next event.
  if (outcome !== InstantOutcome.skipped) schedule.waiting = [...schedule.waiting, { atMs, instance, atOnce: false }];
}

/** What is live is to end, for the start to come. */
function endLive(run: Run, { config }: ScheduleState, instance: string): void {
  const kind = config?.policy?.overlap === OverlapPolicy.terminateOther ? MessageKind.terminate : MessageKind.cancel;
  const reason = `its schedule is to start ${instance}`;
  // A schedule has no operations but the runs that it started and that have not ended.
  for (const o of run.pending.values()) askToEnd(run, o, { kind, reason });
}

function applyMissed(schedule: ScheduleState, { count: missed, next }: ScheduleMissed): void {
  count(schedule, "missed", missed);
  schedule.next = next ?? noInstant;
}

function applyBackfilled(schedule: ScheduleState, { instant }: ScheduleBackfilled): void {
  schedule.waiting = [...schedule.waiting, ...instant];
  for (const { atMs, instance } of instant) remember(schedule, { atMs, instance, op: 0, outcome: InstantOutcome.waits, status: 0 });
}

function applyDeleted(run: Run, { reason }: ScheduleDeleted, timeMs: number): void {
  run.status = RunStatus.terminated;
  run.closedMs = timeMs;
  run.note = reason;
  run.pending.clear();
  run.schedule = undefined;
}

type StartEvent = EventOf<"childSpawned" | "childStarted" | "childEnded" | "cancelSent">;

/** What the run of an instant comes to, where it is a schedule that spawned it. */
export function applyStartOfSchedule(run: Run, event: StartEvent): void {
  if (run.schedule === undefined) return;
  if (event.kind === EventKind.childSpawned) applyStart(run.schedule, event.body);
  else if (event.kind === EventKind.childStarted) applyStarted(run.schedule, event.body);
  else if (event.kind === EventKind.childEnded) settleOp(run.schedule, event.body.op, { status: event.body.status });
}

/** A start is on its way: it waits no more. */
function applyStart(schedule: ScheduleState, { op, to }: ChildSpawned): void {
  const instance = instanceOf(to as RunId);
  schedule.waiting = without(schedule.waiting, instance);
  count(schedule, "started");
  settle(schedule, instance, { op, outcome: InstantOutcome.started });
}

function without(waiting: ScheduleState["waiting"], instance: string): ScheduleState["waiting"] {
  const at = waiting.findIndex((one) => one.instance === instance);
  return at < 0 ? waiting : waiting.toSpliced(at, 1);
}

function applyStarted(schedule: ScheduleState, { op, failure }: ChildStarted): void {
  if (failure === undefined) return;
  count(schedule, "refused");
  settleOp(schedule, op, { outcome: InstantOutcome.refused });
}

type Fire = ScheduleState["recent"][number];

function remember(schedule: ScheduleState, fire: Fire): void {
  schedule.recent = [...schedule.recent, fire].slice(-limits.scheduleFiresKept);
}

function settle(schedule: ScheduleState, instance: string, change: Partial<Fire>): void {
  const at = schedule.recent.findLastIndex((one) => one.instance === instance && one.op === 0);
  if (at >= 0) schedule.recent = schedule.recent.with(at, { ...(schedule.recent[at] as Fire), ...change });
}

function settleOp(schedule: ScheduleState, op: number, change: Partial<Fire>): void {
  schedule.recent = schedule.recent.map((one) => (one.op === op ? { ...one, ...change } : one));
}

function count(schedule: ScheduleState, what: "started" | "skipped" | "missed" | "refused", by = 1): void {
  const counts = schedule.counts ?? { started: 0, skipped: 0, missed: 0, refused: 0 };
  schedule.counts = { ...counts, [what]: counts[what] + by };
}
