/**
 * Idempotency keys of activities: of all operations of a namespace that call one activity with one
 * key, one is executed, and all are given its result.
 *
 * A key is a partition of its own, a run without code that lives by messages alone. An operation
 * claims its key; the key grants it, has it wait, or tells it the result that there is. Who holds a
 * key tells it the result, or releases it. Only successes are kept, for a stated time.
 *
 * Invariants: a key has a holder while it is not free; it has a result or claims that wait, never
 * both. An operation that claims a key is not offered to workers before it is granted, and whatever
 * closes it tells the key, unless the key itself did.
 */
import { bytesEqual, limits, type Partition, type Reason } from "#core/base";
import {
  type ActivityCancelled,
  type ActivityCompleted,
  type ActivityFailed,
  EventKind,
  type InboxTaken,
  type KeyClaim,
  type KeyClaimant,
  type KeyClaimed,
  KeyOutcome,
  type KeyReleased,
  type KeySettled,
  type KeyState,
  type Message,
  MessageKind,
  RunStatus,
} from "#proto";
import type { EventOf, RunEvent } from "./event.ts";
import { failureOf } from "./failure.ts";
import { blankMessage, enqueue, nextNumber, owe } from "./outbox.ts";
import { markAsker } from "./sender.ts";
import { type EventPlace, isOpen, kept, type Operation, type Run } from "./state.ts";

export type KeyEvent = EventOf<"keyClaimed" | "keySettled" | "keyReleased" | "keyForgotten">;

/** Whether the event is one that only a key has. */
export const isOfKey = (event: RunEvent): event is KeyEvent => event.kind >= EventKind.keyClaimed && event.kind <= EventKind.keyForgotten;

/** Taken without an event, as `decideTake` has it. */
interface Taken {
  readonly refusal: Reason | undefined;
}

const nothing: Taken = { refusal: undefined };

/* What an operation tells its key. */

/** What goes into the event of an activity that claims key `to`. */
export const decideClaim = (run: Run, to: Partition, inputHash: Uint8Array): KeyClaim => ({ to, number: nextNumber(run, to), inputHash });

/** The operation, which the run has, claims its key. */
export function applyClaim(run: Run, { op, name, options }: Operation, { to, inputHash }: KeyClaim): void {
  const claim = { activity: name, key: options?.idempotencyKey ?? "", inputHash: inputHash.slice() };
  enqueue(run, to as Partition, { kind: MessageKind.claim, op, generation: run.generation, claim });
}

type OverBody = ActivityCompleted | ActivityFailed | ActivityCancelled;

/** An activity is over: its key is told, where it was not the key that said so. */
export function applyOver(run: Run, event: EventOf<"activityCompleted" | "activityFailed" | "activityCancelled">): void {
  const { op }: OverBody = event.body;
  const o = run.pending.get(op);
  run.pending.delete(op);
  if (o === undefined || o.key === "") return;
  if (event.kind === EventKind.activityFailed && event.body.refused) return;
  if (event.kind !== EventKind.activityCompleted) {
    release(run, o, event.kind === EventKind.activityFailed ? "it failed" : "it was withdrawn");
    return;
  }
  const { from, number, result } = event.body;
  if (from !== "") return markAsker(run, { from, number });
  enqueue(run, o.key, { kind: MessageKind.keyDone, op, generation: run.generation, payload: kept(result) });
}

/** Number of the message by which the operation's end is told to its key; 0 = it has none. */
export const toldNumber = (run: Run, { key }: Operation): number => (key === "" ? 0 : nextNumber(run, key));

/** The run's end is decided: what it claimed is for others. */
export function releaseKeys(run: Run): void {
  for (const o of run.pending.values()) if (o.key !== "") release(run, o, "its run ended");
}

function release(run: Run, { key, op }: Operation, reason: string): void {
  if (key !== "") enqueue(run, key, { kind: MessageKind.keyReleased, op, generation: run.generation, reason });
}

