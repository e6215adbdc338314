/**
 * What must hold of every event when it is committed, given everything before it in its partition.
 */
import { bytesEqual, isCarriedByCore, isKey, limits, toHex } from "#core/base";
import type { RunEvent } from "#core/run";
import { EventKind as Kind, type LeaseGranted } from "#proto";
import type { PartitionJournal } from "../journal.ts";
import { type JournalEvent, type OpModel, openingKinds, type RunModel, terminalKinds, withdrawingKinds } from "../model.ts";
import { claim } from "../violation.ts";
import { checkContention } from "./contention.ts";
import { checkUnwind } from "./unwind.ts";

/** Log place of the record that holds the partition's event before. */
export interface Previous {
  readonly shard: number;
  readonly index: number;
}

/** I9: what a leader appends is not ahead of every clock of the cluster by more than the counter's overflow. */
export function checkAppended(e: JournalEvent, clockBoundMs: number): void {
  const told = () => `${e.partition} seq ${e.seq} is at ${e.timeMs}, the highest clock has reached ${clockBoundMs}`;
  claim("hlcStrictlyIncreases", e.timeMs <= clockBoundMs + 10, told);
}

export function checkEvent(at: PartitionJournal, e: JournalEvent, previous: Previous): void {
  chainAndMmrUnbroken(at, e, previous);
  hlcStrictlyIncreases(at.model, e);
  // What else holds of schedules, channels and keys is in files of their own.
  if (isKey(e.partition)) return;
  if (isCarriedByCore(e.partition)) return operationsOnce(at.model, e);
  exactlyOneTerminalEvent(at.model, e);
  enqueueIdempotent(at.model, e);
  signalsOncePerId(at.model, e);
  checkContention(at.model, e);
  checkUnwind(at.model, e);
  operationsOnce(at.model, e);
  timersOnceNeverEarly(at.model, e);
  staleTokenNeverCommits(at.model, e);
  retriesFollowPolicy(at.model, e);
  cancelDelivered(at.model, e);
  pausedIsHeld(at.model, e);
  streamStands(at.model, e);
}

/** Each event carries its place and its predecessor's hash; its record names the record before. */
export function chainAndMmrUnbroken(at: PartitionJournal, e: JournalEvent, previous: Previous): void {
  const name = "chainAndMmrUnbroken";
  const before = at.events.at(-1);
  const place = `${e.partition} seq ${e.seq}`;
  claim(name, e.seq === at.events.length, () => `${place}, want ${at.events.length}`);
  claim(
    name,
    bytesEqual(e.prevHash, before?.hash ?? new Uint8Array(32)),
    () => `${place} follows ${toHex(e.prevHash)}, want ${toHex(before?.hash ?? new Uint8Array(32))}`,
  );
  claim(
    name,
    previous.index === (before?.index ?? 0) && (before === undefined || previous.shard === before.shard),
    () => `${place} names record ${previous.shard}/${previous.index} as its predecessor's, want ${before?.shard}/${before?.index ?? 0}`,
  );
}

/** I9: time strictly increases in a partition, whoever led when. */
export function hlcStrictlyIncreases(model: RunModel, e: JournalEvent): void {
  const name = "hlcStrictlyIncreases";
  const { last } = model;
  const follows = last === undefined || e.timeMs > last.timeMs || (e.timeMs === last.timeMs && e.logical > last.logical);
  claim(
    name,
    follows,
    () => `${e.partition} seq ${e.seq} is at ${e.timeMs}.${e.logical}, its predecessor at ${last?.timeMs}.${last?.logical}`,
  );
}

/** I3: a generation ends once, nothing follows its end, and the next one begins only behind it. */
export function exactlyOneTerminalEvent(model: RunModel, e: JournalEvent): void {
  const name = "exactlyOneTerminalEvent";
  if (e.event.kind === Kind.runStarted) {
    claim(name, !model.isLive, () => `${e.partition} seq ${e.seq} starts while generation ${model.generation} is live`);
    claim(
      name,
      e.event.body.generation === model.generation + 1,
      () => `${e.partition} starts generation ${JSON.stringify(e.event.body)} behind ${model.generation}`,
    );
    return;
  }
  const what = terminalKinds.has(e.kind) ? "ends it" : "is appended";
  claim(name, model.isLive, () => `${e.partition} seq ${e.seq} of kind ${e.kind} ${what} after generation ${model.generation} ended`);
}

