import { expect, test } from "bun:test";
import { asRequestId, asShardId, type Effect, limits, Prng, type Reply, type RunId, runPartition } from "#core/base";
import type { Contention } from "#core/run";
import { type Command, digestOf, type Input, type ShardMachine } from "#core/shard";
import {
  decodeEvent,
  decodeRecord,
  decodeRunStarted,
  decodeStartCancelled,
  decodeStartExpired,
  decodeStartQueued,
  EventKind,
  fromBytes,
  RunStatus,
} from "#proto";
import { bunHasher } from "../../tests/hashers.ts";
import { lead, makeShard, RecordLog, StateTable, soleShard } from "../../tests/shard-maker.ts";
import { keyOf } from "./shards-fixture.ts";

const epochMs = 1_800_000_000_000;
const run = "default:o-1" as RunId;
const partition = runPartition(run);
const identity = { issuer: "local", subject: "ann", verified: false, causeSeq: 0 };
const payload = (bytes: number) => ({ data: new Uint8Array(bytes), ref: undefined });

interface Asked {
  readonly contention?: Contention;
  readonly key?: string;
  readonly budgetMs?: number;
  readonly bytes?: number;
  readonly deadlineMs?: number;
  readonly awaitResult?: boolean;
}

/** A led shard whose log is durable at once, and what it answered. */
class Lab {
  nowMs = epochMs;
  readonly log = new RecordLog();
  readonly table = new StateTable();
  readonly replies = new Map<number, Reply>();
  machine: ShardMachine;
  private epoch = 1;
  private requests = 0;

  constructor() {
    this.machine = makeShard({ log: this.log, states: this.table, idleMs: 0 });
    lead(this.machine, { nowMs: epochMs });
  }

  step(input: Input): void {
    this.take(this.machine.step(input));
  }

  take(effects: readonly Effect[]): void {
    for (const effect of effects) if (effect.kind === "reply") this.replies.set(effect.request, effect.reply);
  }

  /** Returns the number of the request. */
  ask(command: Command): number {
    const request = asRequestId(++this.requests);
    this.step({ kind: "command", request, identity, command, nowMs: this.nowMs });
    return request;
  }

  start({ contention = "queue", key = "", budgetMs = 0, bytes = 1, deadlineMs = 0, awaitResult = false }: Asked = {}): number {
    const more = { idempotencyKey: key, budgetMs, overrideReason: contention === "supersede" ? "wedged" : "", deadlineMs, awaitResult };
    return this.ask({ kind: "start", run, type: "t", bundle: new Uint8Array(32), input: payload(bytes), contention, ...more });
  }

  advance(ms: number): void {
    this.nowMs += ms;
    this.step({ kind: "tick", nowMs: this.nowMs });
  }

  end(): void {
    this.ask({ kind: "terminate", run, reason: "over" });
  }

  save(): void {
    this.table.checkpoint(soleShard, this.machine);
  }

  /** The node dies: checkpoint and log make the shard anew. */
  crash(): void {
    const { machine, appliedIndex } = this.table.open(soleShard, { log: this.log, idleMs: 0 });
    this.log.feed(machine, appliedIndex + 1);
    this.machine = machine;
    this.take(lead(machine, { nowMs: this.nowMs, epoch: ++this.epoch }));
  }

  get state() {
    const found = this.machine.describe(partition);
    if (found === undefined) throw new Error("There is no run");
    return found;
  }

  tickets(): number[] {
    return this.state.queue.map(({ ticket }) => ticket);
  }

  events() {
    return this.log.records.flatMap((body) => fromBytes(decodeRecord, body).event.map((bytes) => fromBytes(decodeEvent, bytes)));
  }

  reply(request: number): unknown {
    const reply = this.replies.get(request);
    return reply?.kind === "rejected" ? reply.rejection.reject : reply;
  }
}

test("a queue has bounds, and says when to try again", () => {
  const lab = new Lab();
  lab.start();
  for (let i = 0; i < limits.queuedStartsMax; i++) lab.start();
  expect(lab.replies.get(lab.start())).toMatchObject({ kind: "rejected", rejection: { reject: "BUFFER_FULL", retryAfterMs: 1000 } });
  expect(lab.tickets().length).toBe(limits.queuedStartsMax);
  // What supersedes does not wait.
  expect(lab.reply(lab.start({ contention: "supersede" }))).toMatchObject({ kind: "started", generation: 2 });

  const large = new Lab();
  large.start();
  const fits = limits.queuedBytesMax / limits.inlineBytesMax;
  for (let i = 0; i < fits; i++) large.start({ bytes: limits.inlineBytesMax });
  expect(large.reply(large.start())).toBe("BUFFER_FULL");
  expect(large.reply(large.ask({ kind: "signal", run, ticket: 1, name: "s", payload: payload(1), id: "" }))).toBe("BUFFER_FULL");
  expect(large.tickets().length).toBe(fits);
});