/* What a key tells an operation. */

export function takeGranted(run: Run, from: Partition, message: Message): RunEvent | Taken {
  const o = claiming(run, from, message);
  if (o === undefined || o.granted) return nothing;
  return { kind: EventKind.activityGranted, body: { op: o.op, from, number: message.number } };
}

/** It is executed no more: somebody else did. */
export function takeKeyResult(run: Run, from: Partition, message: Message): RunEvent | Taken {
  const o = claiming(run, from, message);
  if (o === undefined) return nothing;
  const { number, payload: result, by } = message;
  const body = { op: o.op, attempt: o.attempt, result, worker: "", told: 0, from, number, by };
  return { kind: EventKind.activityCompleted, body };
}

/** The operation that a key's message is about; undefined where it is over. */
function claiming(run: Run, from: Partition, { op, generation }: Pick<Message, "op" | "generation">): Operation | undefined {
  const o = run.pending.get(op);
  return isOpen(run) && run.generation === generation && o?.key === from ? o : undefined;
}

export function applyGranted(run: Run, { op, from, number }: { op: number; from: string; number: number }): void {
  const o = run.pending.get(op);
  if (o !== undefined) o.granted = true;
  markAsker(run, { from, number });
}

/**
 * A grant was taken that changed nothing. Where nobody wants it, it is given back: the operation told its key
 * so as it ended, but of a run that was restored to a moment before, the key would hear nothing.
 */
export function applyGrantTaken(run: Run, { op, generation, sender }: InboxTaken): void {
  if (claiming(run, sender as Partition, { op, generation }) !== undefined) return;
  enqueue(run, sender as Partition, { kind: MessageKind.keyReleased, op, generation, reason: "it is not open" });
}

/** What the code of an operation is told whose claim was refused. */
export function claimRefused({ op, name, attempt, options }: Operation, refusal: string): RunEvent {
  const key = JSON.stringify(options?.idempotencyKey ?? "");
  const doing = `Cannot execute activity ${name} with idempotency key ${key}`;
  const [type, why] =
    refusal === "IDEMPOTENCY_CONFLICT"
      ? ["IdempotencyKeyReusedError", "that key was used with other arguments"]
      : refusal === "BUFFER_FULL"
        ? ["LimitError", `${limits.keyWaitersMax} operations wait for what holds it, and no more may`]
        : [refusal, `its claim was refused: ${refusal}`];
  const failure = failureOf(type, `${doing}: ${why}`, { nonRetryable: true });
  return { kind: EventKind.activityFailed, body: { op, attempt, failure, worker: "", refused: true } };
}

/* The key. */

/** What a key makes of a message. Undefined: a later version knows what it means. */
export function decideTakeOfKey(run: Run, from: Partition, message: Message, keepMs: number): RunEvent | Taken | undefined {
  switch (message.kind) {
    case MessageKind.claim:
      return takeClaim(run, from, message);
    case MessageKind.keyDone:
      return takeDone(run, from, message, keepMs);
    case MessageKind.keyReleased:
      return takeReleased(run, from, message);
    default:
      return undefined;
  }
}

function takeClaim({ key }: Run, from: Partition, { claim, number, op, generation }: Message): RunEvent | Taken {
  if (claim === undefined) return { refusal: "BAD_REQUEST" };
  const body = { from, number, op, generation, ...claim };
  const claimed = (outcome: KeyOutcome): RunEvent => ({ kind: EventKind.keyClaimed, body: { ...body, outcome } });
  if (key === undefined) return claimed(KeyOutcome.granted);
  if (!isSame(key, claim)) return { refusal: "IDEMPOTENCY_CONFLICT" };
  if (key.forgetAtMs > 0) return claimed(KeyOutcome.settled);
  if (isOf(key.holder, body)) return claimed(KeyOutcome.granted);
  if (key.waiting.length >= limits.keyWaitersMax && !waits(key, body)) return { refusal: "BUFFER_FULL" };
  return claimed(KeyOutcome.waits);
}

