/**
 * Schedules: Core carries them on where a worker carries on a run. Each instant is an event that says
 * what it comes to and which one is next, in the record of the start that it makes: whoever leads
 * after a crash, or has the partition after a split, finds each instant dealt with or still to come.
 *
 * What a schedule starts are its children: starts leave by its outbox, each is taken once, and its
 * end comes back. That is how it knows what is live.
 */
import { bytesEqual, instanceOf, limits, noBytes, type RequestId, schedulePartition } from "#core/base";
import { decideSpawn, isLive, mayStartNext, scheduleDueMs } from "#core/run";
import { type Clockwork, catchUp, coming, decideOverlap, fires, knowsZone, type Overlap, specProblem } from "#core/schedule";
import {
  EventKind,
  encodeScheduleConfig,
  type Identity,
  InstantOutcome,
  ParentClosePolicy,
  type ScheduleBackfill,
  type ScheduleCommand,
  type ScheduleConfig,
  type ScheduleCreation,
  type ScheduleNext,
  type ScheduleReply,
  type ScheduleSpec,
  type ScheduleState,
  toBytes,
} from "#proto";
import type { ShardContext } from "./context.ts";
import type { Command } from "./input.ts";
import type { LiveRun } from "./live-run.ts";
import { remind } from "./reminders.ts";
import { reject, respond } from "./replies.ts";

/** Starts that one step makes for instants that waited: the rest follows in the next. */
const startedMax = 16;

const outcomes: Readonly<Record<Overlap, InstantOutcome>> = {
  start: InstantOutcome.started,
  wait: InstantOutcome.waits,
  replace: InstantOutcome.replaces,
  skip: InstantOutcome.skipped,
};

/** At the end of a step that changed it: what waits for nobody any more starts, and the next instant is minded. */
export function carryOn(ctx: ShardContext, live: LiveRun): void {
  const { schedule, pending } = live.run;
  if (schedule === undefined) return;
  for (let i = 0; i < startedMax && mayStartNext(schedule, pending.size); i++) start(ctx, live, schedule);
  const dueMs = scheduleDueMs(schedule, pending.size);
  // What may start now starts in another step: a record holds so many.
  if (dueMs !== Number.POSITIVE_INFINITY) remind(ctx, live, "schedule", dueMs === 0 ? ctx.nowMs + 1 : dueMs);
}

function start(ctx: ShardContext, live: LiveRun, { waiting, config }: ScheduleState): void {
  const { type = "", input, deadlineMs = 0 } = config?.action ?? {};
  const [next] = waiting;
  if (next === undefined) return;
  // A run of that name that is live is none of the schedule's, and stays what it is.
  const order = { type, bundle: noBytes, deadlineMs, idempotencyKey: "", contention: "reject", budgetMs: 0, overrideReason: "" };
  const to = `${live.namespace}:${next.instance}`;
  const spawn = decideSpawn(live.run, { op: live.run.nextOp, to, start: order, input, closePolicy: ParentClosePolicy.abandon });
  ctx.append(live, spawn, ctx.core(live.chain.size - 1));
}

export function onScheduleDue(ctx: ShardContext, live: LiveRun): void {
  const { schedule } = live.run;
  if (schedule === undefined) return;
  if (mayStartNext(schedule, live.run.pending.size)) return ctx.touch(live);
  const { next, paused, config } = schedule;
  if (paused || next === undefined || next.atMs === 0 || next.dueMs > ctx.nowMs || config?.spec === undefined) return;
  const clockwork = clockworkOf(ctx, live, config.spec);
  if (!isZoneKnown(ctx, config.spec)) return remind(ctx, live, "schedule", ctx.nowMs + limits.scheduleRetryMs);
  const caught = catchUp(clockwork, next, { nowMs: ctx.nowMs, windowMs: config.policy?.catchUpMs ?? 0 });
  const cause = ctx.core(live.run.firstSeq);
  if (caught.missed !== undefined) {
    const body = { ...caught.missed, next: nextOf(caught.next) };
    ctx.append(live, { kind: EventKind.scheduleMissed, body }, cause);
    return;
  }
  const outcome = outcomeNow(live);
  const body = { atMs: next.atMs, outcome, next: nextOf(coming(clockwork, next.atMs)), instance: instanceAt(live, next.atMs) };
  ctx.append(live, { kind: EventKind.scheduleFired, body }, cause);
}