/** I12: a key starts one generation; a name made for one start never gets a second. */
export function enqueueIdempotent(model: RunModel, e: JournalEvent): void {
  if (e.event.kind !== Kind.runStarted && e.event.kind !== Kind.startQueued) return;
  const { idempotencyKey } = e.event.body;
  const ticket = e.event.kind === Kind.runStarted ? e.event.body.ticket : 0;
  const waiting = model.queue.find(({ key }) => key === idempotencyKey && key !== "");
  const known =
    idempotencyKey === "" ? undefined : (model.keys.get(idempotencyKey) ?? (waiting && waiting.ticket !== ticket ? 0 : undefined));
  claim("enqueueIdempotent", known === undefined, () => `${e.partition} starts again with key ${idempotencyKey} of generation ${known}`);
  claim("enqueueIdempotent", !e.partition.includes(":wf_") || model.generation === 0, () => `${e.partition} starts a second time`);
}

/** I17: a signal that a client sends again, here or there, is received once. */
export function signalsOncePerId(model: RunModel, e: JournalEvent): void {
  if ((e.event.kind !== Kind.signalReceived && e.event.kind !== Kind.signalQueued) || e.event.body.id === "") return;
  const { id } = e.event.body;
  // It was received when it began to wait.
  if (e.issuer === "core" && model.held[0] === id) return;
  claim("signalsOncePerId", !model.signalIds.includes(id), () => `${e.partition} receives ${id} twice, again at seq ${e.seq}`);
}

const closing: ReadonlySet<number> = new Set([
  Kind.activityCompleted,
  Kind.activityFailed,
  Kind.activityRetried,
  Kind.activityCancelled,
  Kind.timerFired,
  Kind.timerCancelled,
  Kind.signalWaitCancelled,
  Kind.signalSettled,
  Kind.signalSendCancelled,
  Kind.resultReceived,
  Kind.resultWaitCancelled,
  Kind.childStarted,
  Kind.childEnded,
  Kind.channelSendSettled,
  Kind.channelSendCancelled,
  Kind.channelReceived,
  Kind.channelWaitCancelled,
  Kind.compensationCompleted,
  Kind.compensationRetried,
  Kind.compensationFailed,
]);

/** Operations are numbered without gaps, and each is finished at most once. */
export function operationsOnce(model: RunModel, e: JournalEvent): void {
  const { event } = e;
  if (openingKinds.has(event.kind)) {
    const { op } = event.body as { op: number };
    claim("operationsOnce", op === model.ops.size + 1, () => `${e.partition} opens operation ${op} behind ${model.ops.size}`);
  } else if (closing.has(event.kind)) {
    const o = openOf(model, event.body as { op: number });
    claim(
      "operationsOnce",
      o !== undefined,
      () => `${e.partition} seq ${e.seq} of kind ${e.kind}: operation ${(event.body as { op: number }).op} is not open`,
    );
  }
}

const openOf = (model: RunModel, body: { op: number }): OpModel | undefined => {
  const o = model.ops.get(body.op);
  return o?.closedBy === 0 ? o : undefined;
};

