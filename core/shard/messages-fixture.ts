/**
 * Two shards that exchange messages over a network without manners, as a test drives them: what is
 * sent may be lost, come twice, late, or in another order; a shard may lose what is not committed.
 *
 * The runs have no code: what one asks for when it is activated is drawn. What must hold is read
 * from the logs.
 */
import { expect } from "bun:test";
import {
  asRequestId,
  asShardId,
  asTerm,
  type Effect,
  limits,
  type Partition,
  Prng,
  type RequestId,
  type RunId,
  runPartition,
} from "#core/base";
import { nextNumber } from "#core/run";
import { digestOf, type Input, type LiveRun, type ShardMachine, signalsTo } from "#core/shard";
import {
  type CommandInit,
  CommandKind,
  decodeActivated,
  decodeEvent,
  decodeRecord,
  type Envelope,
  EventKind,
  encodeActivated,
  fromBytes,
  toBytes,
} from "#proto";
import { bunHasher } from "../../tests/hashers.ts";
import { joining, lead, makeShard, RecordLog, StateTable } from "../../tests/shard-maker.ts";
import { ChildStory, drawChildCommand } from "./children-fixture.ts";
import { drawKeyedCommand, KeyStory, keyPartitions } from "./keys-fixture.ts";
import { MessageStory } from "./message-story-fixture.ts";

const bundleOfAll = new Uint8Array(32).fill(7);
const text = new TextEncoder();
const payload = (value: string) => ({ data: text.encode(value), ref: undefined });
const client = { issuer: "local", subject: "ann", verified: false, causeSeq: 0 };

type Untimed = Input extends infer I ? (I extends { readonly nowMs: number } ? Omit<I, "nowMs"> : never) : never;
type Answer = Extract<Input, { kind: "envelope-answered" }>;
type Packet =
  | { readonly kind: "envelope"; readonly envelope: Envelope }
  | { readonly kind: "answer"; readonly answer: Omit<Answer, "nowMs" | "kind"> };

/** Whatever the draw says, in thousandths of a chance. */
export interface Faults {
  readonly lost: number;
  readonly twice: number;
  /** A packet that was delivered comes again much later. */
  readonly ghost: number;
  readonly crash: number;
  /** Time moves on by more than the retention. */
  readonly longWait: number;
  /** Of an operation, that it is about a child. */
  readonly child?: number;
  /** Of an operation, that it is an activity with an idempotency key. */
  readonly keyed?: number;
}

/** Packets on their way. */
const netMax = 200;

class Side {
  readonly shard: ReturnType<typeof asShardId>;
  readonly log = new RecordLog();
  table = new StateTable();
  machine: ShardMachine;
  committed = 0;
  gated: { readonly index: number; readonly effect: Effect }[] = [];
  armedMs = Number.POSITIVE_INFINITY;
  life = 0;
  skewMs = 0;
  /** Activations that no worker has answered. */
  work: { readonly session: Extract<Effect, { kind: "activate" }>["session"]; readonly handle: number; readonly activation: number }[] = [];
  /** Tasks that no worker has answered. */
  tasks: Extract<Effect, { kind: "task" }>[] = [];
  readonly requests = new Map<RequestId, Envelope>();

  constructor(shard: number) {
    this.shard = asShardId(shard);
    this.machine = makeShard({ shard: this.shard, log: this.log, states: this.table });
  }
}

export class World {
  nowMs = 1_800_000_000_000;
  readonly sides: readonly [Side, Side] = [new Side(1), new Side(2)];
  readonly prng: Prng;
  readonly faults: Faults;
  readonly names: readonly (readonly string[])[];
  /** How often things happened. */
  readonly counts = { signals: 0, refused: 0, results: 0, stale: 0, forgotten: 0, crashes: 0 };
  readonly children = new ChildStory();
  readonly keys = new KeyStory();
  readonly reunited = { given: 0, lost: 0, asked: 0, refused: 0 };
  private net: Packet[] = [];
  private ghosts: Packet[] = [];
  private nextRequest = 1;
  private nextPayload = 1;

  constructor(seed: number, faults: Faults, runs: readonly [number, number]) {
    this.prng = new Prng(seed);
    this.faults = faults;
    this.names = runs.map((count, side) => Array.from({ length: count }, (_, i) => `test:${"ab"[side]}${i}`));
    for (const side of this.sides) this.begin(side);
    for (const [i, names] of this.names.entries()) for (const name of names.slice(1)) this.command(this.sides[i] as Side, name, "start");
  }

  private chance(thousandths: number): boolean {
    return this.prng.below(1000) < thousandths;
  }