test("a start that waits holds so many signals", () => {
  const lab = new Lab();
  lab.start();
  lab.start();
  const signal = () => lab.ask({ kind: "signal", run, ticket: 1, name: "s", payload: undefined, id: "" });
  for (let i = 0; i < limits.heldSignalsMax; i++) expect(lab.reply(signal())).toMatchObject({ kind: "signalled" });
  expect(lab.reply(signal())).toBe("BUFFER_FULL");
  lab.end();
  const received = lab.events().filter(({ kind }) => kind === EventKind.signalReceived);
  expect(received.length).toBe(limits.heldSignalsMax);
});

test("a start that is to supersede says why, whatever is live", () => {
  const lab = new Lab();
  const mute = { kind: "start", run, type: "t", bundle: new Uint8Array(32), input: undefined, idempotencyKey: "", deadlineMs: 0 } as const;
  const ask = () => lab.ask({ ...mute, contention: "supersede", awaitResult: false });
  expect(lab.reply(ask())).toBe("BAD_REQUEST");
  lab.start();
  expect(lab.reply(ask())).toBe("BAD_REQUEST");
  expect(lab.events().length).toBe(1);
});

test("a key is known for as long as its start waits, however many came after it", () => {
  const lab = new Lab();
  lab.start();
  for (let i = 0; i <= limits.usedKeysKept; i++) lab.start({ key: `k${i}` });
  expect(lab.reply(lab.start({ key: "k0" }))).toEqual({ kind: "started", run, generation: 0, attached: true, ticket: 1, place: 1 });
  expect(lab.reply(lab.start({ key: "k0", bytes: 2 }))).toBe("IDEMPOTENCY_CONFLICT");
  lab.ask({ kind: "cancel", run, ticket: 1, reason: "" });
  expect(lab.reply(lab.start({ key: "k0" }))).toEqual({ kind: "started", run, generation: 0, attached: true, ticket: 1 });
  expect(lab.reply(lab.start({ key: "k0", awaitResult: true }))).toMatchObject({
    attached: true,
    outcome: { status: RunStatus.cancelled, failure: { type: "CancelledError" } },
  });
});

test("a budget that ended while nobody led counts: its start leaves before the next one begins", () => {
  const lab = new Lab();
  lab.start({ deadlineMs: 1000 });
  const [short, far] = [lab.start({ budgetMs: 900 }), lab.start({ budgetMs: limits.timerHorizonMs * 3 })];
  lab.save();
  lab.nowMs += 5000;
  lab.crash();
  const waited = lab.ask({ kind: "await-result", run, ticket: 1 });
  lab.advance(0);
  expect([lab.reply(waited), lab.state.ticket, lab.tickets()]).toEqual(["BUDGET_EXPIRED", 2, []]);
  expect([lab.reply(short), lab.reply(far)]).toMatchObject([{ ticket: 1 }, { ticket: 2 }]);
  const kinds = lab.events().map(({ kind }) => kind);
  expect(kinds.slice(3)).toEqual([EventKind.startExpired, EventKind.runTimedOut, EventKind.runStarted]);
});

test("a budget beyond the horizon is found in the checkpoint when its time nears", () => {
  const lab = new Lab();
  lab.start();
  lab.start({ budgetMs: limits.timerHorizonMs * 3 });
  lab.save();
  lab.nowMs += 10_000;
  lab.take(lab.machine.evictIdle(lab.nowMs));
  for (let i = 0; i < 20; i++) lab.advance(limits.timerHorizonMs / 6);
  expect([lab.tickets(), lab.state.ending]).toMatchObject([[], [{ ticket: 1, generation: 0 }]]);
});

test("a queue goes on in the child of a split, with its times", () => {
  const lab = new Lab();
  lab.start();
  lab.start({ budgetMs: 700 });
  lab.start();
  const waiting = lab.start({ awaitResult: true });
  const second = asShardId(2);
  const split = lab.machine.split({ at: keyOf(partition), child: second }, lab.nowMs);
  if ("reject" in split) throw new Error(split.message);
  lab.take(split);
  expect(lab.replies.get(waiting)).toMatchObject({ kind: "rejected", started: { run, generation: 0, ticket: 3 } });
  const birth = lab.machine.takeChanges().find(({ child }) => child !== undefined)?.child;
  lab.table.checkpoint(soleShard, lab.machine);
  const child = new Lab();
  const log = new RecordLog();
  const born = makeShard({ shard: second, log, states: lab.table, ...(birth === undefined ? {} : { birth }) });
  child.machine = born;
  child.nowMs = lab.nowMs;
  child.take(lead(born, { nowMs: lab.nowMs, epoch: 2 }));
  child.advance(700);
  expect(child.tickets()).toEqual([1, 2, 3]);
  child.advance(1);
  expect(child.tickets()).toEqual([2, 3]);
  child.end();
  expect([child.state.ticket, child.tickets()]).toEqual([2, [3]]);
});