const isSame = (a: KeyState, b: Pick<KeyState, "activity" | "key" | "inputHash">): boolean =>
  a.activity === b.activity && a.key === b.key && bytesEqual(a.inputHash, b.inputHash);

/** The operation that a key's event or message is about. */
type Claiming = Pick<KeyClaimed, "from" | "op" | "generation">;

const isOf = (claimant: KeyClaimant | undefined, { from, op, generation }: Claiming): boolean =>
  claimant?.partition === from && claimant.op === op && claimant.generation === generation;

const waits = ({ waiting }: KeyState, one: Claiming): boolean => waiting.some((each) => isOf(each, one));

/** The first success counts; after a restore, two may execute that did not know of each other. */
function takeDone({ key }: Run, from: Partition, { number, op, generation, payload: result }: Message, keepMs: number): RunEvent | Taken {
  const one = { from, op, generation };
  if (key === undefined || key.forgetAtMs > 0 || !(isOf(key.holder, one) || waits(key, one))) return nothing;
  return { kind: EventKind.keySettled, body: { ...one, number, result, keepMs } };
}

function takeReleased({ key }: Run, from: Partition, { number, op, generation, reason }: Message): RunEvent | Taken {
  const one = { from, op, generation };
  if (key === undefined || key.forgetAtMs > 0 || !(isOf(key.holder, one) || waits(key, one))) return nothing;
  return { kind: EventKind.keyReleased, body: { ...one, number, reason } };
}

/** The event by which a key is free again that kept its result for long enough; undefined: it is not. */
export function decideForgotten({ key }: Run, nowMs: number): RunEvent | undefined {
  if (key === undefined || key.forgetAtMs === 0 || key.forgetAtMs > nowMs) return undefined;
  return { kind: EventKind.keyForgotten, body: {} };
}

export function applyKey(run: Run, event: KeyEvent, at: EventPlace): void {
  switch (event.kind) {
    case EventKind.keyClaimed:
      return applyClaimed(run, event.body, at);
    case EventKind.keySettled:
      return applySettledKey(run, event.body, at.timeMs);
    case EventKind.keyReleased:
      return applyReleased(run, event.body, at.timeMs);
    case EventKind.keyForgotten:
      return free(run, at.timeMs);
  }
}

function applyClaimed(run: Run, body: KeyClaimed, at: EventPlace): void {
  markAsker(run, body);
  const claimant = claimantOf(body);
  const key = run.key ?? begin(run, body, at);
  if (body.outcome === KeyOutcome.granted) grant(run, claimant);
  else if (body.outcome === KeyOutcome.settled) tell(run, key, claimant);
  else if (!waits(key, body)) run.key = { ...key, waiting: [...key.waiting, claimant] };
}

const claimantOf = ({ from, generation, op }: Claiming): KeyClaimant => ({ partition: from, generation, op });

function begin(run: Run, body: KeyClaimed, { seq, timeMs }: EventPlace): KeyState {
  run.generation++;
  run.type = body.activity;
  run.status = RunStatus.running;
  run.startedMs = timeMs;
  run.closedMs = 0;
  run.firstSeq = seq;
  const { activity, key } = body;
  const inputHash = body.inputHash.slice();
  run.key = { activity, key, inputHash, holder: claimantOf(body), waiting: [], forgetAtMs: 0, result: undefined };
  return run.key;
}

function grant(run: Run, { partition, op, generation }: KeyClaimant): void {
  enqueue(run, partition as Partition, { kind: MessageKind.granted, op, generation });
}

/** The claimant is owed the result, as those who wait for a run's are. */
function tell(run: Run, { result, holder }: KeyState, { partition, op, generation }: KeyClaimant): void {
  const to = { partition: partition as Partition, op, generation };
  owe(run, to, { generation: run.generation, status: RunStatus.completed, result, failure: undefined, by: holder });
}

