/**
 * A shard on the bench: a machine, a log whose flush is a directive, and effects as text.
 *
 * Handles are words: workers by their id, runs by their address, requests by number. What waits
 * for a commit is shown with its index and leaves with `flush`.
 */
import { asRequestId, asSessionId, type Effect, type Partition, type RunId, type SessionId } from "#core/base";
import { decodeBody, type RunEvent } from "#core/run";
import type { Command, Input, ShardMachine } from "#core/shard";
import {
  type CommandInit,
  decodeEvent,
  decodeRecord,
  decodeWorkerItem,
  type Envelope,
  EventKind,
  encodeWorkerItem,
  fromBytes,
  type Record as LogBody,
  toBytes,
  type WorkerItem,
  type WorkerItemInit,
} from "#proto";
import { joining, lead, makeShard, RecordLog, StateTable, soleShard } from "../../shard-maker.ts";
import { answerText, envelopeText, factLines } from "./message-words.ts";

/** All times are told from here on. */
export const epochMs = 1_800_000_000_000;
const text = new TextEncoder();

type Untimed = Input extends infer I ? (I extends { readonly nowMs: number } ? Omit<I, "nowMs"> : never) : never;

export class ShardBench {
  nowMs = epochMs;
  readonly sessions = new Map<string, SessionId>();
  private readonly log = new RecordLog();
  durable = 0;
  private readonly saved = new StateTable();
  private machine: ShardMachine = makeShard({ log: this.log, states: this.saved });
  private epoch = 1;
  private gated: { readonly index: number; readonly effect: Effect }[] = [];
  private readonly lastActivate = new Map<string, { readonly session: SessionId; readonly handle: number; readonly activation: number }>();
  private readonly handles = new Map<string, string>();
  private armedMs = Number.POSITIVE_INFINITY;
  private nextSession = 1;
  private nextRequest = 1;
  private lastQuery = 0;
  /** Envelopes that are on their way, and answers, oldest first. */
  private readonly mail: Envelope[] = [];
  private readonly answers: Extract<Untimed, { kind: "envelope-answered" }>[] = [];
  private readonly envelopes = new Map<number, Envelope>();

  constructor() {
    // Its first record says who leads. A leader begins above the millisecond in which it was made.
    this.told(0, lead(this.machine, { nowMs: epochMs - 1 }));
    this.durable = this.log.lastIndex;
  }

  step(input: Untimed): string {
    const before = this.log.lastIndex;
    const effects = this.machine.step({ ...input, nowMs: this.nowMs } as Input);
    return this.told(before, effects);
  }

  /** What was appended, then what leaves now, then what waits. */
  private told(before: number, effects: readonly Effect[]): string {
    const lines = this.log.records.slice(before).flatMap((body, i) => recordLines(before + i + 1, body));
    for (const effect of effects) {
      const { after } = effect;
      if (effect.kind === "arm-timer") this.armedMs = effect.atMs;
      else if (after.until === "committed" && after.index > this.durable) {
        this.gated.push({ index: after.index, effect });
        lines.push(`(${this.effectLine(effect)}) after ${after.index}`);
      } else lines.push(this.leaves(effect));
    }
    return lines.length === 0 ? "nothing" : lines.join("\n");
  }

  flush(): string {
    this.durable = this.log.lastIndex;
    const ready = this.gated;
    this.gated = [];
    return [`durable ${this.durable}`, ...ready.map(({ effect }) => this.leaves(effect))].join("\n");
  }

  /** Moves time on, ticking whenever a tick was asked for. */
  advance(ms: number): string {
    const untilMs = this.nowMs + ms;
    const lines: string[] = [];
    while (this.armedMs <= untilMs) {
      this.nowMs = Math.max(this.nowMs, this.armedMs);
      this.armedMs = Number.POSITIVE_INFINITY;
      const out = this.step({ kind: "tick" });
      if (out !== "nothing") lines.push(`at ${this.nowMs - epochMs}`, out);
    }
    this.nowMs = Math.max(this.nowMs, untilMs);
    return lines.length === 0 ? "nothing" : lines.join("\n");
  }