  private sideOf(partition: string): Side {
    if (partition.startsWith("key/")) return this.sides[Number(partition.at(-1)) % 2 === 0 ? 0 : 1];
    return this.sides[partition.startsWith("run/test:a") ? 0 : 1];
  }

  private timeOf(side: Side): number {
    return this.nowMs + side.skewMs;
  }

  step(side: Side, input: Untimed): void {
    this.handle(side, side.machine.step({ ...input, nowMs: this.timeOf(side) } as Input));
  }

  command(side: Side, name: string, kind: "start" | "signal" | "terminate"): void {
    const run = name as RunId;
    const request = asRequestId(this.nextRequest++);
    const start = {
      type: "t",
      bundle: bundleOfAll,
      input: undefined,
      contention: "attach",
      idempotencyKey: "",
      deadlineMs: 0,
      awaitResult: false,
    } as const;
    const command =
      kind === "start"
        ? ({ kind, run, ...start } as const)
        : kind === "signal"
          ? ({ kind, run, name: "poke", payload: undefined, id: "" } as const)
          : ({ kind, run, reason: "enough" } as const);
    this.step(side, { kind: "command", request, identity: client, command });
  }

  private handle(side: Side, effects: readonly Effect[]): void {
    for (const effect of effects) {
      const { after } = effect;
      if (effect.kind === "arm-timer") side.armedMs = effect.atMs;
      else if (after.until === "committed" && after.index > side.committed) side.gated.push({ index: after.index, effect });
      else this.run(side, effect);
    }
  }

  private run(side: Side, effect: Effect): void {
    if (effect.kind === "send") this.put({ kind: "envelope", envelope: structuredClone(effect.envelope) });
    else if (effect.kind === "activate" || effect.kind === "replay") side.work.push(effect);
    else if (effect.kind === "task") side.tasks.push(effect);
    else if (effect.kind === "reply") {
      const envelope = side.requests.get(effect.request);
      side.requests.delete(effect.request);
      if (envelope === undefined) return;
      const { reply } = effect;
      const answer = reply.kind === "enveloped" ? reply.answer : reply.kind === "rejected" ? { rejection: reply.rejection } : undefined;
      if (answer === undefined) throw new Error(`An envelope is not answered by ${reply.kind}`);
      if ("stale" in answer && answer.stale) this.counts.stale++;
      this.put({ kind: "answer", answer: { from: envelope.from as Partition, to: envelope.to as Partition, answer } });
    }
  }

  /** Packets have memory of their own. What is too much is lost. */
  private put(packet: Packet): void {
    this.net.push(packet);
    if (this.net.length > netMax) this.net.splice(this.prng.below(netMax), 1);
  }

  commit(side: Side): void {
    side.committed = side.log.lastIndex;
    const ready = side.gated;
    side.gated = [];
    for (const { effect } of ready) this.run(side, effect);
  }

  checkpoint(side: Side): void {
    if (side.committed !== side.log.lastIndex) return;
    side.table.checkpoint(side.shard, side.machine, 1 + this.prng.below(50));
    this.handle(side, side.machine.evictIdle(this.timeOf(side)));
  }

  /** What is not committed is gone, and another node leads, with another clock. */
  crash(side: Side): void {
    this.counts.crashes++;
    side.log.records.length = side.committed;
    side.log.terms.length = side.committed;
    side.gated = [];
    side.work = [];
    side.tasks = [];
    side.requests.clear();
    side.armedMs = Number.POSITIVE_INFINITY;
    const { machine, appliedIndex } = side.table.open(side.shard, { log: side.log });
    side.machine = machine;
    side.log.feed(machine, appliedIndex + 1);
    this.begin(side);
  }

  /**
   * Everything is lost but a beginning of each log, of a moment of its own: what the runs have of each
   * other's messages is put right, and they go on.
   */
  restore(ends: readonly [number, number]): void {
    this.net = [];
    this.ghosts = [];
    for (const [i, side] of this.sides.entries()) {
      Object.assign(side, { gated: [], work: [], tasks: [], armedMs: Number.POSITIVE_INFINITY, table: new StateTable() });
      side.requests.clear();
      side.log.records.length = ends[i] as number;
      side.log.terms.length = ends[i] as number;
      side.machine = makeShard({ shard: side.shard, log: side.log, states: side.table });
      side.log.feed(side.machine);
      side.life++;
      side.machine.amend({ term: asTerm(side.life), nowMs: this.timeOf(side) });
    }
    this.reunite();
    for (const side of this.sides) {
      side.committed = side.log.lastIndex;
      side.machine = makeShard({ shard: side.shard, log: side.log, states: side.table });
      side.log.feed(side.machine);
      this.begin(side);
    }
  }