function applySettledKey(run: Run, body: KeySettled, timeMs: number): void {
  markAsker(run, body);
  if (run.key === undefined) return;
  const { holder, waiting } = run.key;
  const key: KeyState = { ...run.key, holder: claimantOf(body), waiting: [], result: kept(body.result), forgetAtMs: timeMs + body.keepMs };
  run.key = key;
  // After a restore, it may be another one than its holder that was executed.
  for (const one of holder === undefined ? waiting : [holder, ...waiting]) if (!isOf(one, body)) tell(run, key, one);
}

function applyReleased(run: Run, body: KeyReleased, timeMs: number): void {
  markAsker(run, body);
  const { key } = run;
  if (key === undefined) return;
  const waiting = key.waiting.filter((one) => !isOf(one, body));
  if (!isOf(key.holder, body)) {
    run.key = { ...key, waiting };
    return;
  }
  const [next, ...rest] = waiting;
  if (next === undefined) return free(run, timeMs);
  run.key = { ...key, holder: next, waiting: rest };
  grant(run, next);
}

/** Nothing is known of it: whoever claims it next executes the activity. */
function free(run: Run, timeMs: number): void {
  run.key = undefined;
  run.status = RunStatus.completed;
  run.closedMs = timeMs;
}

/* After a restore. */

/** Operations of the run that claim the key, and that it neither has in hand nor will hear of or answer. */
export function unheardClaims(run: Run, key: { readonly partition: Partition; readonly run: Run }, self: Partition): Operation[] {
  if (!isOpen(run)) return [];
  const { taken = 0, refused = [] } = key.run.inbox.get(self) ?? {};
  const seen = run.inbox.get(key.partition)?.taken ?? 0;
  const asked = run.outbox.get(key.partition)?.messages ?? [];
  const coming = (key.run.outbox.get(self)?.messages ?? []).filter(({ number }) => number > seen);
  return [...run.pending.values()].filter((o) => {
    if (o.key !== key.partition) return false;
    const isAbout = ({ op, generation }: Message) => op === o.op && generation === run.generation;
    const claim = asked.find((message) => message.kind === MessageKind.claim && isAbout(message));
    if (claim !== undefined && (claim.number > taken || refused.some(({ number }) => number === claim.number))) return false;
    if (coming.some(isAbout)) return false;
    const one = { from: self, op: o.op, generation: run.generation };
    const state = key.run.key;
    if (state === undefined || state.forgetAtMs > 0) return true;
    return !(o.granted ? isOf(state.holder, one) : waits(state, one));
  });
}

/** The claim of such an operation, as the key is to take it; `inputHash` is of the activity's name and input. */
export function claimAgain(run: Run, { op, name, options }: Operation, inputHash: Uint8Array): Message {
  const claim = { activity: name, key: options?.idempotencyKey ?? "", inputHash };
  return { ...blankMessage, kind: MessageKind.claim, op, generation: run.generation, claim };
}

/** Claims that the key has of partition `self`, which knows nothing of them and will say nothing more of them. */
export function strayClaims(run: Run, key: { readonly partition: Partition; readonly run: Run }, self: Partition): KeyClaimant[] {
  const state = key.run.key;
  if (state === undefined || state.forgetAtMs > 0) return [];
  const taken = key.run.inbox.get(self)?.taken ?? 0;
  const coming = (run.outbox.get(key.partition)?.messages ?? []).filter(({ number }) => number > taken);
  const holders = [state.holder, ...state.waiting].filter((one): one is KeyClaimant => one?.partition === self);
  return holders.filter(
    (one) =>
      claiming(run, key.partition, one) === undefined &&
      !coming.some((message) => message.op === one.op && message.generation === one.generation),
  );
}

export const decideStrayReleased = ({ partition, op, generation }: KeyClaimant): RunEvent => ({
  kind: EventKind.keyReleased,
  body: { from: partition, number: 0, op, generation, reason: "its run was restored to a moment before" },
});