  /** The process dies: what is not durable is gone. Checkpoint and log make the shard anew. */
  crash(): string {
    this.log.records.length = this.durable;
    this.gated = [];
    this.sessions.clear();
    this.armedMs = Number.POSITIVE_INFINITY;
    const { machine, appliedIndex } = this.saved.open(soleShard, { log: this.log });
    this.machine = machine;
    this.log.feed(machine, appliedIndex + 1);
    const before = this.log.lastIndex;
    return this.told(before, lead(machine, { nowMs: this.nowMs, appliedIndex: before, epoch: ++this.epoch }));
  }

  checkpoint(): string {
    const taken = this.machine.capture(1000);
    if (taken.durableIndex > this.durable) return `may be saved once ${taken.durableIndex} is durable`;
    this.saved.save(soleShard, taken, this.machine.clockMs);
    this.machine.saved();
    const due = (ms: number) => (ms === 0 ? "at once" : ms === Number.POSITIVE_INFINITY ? "never" : `at ${ms - epochMs}`);
    return [`applied ${taken.appliedIndex}`, ...taken.rows.map((row) => `${row.partition} due ${due(row.dueMs)}`)].join("\n");
  }

  evict(): string {
    this.nowMs += 10_000;
    const out = this.told(this.log.lastIndex, this.machine.evictIdle(this.nowMs));
    return `${out}\nin memory ${this.machine.figures().residentRuns}`;
  }

  command(command: Command): string {
    const request = asRequestId(this.nextRequest++);
    const identity = { issuer: "local", subject: "ann", verified: false, causeSeq: 0 };
    return this.step({ kind: "command", request, identity, command });
  }

  join(
    worker: string,
    hello: { activities: string[]; slots: number; held: { run: string; op: number; attempt: number; delivery: number }[] },
  ): string {
    const session = asSessionId(this.nextSession++);
    this.sessions.set(worker, session);
    const held = hello.held.map((token) => ({ ...token, generation: 1, epoch: 0 }));
    return this.step(joining(session, this.nowMs, { workerId: worker, activities: hello.activities, activitySlots: hello.slots, held }));
  }

  session(worker: string): SessionId {
    const session = this.sessions.get(worker);
    if (session === undefined) throw new Error(`No worker ${worker} is connected`);
    return session;
  }

  fromWorker(worker: string, item: WorkerItemInit): WorkerItem & { session: SessionId } {
    return { ...fromBytes(decodeWorkerItem, toBytes(encodeWorkerItem, item)), session: this.session(worker) };
  }

  /** The answer to the latest activation of a run. */
  activated(run: string, answer: { commands: CommandInit[]; status: number; problem: string }): string {
    const last = this.lastActivate.get(run);
    if (last === undefined) return `${run} was never activated`;
    const { session, handle, activation } = last;
    const item = fromBytes(decodeWorkerItem, toBytes(encodeWorkerItem, { kind: "activated", value: { ...answer, handle, activation } }));
    return item.kind === "activated" ? this.step({ kind: "activated", session, message: item.value }) : "";
  }

  lastOf(run: string) {
    return this.lastActivate.get(run);
  }

  get asked(): number {
    return this.lastQuery;
  }

  describe(run: string): string {
    const partition = run.includes("/") ? run : `run/${run}`;
    const found = this.machine.describe(partition as Partition);
    if (found === undefined) return "no such run";
    const { summary, size, pending, queue } = found;
    const state = `generation ${summary?.generation} status ${summary?.status} size ${size}${summary?.note === "" ? "" : ` note ${summary?.note}`}${summary?.searchable === "{}" ? "" : ` searchable ${summary?.searchable}`}`;
    const waiting = queue.map((one) => `start ${one.ticket} waits${one.signals > 0 ? ` with ${one.signals} signals` : ""}`);
    return [state, ...waiting, ...pending.map((o) => `op ${o.op} ${o.name || "timer"} attempt ${o.attempt} waits for ${o.waitsFor}`)].join(
      "\n",
    );
  }

  /** The oldest envelope arrives; what is sent twice arrives and stays on its way. */
  deliver(twice: boolean): string {
    const envelope = twice ? this.mail[0] : this.mail.shift();
    if (envelope === undefined) return "no envelope is on its way";
    const request = asRequestId(this.nextRequest++);
    this.envelopes.set(request, envelope);
    return this.step({ kind: "envelope", request, envelope });
  }