/** A zone may be unknown on one machine and known on the next: a schedule waits for that, and nothing is lost but time. */
const isZoneKnown = (ctx: ShardContext, { zone }: ScheduleSpec) => knowsZone(ctx.zones, zone, ctx.nowMs);

/** What an instant comes to that is due now. */
function outcomeNow({ run: { schedule, pending } }: LiveRun): InstantOutcome {
  const ahead = { live: pending.size, waiting: schedule?.waiting.length ?? 0 };
  return outcomes[decideOverlap(schedule?.config?.policy?.overlap ?? 0, ahead)];
}

const nextOf = (next: ScheduleNext | undefined): ScheduleNext => next ?? { atMs: 0, dueMs: 0 };

/** `nightly-2026-03-29T01:00:00Z`. */
const instanceAt = ({ id }: LiveRun, atMs: number) => `${instanceOf(id)}-${new Date(atMs).toISOString().replace(".000Z", "Z")}`;

type Asked = Extract<Command, { kind: "schedule" }>;

export function onSchedule(ctx: ShardContext, request: RequestId, identity: Identity, { run: id, ask }: Asked): void {
  const partition = schedulePartition(id);
  const live = ask.kind === "create" ? ctx.findOrCreate(partition) : ctx.find(partition);
  if (live === undefined || (ask.kind !== "create" && !isLive(live.run))) {
    return reject(ctx, request, {
      reject: "SCHEDULE_NOT_FOUND",
      message: `Cannot ${verbs[ask.kind]} schedule ${id}: there is no such schedule`,
    });
  }
  const done = decide(ctx, live, identity, ask);
  if (typeof done === "string") {
    const reason = ask.kind === "create" && isLive(live.run) ? "SCHEDULE_EXISTS" : "BAD_REQUEST";
    return reject(ctx, request, { reject: reason, message: `Cannot ${verbs[ask.kind]} schedule ${id}: ${done}` }, live);
  }
  const next = live.run.schedule?.next ?? nextOf(undefined);
  respond(ctx, request, live, { kind: "scheduled", answer: { next, instance: "", outcome: 0, count: 0, ...done } });
}

const verbs: Readonly<Record<ScheduleCommand["kind"], string>> = {
  create: "create",
  update: "update",
  pause: "pause",
  resume: "resume",
  trigger: "trigger",
  backfill: "backfill",
  delete: "delete",
  unknown: "change",
};

/** Appends what is asked for; or says why not. */
function decide(ctx: ShardContext, live: LiveRun, identity: Identity, ask: ScheduleCommand): Partial<ScheduleReply> | string {
  switch (ask.kind) {
    case "create":
      return create(ctx, live, identity, ask.value);
    case "update":
      return update(ctx, live, identity, ask.value);
    case "pause":
      if (live.run.schedule?.paused === true) return {};
      ctx.append(live, { kind: EventKind.schedulePaused, body: ask.value }, identity);
      return {};
    case "resume":
      return resume(ctx, live, identity, ask.value.reason);
    case "trigger":
      return trigger(ctx, live, identity);
    case "backfill":
      return backfill(ctx, live, identity, ask.value);
    case "delete":
      ctx.append(live, { kind: EventKind.scheduleDeleted, body: ask.value }, identity);
      return {};
    case "unknown":
      return "this version does not know what is asked";
  }
}

/** What the schedule fires by from now on; or why it can't be. */
function plan(
  ctx: ShardContext,
  live: LiveRun,
  config: ScheduleConfig | undefined,
): { readonly config: ScheduleConfig; readonly next: ScheduleNext } | string {
  const spec = config?.spec;
  if (config === undefined || spec === undefined) return "it says no time: give a cron expression, an interval or an instant";
  const problem = specProblem(spec, ctx.zones, ctx.nowMs);
  if (problem !== undefined) return problem;
  return { config, next: nextOf(coming(clockworkOf(ctx, live, spec), ctx.nowMs)) };
}