/** I5: a timer fires when it is open and due, and what else time causes is due too. */
export function timersOnceNeverEarly(model: RunModel, e: JournalEvent): void {
  const name = "timersOnceNeverEarly";
  const { event } = e;
  if (event.kind === Kind.timerStarted) {
    const { dueMs, durationMs } = event.body;
    claim(
      name,
      dueMs >= e.timeMs + durationMs,
      () => `${e.partition} seq ${e.seq}: a timer of ${durationMs} ms from ${e.timeMs} is due at ${dueMs}`,
    );
  } else if (event.kind === Kind.timerFired) {
    const o = openOf(model, event.body);
    claim(
      name,
      o !== undefined && o.opened.kind === Kind.timerStarted,
      () => `${e.partition} fires operation ${event.body.op}, which is no open timer`,
    );
    claim(name, e.timeMs >= o.dueMs, () => `${e.partition} fires operation ${event.body.op} at ${e.timeMs}, due at ${o.dueMs}`);
  } else if (event.kind === Kind.runTimedOut) {
    const { deadlineAtMs } = model;
    claim(
      name,
      deadlineAtMs > 0 && e.timeMs >= deadlineAtMs,
      () => `${e.partition} passes its deadline at ${e.timeMs}, due at ${deadlineAtMs}`,
    );
  } else if ((event.kind === Kind.activityFailed || event.kind === Kind.activityRetried) && event.body.failure?.type === "TimeoutError") {
    const o = openOf(model, event.body);
    const earliest = o === undefined ? Number.POSITIVE_INFINITY : earliestTimeout(o);
    claim(
      name,
      e.timeMs >= earliest,
      () => `${e.partition} operation ${event.body.op} times out at ${e.timeMs}, at the earliest at ${earliest}`,
    );
  }
}

function earliestTimeout(o: OpModel): number {
  const { event } = o.opened;
  const options = event.kind === Kind.activityScheduled ? event.body.options : undefined;
  const whole = options?.scheduleToCloseMs || Number.POSITIVE_INFINITY;
  const attempt = Math.min(options?.startToCloseMs || Number.POSITIVE_INFINITY, options?.heartbeatMs || Number.POSITIVE_INFINITY);
  const begunMs = o.attempt === 1 ? o.opened.timeMs : o.dueMs;
  return Math.min(o.opened.timeMs + whole, begunMs + attempt);
}

/** Results of the simulator's activities say which delivery they are of. */
export interface ResultMark {
  readonly attempt: number;
  readonly delivery: number;
}

type Outcome = Extract<
  RunEvent,
  {
    kind: (typeof Kind)[
      | "activityCompleted"
      | "activityFailed"
      | "activityRetried"
      | "compensationCompleted"
      | "compensationFailed"
      | "compensationRetried"];
  }
>;
const outcomes: ReadonlySet<number> = new Set([
  Kind.activityCompleted,
  Kind.activityFailed,
  Kind.activityRetried,
  Kind.compensationCompleted,
  Kind.compensationFailed,
  Kind.compensationRetried,
]);
const isOutcome = (event: RunEvent): event is Outcome => outcomes.has(event.kind);

/** I4: what commits is of the newest delivery of the current attempt. */
export function staleTokenNeverCommits(model: RunModel, e: JournalEvent): void {
  const name = "staleTokenNeverCommits";
  const { event } = e;
  if (!isOutcome(event)) return;
  const o = openOf(model, event.body);
  claim(name, o !== undefined, () => `${e.partition} takes an outcome of operation ${event.body.op}, which is not open`);
  claim(
    name,
    event.body.attempt === o.attempt,
    () => `${e.partition} operation ${o.op} takes attempt ${event.body.attempt}, want ${o.attempt}`,
  );
  const mark = "result" in event.body ? event.body.result?.data : event.body.failure?.details?.data;
  if (mark === undefined || e.issuer === "core" || e.issuer === "key") return;
  const got = JSON.parse(new TextDecoder().decode(mark)) as ResultMark;
  const isNewest = got.attempt === o.attempt && got.delivery === o.delivery;
  claim(
    name,
    isNewest,
    () => `${e.partition} operation ${o.op} takes ${got.attempt}.${got.delivery}, newest is ${o.attempt}.${o.delivery}`,
  );
}

/** The lease is the next delivery of an attempt that is open. */
export function fitsLease(model: RunModel, lease: LeaseGranted): boolean {
  const o = model.ops.get(lease.op);
  return model.isLive && o?.closedBy === 0 && lease.attempt === o.attempt && lease.delivery === o.delivery + 1;
}

/** Leases of one attempt are numbered upwards. */
export function checkLease(model: RunModel, lease: LeaseGranted): void {
  const o = model.ops.get(lease.op);
  const { partition, op, attempt, delivery } = lease;
  claim(
    "staleTokenNeverCommits",
    fitsLease(model, lease),
    () => `${partition} operation ${op} is leased as ${attempt}.${delivery} behind ${o?.attempt}.${o?.delivery}, closed by ${o?.closedBy}`,
  );
}