  lose(): string {
    return this.mail.shift() === undefined && this.answers.shift() === undefined ? "nothing is on its way" : "ok";
  }

  /** The oldest answer arrives; with `refusal`, one that says only that the receiver can't be asked. */
  answered(refusal: string): string {
    if (refusal !== "") {
      const envelope = this.mail.shift();
      if (envelope === undefined) return "no envelope is on its way";
      const answer = { rejection: { reject: refusal as "NOT_LEADER", message: "as told" } };
      return this.step({ kind: "envelope-answered", from: envelope.from as Partition, to: envelope.to as Partition, answer });
    }
    const answer = this.answers.shift();
    return answer === undefined ? "no answer is on its way" : this.step(answer);
  }

  private leaves(effect: Effect): string {
    if (effect.kind === "send") this.mail.push(effect.envelope);
    if (effect.kind === "reply") this.noteAnswer(effect);
    return this.effectLine(effect);
  }

  private noteAnswer({ request, reply }: Extract<Effect, { kind: "reply" }>): void {
    const envelope = this.envelopes.get(request);
    if (envelope === undefined || reply.kind !== "enveloped") return;
    const { from, to } = envelope;
    this.answers.push({ kind: "envelope-answered", from: from as Partition, to: to as Partition, answer: reply.answer });
  }

  private workerOf(session: SessionId): string {
    return [...this.sessions].find(([, id]) => id === session)?.[0] ?? `session ${session}`;
  }

  private effectLine(effect: Effect): string {
    switch (effect.kind) {
      case "activate": {
        const run = effect.start?.run ?? this.handles.get(`${effect.session}.${effect.handle}`) ?? "?";
        this.remember(run, effect);
        return `activate ${this.workerOf(effect.session)} ${run}${effect.start === undefined ? "" : " from its start"}: ${effect.events.map((e) => kindName(fromBytes(decodeEvent, e).kind)).join(", ")}`;
      }
      case "replay": {
        const run = effect.partition.slice(4);
        this.remember(run, effect);
        return `replay ${this.workerOf(effect.session)} ${run} [${effect.firstSeq}, ${effect.endSeq})${effect.readOnly ? " to be read only" : ""}`;
      }
      case "task": {
        const { token, name, heartbeat } = effect;
        const progress = heartbeat === undefined ? "" : ` with progress ${JSON.stringify(new TextDecoder().decode(heartbeat.data))}`;
        return `task ${this.workerOf(effect.session)} ${token.run} op ${token.op} ${name} ${token.attempt}.${token.delivery}${progress}`;
      }
      case "cancel-task":
        return `cancel-task ${this.workerOf(effect.session)} ${effect.token.run} op ${effect.token.op} ${effect.token.attempt}.${effect.token.delivery}: ${effect.reason}`;
      case "query":
        this.lastQuery = effect.query;
        return `query ${this.workerOf(effect.session)} ${this.handles.get(`${effect.session}.${effect.handle}`)} ${effect.name}`;
      case "drop":
        return `drop ${this.workerOf(effect.session)} ${this.handles.get(`${effect.session}.${effect.handle}`)}`;
      case "reply":
        return `reply ${effect.request} ${replyLine(effect)}`;
      case "send":
        return envelopeText(effect.envelope);
      case "arm-timer":
        return `tick at ${effect.atMs - epochMs}`;
    }
  }

  private remember(run: string, at: { readonly session: SessionId; readonly handle: number; readonly activation: number }): void {
    this.handles.set(`${at.session}.${at.handle}`, run);
    this.lastActivate.set(run, at);
  }
}

const kindNames = new Map(Object.entries(EventKind).map(([name, kind]) => [kind as number, name]));
const kindName = (kind: number) => kindNames.get(kind) ?? `kind ${kind}`;