function create(
  ctx: ShardContext,
  live: LiveRun,
  identity: Identity,
  { config, paused }: ScheduleCreation,
): Partial<ScheduleReply> | string {
  // Sent again, it is the same one.
  if (isLive(live.run) && isSame(live.run.schedule?.config, config)) return {};
  if (isLive(live.run)) return "there is one of that id; update it, or delete it first";
  const planned = plan(ctx, live, config);
  if (typeof planned === "string") return planned;
  const body = { generation: live.run.generation + 1, ...planned, paused, reason: paused ? "created so" : "" };
  ctx.append(live, { kind: EventKind.scheduleCreated, body }, identity);
  return {};
}

function isSame(one: ScheduleConfig | undefined, other: ScheduleConfig | undefined): boolean {
  return bytesEqual(toBytes(encodeScheduleConfig, one ?? {}), toBytes(encodeScheduleConfig, other ?? {}));
}

function update(ctx: ShardContext, live: LiveRun, identity: Identity, config: ScheduleConfig): Partial<ScheduleReply> | string {
  const planned = plan(ctx, live, config);
  if (typeof planned === "string") return planned;
  ctx.append(live, { kind: EventKind.scheduleUpdated, body: planned }, identity);
  return {};
}

function resume(ctx: ShardContext, live: LiveRun, identity: Identity, reason: string): Partial<ScheduleReply> | string {
  const { schedule } = live.run;
  if (schedule?.paused !== true) return {};
  if (schedule.config?.spec === undefined || !isZoneKnown(ctx, schedule.config.spec)) return "this node does not know its time zone";
  const next = nextOf(coming(clockworkOf(ctx, live, schedule.config.spec), ctx.nowMs));
  ctx.append(live, { kind: EventKind.scheduleResumed, body: { reason, next } }, identity);
  return {};
}

const clockworkOf = (ctx: ShardContext, live: LiveRun, spec: Clockwork["spec"]): Clockwork => ({ spec, zones: ctx.zones, id: live.id });

function trigger(ctx: ShardContext, live: LiveRun, identity: Identity): Partial<ScheduleReply> {
  const atMs = ctx.nowMs;
  // Two triggers of one millisecond are two runs.
  const instance = `${instanceAt(live, atMs)}-${live.chain.size}`;
  const outcome = outcomeNow(live);
  ctx.append(live, { kind: EventKind.scheduleTriggered, body: { atMs, outcome, instance } }, identity);
  return { instance, outcome };
}

function backfill(
  ctx: ShardContext,
  live: LiveRun,
  identity: Identity,
  { fromMs, toMs, atOnce }: ScheduleBackfill,
): Partial<ScheduleReply> | string {
  const { schedule } = live.run;
  const spec = schedule?.config?.spec;
  if (schedule === undefined || spec === undefined || !isZoneKnown(ctx, spec)) return "this node does not know its time zone";
  if (toMs <= fromMs) return "the time to fill ends before it begins";
  if (toMs > ctx.nowMs) return "the time to fill ends in the future";
  const max = limits.scheduleWaitingMax - schedule.waiting.length;
  const past = { ...spec, fromMs: Math.max(spec.fromMs, fromMs), untilMs: spec.untilMs === 0 ? toMs : Math.min(spec.untilMs, toMs) };
  const found = fires(past, ctx.zones, fromMs - 1, max + 1);
  if (found.length === 0) return "no instant of it is in the time to fill";
  if (found.length > max) return `more than ${max} instants are in the time to fill: fill it in parts`;
  const instant = found.map(({ atMs }) => ({ atMs, instance: instanceAt(live, atMs), atOnce }));
  ctx.append(live, { kind: EventKind.scheduleBackfilled, body: { instant, fromMs, toMs, atOnce } }, identity);
  return { count: instant.length };
}