  private reunite(): void {
    const keys = this.faults.keyed === undefined ? [] : keyPartitions;
    const names = [...this.names.flat().map((name) => runPartition(name as RunId)), ...keys];
    const pairs = names.flatMap((from) => names.map((to) => ({ from, to, sending: { from, receiver: this.sideOf(to).machine } })));
    for (const { from, to, sending } of pairs) this.sideOf(from).machine.renumberTo(to, sending);
    for (const { from, to, sending } of pairs) {
      const side = this.sideOf(from);
      const events = side.log.records.flatMap((body) => fromBytes(decodeRecord, body).event);
      const own = events.filter((bytes) => fromBytes(decodeEvent, bytes).partition === from);
      const { given, lost, asked, refused } = side.machine.reuniteWith(to, sending, signalsTo(to)(own));
      const { reunited } = this;
      Object.assign(reunited, {
        given: reunited.given + given,
        lost: reunited.lost + lost,
        asked: reunited.asked + asked,
        refused: reunited.refused + refused,
      });
    }
  }

  private begin(side: Side): void {
    side.life++;
    side.skewMs = this.prng.below(limits.clockSkewMsMax) - limits.clockSkewMsMax / 2;
    this.handle(
      side,
      lead(side.machine, { nowMs: this.timeOf(side), appliedIndex: side.log.lastIndex, term: side.life, epoch: side.life }),
    );
    this.step(side, withoutTime(joining(side.life, 0)));
  }

  private deliver(packet: Packet): void {
    if (packet.kind === "answer") {
      this.step(this.sideOf(packet.answer.from), { kind: "envelope-answered", ...packet.answer });
      return;
    }
    const { envelope } = packet;
    const side = this.sideOf(envelope.to);
    const request = asRequestId(this.nextRequest++);
    side.requests.set(request, envelope);
    this.step(side, { kind: "envelope", request, envelope });
  }

  /** One thing happens. */
  once(): void {
    const { prng, faults } = this;
    const side = this.sides[prng.below(2)] as Side;
    this.nowMs += prng.below(20);
    if (side.armedMs <= this.timeOf(side)) {
      side.armedMs = Number.POSITIVE_INFINITY;
      return this.step(side, { kind: "tick" });
    }
    if (this.chance(faults.crash)) return this.crash(side);
    if (this.chance(faults.longWait)) this.nowMs += limits.dedupRetentionMs + 2 * limits.clockSkewMsMax;
    if (this.ghosts.length > 0 && this.chance(faults.ghost)) return this.deliver(this.ghosts[prng.below(this.ghosts.length)] as Packet);
    const draw = prng.below(100);
    if (draw < 30) return this.commit(side);
    if (draw < 60 && this.net.length > 0) return this.travel();
    if (draw < 62) return this.checkpoint(side);
    if (side.tasks.length > 0 && this.chance(300)) return this.finishTask(side, this.chance(250));
    if (draw < 85 && side.work.length > 0) return this.answerWork(side);
    const names = this.names[this.sides.indexOf(side)] as string[];
    const name = names[prng.below(names.length)] as string;
    const kind = prng.below(40);
    this.command(side, name, kind < 2 ? "start" : kind < 3 ? "terminate" : "signal");
  }

  private travel(): void {
    const [packet] = this.net.splice(this.prng.below(Math.min(this.net.length, 40)), 1);
    if (packet === undefined) return;
    this.ghosts.push(packet);
    if (this.ghosts.length > 300) this.ghosts.splice(this.prng.below(this.ghosts.length), 1);
    if (this.chance(this.faults.lost)) return;
    if (this.chance(this.faults.twice)) this.net.push(packet);
    this.deliver(packet);
  }

  private finishTask(side: Side, fails: boolean): void {
    const [task] = side.tasks.splice(this.prng.below(side.tasks.length), 1);
    if (task === undefined) return;
    const failure = { type: "E", message: "as drawn", stack: "", details: undefined, nonRetryable: true, cause: undefined };
    const outcome = fails ? { result: undefined, failure } : { result: payload(`r${this.nextPayload++}`), failure: undefined };
    this.step(side, { kind: "task-done", session: task.session, message: { token: task.token, ...outcome } });
  }

  private answerWork(side: Side): void {
    const [at] = side.work.splice(this.prng.below(side.work.length), 1);
    if (at === undefined) return;
    const live = [...side.machine.liveRuns()].find((one) => one.session?.id === at.session && one.handle === at.handle);
    const commands = live === undefined ? [] : this.commandsOf(live);
    const message = fromBytes(decodeActivated, toBytes(encodeActivated, { handle: at.handle, activation: at.activation, commands }));
    this.step(side, { kind: "activated", session: at.session, message });
  }