/** Attempts end where the policy says, and wait at least as long as its shortest wait. */
export function retriesFollowPolicy(model: RunModel, e: JournalEvent): void {
  const { event } = e;
  if (event.kind !== Kind.activityRetried && event.kind !== Kind.compensationRetried) return;
  const opened = model.ops.get(event.body.op)?.opened.event;
  const retry =
    opened?.kind === Kind.activityScheduled || opened?.kind === Kind.compensationRegistered ? opened.body.options?.retry : undefined;
  const { attempt, failure, nextMs } = event.body;
  const most = retry?.attemptsMax ?? 0;
  claim(
    "retriesFollowPolicy",
    most === 0 || attempt < most,
    () => `${e.partition} operation ${event.body.op} goes on after attempt ${attempt} of ${most}`,
  );
  claim(
    "retriesFollowPolicy",
    failure?.nonRetryable !== true,
    () => `${e.partition} operation ${event.body.op} goes on after a failure that forbids it`,
  );
  const initial = retry === undefined ? 100 * 0.8 : retry.initialMs * (1 - retry.jitterMilli / 1000);
  const least = Math.min(initial, retry?.intervalMsMax ? retry.intervalMsMax * (1 - retry.jitterMilli / 1000) : initial);
  claim(
    "retriesFollowPolicy",
    nextMs + 1 >= e.timeMs + Math.floor(least) - 1,
    () => `${e.partition} operation ${event.body.op} waits from ${e.timeMs} to ${nextMs}, at least ${least}`,
  );
}

/** A run that was told of what follows its cancellation was told of that too, and never of one that is not in the log. */
export function cancelDelivered(model: RunModel, e: JournalEvent): void {
  const { cancel } = model;
  const said = endingOf(e);
  if (said === undefined) return;
  const wasTold = cancel !== undefined && said.seen >= cancel.seq;
  claim(
    "cancelDelivered",
    said.cancelSeen === wasTold,
    () => `${e.partition} ends having seen a cancellation: ${said.cancelSeen}, was told of it: ${wasTold}`,
  );
}

/** Ends that the code itself reaches. */
const ownEnds: ReadonlySet<number> = new Set([Kind.runCompleted, Kind.runFailed, Kind.runCancelled]);

/** A stream is connected where it was not, disconnected where it was and long enough behind that, and refuses chunks in between only. */
export function streamStands(model: RunModel, e: JournalEvent): void {
  const name = "streamStands";
  const { event } = e;
  const { stream } = model;
  const place = () => `${e.partition} seq ${e.seq} of kind ${e.kind}, its stream stands as of seq ${stream?.seq}, kind ${stream?.kind}`;
  if (event.kind === Kind.chunkYielded) claim(name, event.body.refused === (stream?.kind === Kind.streamDisconnected), place);
  if (event.kind === Kind.streamConnected) claim(name, stream?.kind !== Kind.streamConnected, place);
  if (event.kind !== Kind.streamDisconnected) return;
  claim(name, stream?.kind === Kind.streamConnected && e.timeMs - stream.timeMs >= limits.streamGraceMs, place);
}

/** The code of a paused run does nothing: it opens no operation, withdraws none, and does not end. */
export function pausedIsHeld(model: RunModel, e: JournalEvent): void {
  if (model.paused === undefined) return;
  const isOwn = openingKinds.has(e.kind) || withdrawingKinds.has(e.kind) || ownEnds.has(e.kind);
  claim(
    "pausedIsHeld",
    !isOwn,
    () => `${e.partition} seq ${e.seq} of kind ${e.kind} is appended while it is paused since ${model.paused?.seq}`,
  );
}

/** What a workflow's own end says. */
interface Said {
  readonly seen: number;
  readonly cancelSeen: boolean;
}

function endingOf(e: JournalEvent): Said | undefined {
  const { event } = e;
  if (event.kind === Kind.runCompleted) return JSON.parse(new TextDecoder().decode(event.body.result?.data)) as Said;
  if (event.kind === Kind.runCancelled) return JSON.parse(event.body.reason) as Said;
  if (event.kind === Kind.runFailed) return JSON.parse(event.body.failure?.message ?? "{}") as Said;
  return undefined;
}