test("how the last of the starts ended is remembered, and of the oldest no more", () => {
  const lab = new Lab();
  lab.start();
  for (let i = 0; i < limits.endingsKept + 5; i++) lab.start();
  for (let i = 0; i < limits.endingsKept + 5; i++) lab.end();
  expect(lab.state.ending.length).toBe(limits.endingsKept);
  const of = (generation: number) => lab.reply(lab.ask({ kind: "await-result", run, generation }));
  expect(of(1)).toBe("RUN_CLOSED");
  expect(of(6)).toMatchObject({ kind: "outcome", generation: 6, outcome: { status: RunStatus.terminated } });
  expect(lab.reply(lab.ask({ kind: "await-result", run, ticket: 1 }))).toBe("RUN_NOT_FOUND");
});

/** What the queue is to hold, by the events alone. */
function check(lab: Lab): void {
  const queue: { readonly ticket: number; readonly expiresAtMs: number }[] = [];
  let live = false;
  let front: number | undefined;
  for (const { seq, kind, timeMs, payload: body } of lab.events()) {
    if (kind === EventKind.startQueued) {
      const { budgetMs } = fromBytes(decodeStartQueued, body);
      queue.push({ ticket: seq, expiresAtMs: budgetMs === 0 ? Number.POSITIVE_INFINITY : timeMs + budgetMs });
    } else if (kind === EventKind.supersedeRequested) front = seq - 1;
    else if (kind === EventKind.startExpired || kind === EventKind.startCancelled) {
      const { ticket } = kind === EventKind.startExpired ? fromBytes(decodeStartExpired, body) : fromBytes(decodeStartCancelled, body);
      queue.splice(
        queue.findIndex((one) => one.ticket === ticket),
        1,
      );
    } else if (kind === EventKind.runTerminated || kind === EventKind.runTimedOut) live = false;
    else if (kind === EventKind.runStarted) {
      const { ticket } = fromBytes(decodeRunStarted, body);
      expect(live).toBe(false);
      live = true;
      if (ticket === 0) {
        expect(queue).toEqual([]);
        continue;
      }
      const next = front ?? queue[0]?.ticket;
      front = undefined;
      expect(ticket).toBe(next as number);
      const at = queue.findIndex((one) => one.ticket === ticket);
      expect((queue[at]?.expiresAtMs ?? 0) > timeMs).toBe(true);
      queue.splice(at, 1);
    }
  }
  expect(live || queue.length === 0).toBe(true);
  expect(lab.tickets()).toEqual(queue.map(({ ticket }) => ticket));
}

test("whatever is asked in whatever order, starts begin one at a time and in order, and a crash at any step changes nothing", () => {
  for (let seed = 1; seed <= 30; seed++) {
    const prng = new Prng(seed);
    const lab = new Lab();
    lab.start();
    const follower = makeShard({ log: new RecordLog() });
    for (let step = 0; step < 60; step++) {
      const act = prng.below(12);
      const ticket = prng.chance(0.8) ? (lab.tickets()[prng.below(4)] ?? 1) : prng.below(30);
      if (act < 4) lab.start({ contention: "queue", key: prng.chance(0.3) ? `k${prng.below(5)}` : "", budgetMs: prng.below(3) * 40 });
      else if (act < 5)
        lab.start({ contention: prng.chance(0.5) ? "attach" : "supersede", deadlineMs: prng.below(2) * 50, awaitResult: true });
      else if (act < 7) lab.end();
      else if (act < 8) lab.ask({ kind: "cancel", run, ticket, reason: "" });
      else if (act < 9) lab.ask({ kind: "signal", run, ticket, name: "s", payload: payload(3), id: `${prng.below(9)}` });
      else if (act < 10) lab.ask({ kind: "await-result", run, ticket });
      else lab.advance(prng.below(30));
      if (prng.chance(0.1)) lab.save();
      if (step % 4 === 3) check(lab);
      const before = digestOf(lab.machine.states(), bunHasher);
      lab.log.feed(follower, follower.lastIndex + 1);
      expect(digestOf(follower.states(), bunHasher)).toEqual(before);
      if (!prng.chance(0.2)) continue;
      lab.crash();
      lab.ask({ kind: "query", run, name: "q", input: undefined });
      expect(digestOf(lab.machine.states(), bunHasher)).toEqual(before);
    }
  }
}, 30_000);