  private commandsOf({ run, id }: LiveRun): CommandInit[] {
    const { prng } = this;
    const commands: CommandInit[] = [];
    let op = run.nextOp;
    for (let n = prng.below(4); n > 0; n--) {
      if (this.faults.child !== undefined && this.chance(this.faults.child)) {
        const command = drawChildCommand(prng, run, { op, names: this.names.flat() });
        if (command !== undefined) commands.push({ ...command, op: op++ });
        continue;
      }
      if (this.faults.keyed !== undefined && this.chance(this.faults.keyed)) {
        commands.push(drawKeyedCommand(prng, op++));
        continue;
      }
      const names = this.names[this.chance(800) ? 1 : 0] as string[];
      // The first ones are never started, or late.
      const to = names[prng.below(names.length)] as string;
      const draw = prng.below(20);
      if (draw < 14) commands.push({ kind: CommandKind.sendSignal, op: op++, to, name: "s", payload: payload(`p${this.nextPayload++}`) });
      else if (draw < 18 && to !== id) commands.push({ kind: CommandKind.awaitResult, op: op++, to });
      else if (draw < 19 && run.pending.size > 0) commands.push({ kind: CommandKind.cancelOp, op: [...run.pending.keys()][0] as number });
    }
    if (prng.below(30) === 0) commands.push({ kind: CommandKind.complete, payload: payload(`result of ${id}#${run.generation}`) });
    return commands;
  }

  /** No more faults: everything that is owed arrives. */
  heal(): void {
    // The slowest clock passes what the fastest leader wrote.
    this.nowMs += 2 * limits.clockSkewMsMax;
    for (let round = 0; round < 400; round++) {
      for (const side of this.sides) {
        this.commit(side);
        while (side.tasks.length > 0) this.finishTask(side, false);
        if (side.armedMs <= this.timeOf(side)) {
          side.armedMs = Number.POSITIVE_INFINITY;
          this.step(side, { kind: "tick" });
        }
      }
      const packets = this.net;
      this.net = [];
      for (const packet of packets) this.deliver(packet);
      this.nowMs += 500;
    }
    for (const side of this.sides) this.commit(side);
  }

  check(): void {
    const story = new MessageStory();
    for (const side of this.sides) story.read(side.log.records);
    story.check();
    Object.assign(this.counts, story.counts);
    if (this.faults.child !== undefined) this.checkChildren();
    if (this.faults.keyed !== undefined) this.checkKeys();
    this.checkStates((from, to) => story.lastTaken(from, to));
  }

  private checkChildren(): void {
    for (const side of this.sides) this.children.read(side.log.records);
    this.children.check();
  }

  private checkKeys(): void {
    // What runs did is read before what keys say of it.
    for (const side of this.sides) this.keys.read(side.log.records);
    this.keys.check();
  }

  /** Nothing is owed, and whoever reads the logs has the same. Returns the runs. */
  checkStates(lastTaken: (from: Partition, to: Partition) => number): LiveRun[] {
    const runs: LiveRun[] = [];
    for (const side of this.sides) {
      const again = makeShard({ shard: side.shard, log: new RecordLog(), states: new StateTable() });
      side.log.feed(again);
      const whole = side.table.open(side.shard, { log: side.log });
      side.log.feed(whole.machine, whole.appliedIndex + 1);
      const known = [...this.names.flat().map((name) => runPartition(name as RunId)), ...keyPartitions];
      for (const name of known) for (const one of [again, whole.machine]) one.describe(name);
      // The leader, a follower of its whole log, and one that began at a checkpoint have the same states.
      const followed = new Map(again.states());
      for (const machine of [side.machine, whole.machine]) {
        const seen = new Map(machine.states());
        const same = [...followed].filter(([partition]) => seen.has(partition));
        expect(same.length).toBe(seen.size);
        expect(digestOf(same, bunHasher)).toEqual(digestOf(seen, bunHasher));
      }
      for (const live of again.liveRuns()) {
        const { run } = live;
        runs.push(live);
        expect([run.run, run.outbox.size, run.unsettled, run.owed.size]).toEqual([run.run, 0, 0, 0]);
        for (const o of run.pending.values()) expect(o.kind).not.toBe(EventKind.signalSent);
        // Whoever may go on was granted its key, or told its result.
        for (const o of run.pending.values()) expect([run.run, o.op, o.key]).toEqual([run.run, o.op, ""]);
        for (const [to] of run.settledTo)
          expect([run.run, to, lastTaken(live.partition, to)]).toEqual([run.run, to, nextNumber(run, to) - 1]);
      }
    }
    return runs;
  }
}

function withoutTime(input: Extract<Input, { kind: "worker-joined" }>): Untimed {
  const { kind, session, hello, capacity } = input;
  return { kind, session, hello, capacity };
}