function recordLines(index: number, body: Uint8Array): string[] {
  const record: LogBody = fromBytes(decodeRecord, body);
  const lines = record.event.map((bytes) => {
    const event = fromBytes(decodeEvent, bytes);
    const decoded = decodeBody(event.kind, event.payload);
    return `append ${index} ${event.partition} seq ${event.seq} ${kindName(event.kind)}${decoded === undefined ? "" : bodyText(decoded)} by ${event.identity?.issuer}`;
  });
  lines.push(...factLines(index, record));
  for (const lease of record.lease)
    lines.push(`append ${index} ${lease.partition} lease op ${lease.op} ${lease.attempt}.${lease.delivery}`);
  if (record.change?.kind === "led")
    lines.push(`append ${index} led by node ${record.change.value.node} in epoch ${record.change.value.epoch}`);
  return lines;
}

function bodyText({ kind, body }: RunEvent): string {
  switch (kind) {
    case EventKind.runStarted:
      return ` generation ${body.generation}${body.ticket === 0 ? "" : ` of ticket ${body.ticket}`}`;
    case EventKind.activityScheduled:
      return ` op ${body.op} ${body.name}`;
    case EventKind.chunkYielded:
      return ` op ${body.op}${body.refused ? ", refused" : ""}`;
    case EventKind.activityRetried:
      return ` op ${body.op} attempt ${body.attempt} ${body.failure?.type}, next at ${body.nextMs - epochMs}`;
    case EventKind.activityFailed:
      return ` op ${body.op} attempt ${body.attempt} ${body.failure?.type}`;
    case EventKind.activityCompleted:
      return ` op ${body.op} attempt ${body.attempt}${body.by === undefined ? "" : ` by ${body.by.partition} op ${body.by.op}`}`;
    case EventKind.keyClaimed:
      return ` by ${body.from} op ${body.op}: ${["", "granted", "waits", "settled"][body.outcome]}`;
    case EventKind.keySettled:
    case EventKind.keyReleased:
      return ` by ${body.from} op ${body.op}`;
    case EventKind.timerStarted:
      return ` op ${body.op} due ${body.dueMs - epochMs}`;
    case EventKind.signalReceived:
      return ` ${body.name}`;
    case EventKind.signalAwaited:
      return ` op ${body.op} ${body.name}`;
    case EventKind.signalSent:
      return ` op ${body.op} ${body.name} to ${body.to} number ${body.number}`;
    case EventKind.resultAwaited:
    case EventKind.resultWaitCancelled:
      return ` op ${body.op} of ${body.to} number ${body.number}`;
    case EventKind.signalSettled:
    case EventKind.resultReceived:
      return ` op ${body.op}${body.failure === undefined ? "" : ` ${body.failure.type}: ${body.failure.message}`}`;
    case EventKind.startExpired:
      return ` ${body.ticket} after ${body.budgetMs}`;
    case EventKind.startCancelled:
    case EventKind.supersedeRequested:
      return ` ${body.ticket}: ${body.reason}`;
    case EventKind.signalQueued:
      return ` ${body.name} for ${body.ticket}`;
    case EventKind.runTerminated:
      return `: ${body.reason}`;
    case EventKind.runBlocked:
      return ` ${body.cause}: ${body.message}`;
    case EventKind.runFailed:
      return ` ${body.failure?.type}`;
    default:
      return "op" in body ? ` op ${body.op}` : "";
  }
}

function replyLine({ reply }: Extract<Effect, { kind: "reply" }>): string {
  switch (reply.kind) {
    case "started":
      return `started ${reply.ticket === undefined ? "" : `${reply.ticket}@`}${reply.run} ${reply.place === undefined ? `generation ${reply.generation}` : `queued at ${reply.place}`}${reply.attached ? " attached" : ""}${reply.outcome === undefined ? "" : ` outcome ${reply.outcome.status}`}`;
    case "signalled":
      return `signalled seq ${reply.seq}`;
    case "outcome":
      return `outcome ${reply.outcome.status}${reply.outcome.failure === undefined ? "" : ` ${reply.outcome.failure.type}`} of generation ${reply.generation}`;
    case "queried":
      return `queried ${JSON.stringify(new TextDecoder().decode(reply.result?.data))}`;
    case "enveloped":
      return answerText(reply.answer);
    case "rejected":
      return `${reply.rejection.reject}: ${reply.rejection.message}`;
    default:
      return reply.kind;
  }
}

export const payload = (value: string) => ({ data: text.encode(value), ref: undefined });
export const asRun = (value: string) => value as RunId;
