/**
 * Two nodes with replicas of the same shards, under a random load: on one every shard is led, on
 * the other every shard follows. Both checkpoint, evict and restart as they like, and shards are
 * split and absorbed meanwhile. What is appended counts as committed at once.
 */
import {
  asIndex,
  asRequestId,
  asSessionId,
  asShardId,
  type Effect,
  type Index,
  inRange,
  type Key,
  keyOfDigest,
  noBytes,
  type Partition,
  Prng,
  type Rejection,
  type RunId,
  runPartition,
  type SessionId,
  type ShardId,
  type TaskEffect,
} from "#core/base";
import { SessionCapacity } from "#core/dispatch";
import { type AppliedChange, type Command, changeOf, type Input, type LiveRun, type ShardBirth, type ShardMachine } from "#core/shard";
import { ActivatedStatus, type Command as Asked, CommandKind, decodeCommand, decodeEvent, decodeRecord, fromBytes } from "#proto";
import { digest } from "../../tests/hashers.ts";
import { joining, lead, RecordLog, StateTable, soleShard, wholeBirth } from "../../tests/shard-maker.ts";

type Untimed = Input extends infer I ? (I extends { readonly nowMs: number } ? Omit<I, "nowMs"> : never) : never;

export const keyOf = (partition: Partition): Key => keyOfDigest(digest(new TextEncoder().encode(partition)));
const identity = { issuer: "local", subject: "load", verified: false, causeSeq: 0 };
const payload = (value: string) => ({ data: new TextEncoder().encode(value), ref: undefined });

export interface ReplicaNode {
  readonly leads: boolean;
  table: StateTable;
  readonly births: Map<ShardId, ShardBirth>;
  readonly retired: Set<ShardId>;
  readonly machines: Map<ShardId, ShardMachine>;
}

const nodeOf = (leads: boolean): ReplicaNode => ({
  leads,
  table: new StateTable(),
  births: new Map([[soleShard, wholeBirth]]),
  retired: new Set(),
  machines: new Map(),
});

export class Shards {
  readonly prng: Prng;
  nowMs = 1_800_000_000_000;
  readonly logs = new Map<ShardId, RecordLog>([[soleShard, new RecordLog()]]);
  readonly leader = nodeOf(true);
  readonly follower = nodeOf(false);
  /** Shard of which each was split. */
  private readonly parents = new Map<ShardId, ShardId>();
  readonly names: RunId[];
  readonly replies = new Map<number, Extract<Effect, { kind: "reply" }>["reply"]>();
  readonly sessions = new Map<SessionId, SessionCapacity>();
  readonly activations: { readonly shard: ShardId; readonly session: SessionId; readonly handle: number; readonly activation: number }[] =
    [];
  readonly tasks: TaskEffect[] = [];
  /** Clock of the leader is set back by this where a child is first led. */
  setBackMs = 0;
  private epoch = 0;
  private requests = 0;
  private lastSession = 0;
  private lastShard = 1;

  constructor(seed: number, runs = 30) {
    this.prng = new Prng(seed);
    this.names = Array.from({ length: runs }, (_, i) => `default:r${i}` as RunId);
    this.openShard(this.leader, soleShard);
    this.openShard(this.follower, soleShard);
    this.join();
  }

  log(shard: ShardId): RecordLog {
    return this.logs.get(shard) as RecordLog;
  }

  machine(node: ReplicaNode, shard: ShardId): ShardMachine {
    const machine = node.machines.get(shard);
    if (machine === undefined) throw new Error(`Shard ${shard} is not open`);
    return machine;
  }

  owner(key: Key, node = this.leader): ShardId {
    for (const [shard, machine] of node.machines) if (inRange(machine.header(), key)) return shard;
    throw new Error(`Nobody has key ${key}`);
  }

  // Life of a node.

  private openShard(node: ReplicaNode, shard: ShardId): void {
    if (node.retired.has(shard) || node.machines.has(shard)) return;
    // It begins with what its parent saved of it.
    const parent = this.parents.get(shard);
    if (parent !== undefined) this.openShard(node, parent);
    if (node.machines.has(shard)) return;
    const birth = node.births.get(shard) as ShardBirth;
    if (!this.logs.has(shard)) this.logs.set(shard, new RecordLog(1));
    const log = this.log(shard);
    const { machine, appliedIndex } = node.table.open(shard, { log, birth, idleMs: 1000, orphanGraceMs: 500 });
    node.machines.set(shard, machine);
    this.feed(node, shard, Math.max(appliedIndex, log.base) + 1, log.lastIndex);
    if (node.leads) this.takeLead(shard);
  }

  private takeLead(shard: ShardId): void {
    const machine = this.machine(this.leader, shard);
    const nowMs = Math.max(this.nowMs - this.setBackMs, machine.clockMs);
    this.run(shard, lead(machine, { nowMs, appliedIndex: this.log(shard).lastIndex, epoch: ++this.epoch }));
    for (const [session, capacity] of this.sessions) this.input(shard, { ...joining(session, this.nowMs), capacity });
  }

  /** Everything in memory is gone; shards open again, a child when its parent is done with its runs. */
  restart(node: ReplicaNode): void {
    if (node.leads) {
      this.sessions.clear();
      this.activations.length = 0;
      this.tasks.length = 0;
    }
    node.machines.clear();
    for (const shard of [...node.births.keys()].sort((a, b) => a - b)) {
      this.openShard(node, shard);
    }
    if (node.leads) this.join();
  }

  /** Gives a replica records of the log. */
  private feed(node: ReplicaNode, shard: ShardId, from: number, to: number): void {
    const machine = this.machine(node, shard);
    for (let index = from; index <= to; index++) {
      const body = this.log(shard).record(index);
      if (body.length === 0) {
        machine.skip(index);
        continue;
      }
      const change = changeOf(body);
      if (change?.kind === "absorbed") this.finish(node, asShardId(change.value.shard), change.value.through);
      machine.recover(index, body);
      this.carryOut(node, shard, machine.takeChanges());
    }
  }

  /** The follower takes what it has not yet of a shard. */
  catchUp(shard: ShardId, to = this.log(shard).lastIndex): void {
    const machine = this.follower.machines.get(shard);
    if (machine === undefined) return;
    this.feed(this.follower, shard, Math.max(machine.lastIndex, this.log(shard).base) + 1, to);
  }

  /** The node's replica of an absorbed shard has everything, and its states are saved. */
  private finish(node: ReplicaNode, shard: ShardId, through: number): void {
    if (node.retired.has(shard)) return;
    if (!node.births.has(shard)) this.catchUp(this.parents.get(shard) as ShardId);
    this.openShard(node, shard);
    const machine = this.machine(node, shard);
    if (!node.leads) this.catchUp(shard, through);
    node.table.checkpoint(shard, machine);
    node.machines.delete(shard);
    node.retired.add(shard);
  }

  private carryOut(node: ReplicaNode, shard: ShardId, changes: readonly AppliedChange[]): void {
    for (const { change, child } of changes) {
      if (change.kind !== "split" || child === undefined) continue;
      const born = asShardId(change.value.child);
      node.births.set(born, child);
      const machine = this.machine(node, shard);
      while (!machine.departed()) this.checkpoint(node, shard, 1 + this.prng.below(5));
      this.openShard(node, born);
    }
  }

  checkpoint(node: ReplicaNode, shard: ShardId, limit: number): void {
    const machine = this.machine(node, shard);
    const taken = machine.capture(limit);
    if (this.prng.chance(0.1)) return machine.putBack(taken);
    node.table.save(shard, taken, machine.clockMs);
    machine.saved();
  }

  // Changes of shards.

  /** Splits a shard somewhere. The parent may stop before its departing runs are saved. */
  split(shard: ShardId, at?: Key, crash = false): ShardId {
    const { first, last } = this.machine(this.leader, shard).header();
    const child = asShardId(++this.lastShard);
    this.parents.set(child, shard);
    const point = at ?? first + 1 + Math.floor(this.prng.fraction() * (last - first));
    this.expectDone(shard, this.machine(this.leader, shard).split({ at: point, child }, this.nowMs));
    if (crash) {
      const machine = this.machine(this.leader, shard);
      if (this.prng.chance(0.5)) {
        // The child exists before anything is saved from behind the split.
        for (const each of machine.takeChanges()) if (each.child !== undefined) this.leader.births.set(child, each.child);
        this.checkpoint(this.leader, shard, 1 + this.prng.below(5));
      }
      this.restartParent(child);
    } else this.carryOut(this.leader, shard, this.machine(this.leader, shard).takeChanges());
    return child;
  }

  private restartParent(child: ShardId): void {
    this.restart(this.leader);
    if (!this.leader.machines.has(child)) throw new Error(`Shard ${child} was lost with its parent's life`);
  }

  absorb(left: ShardId, right: ShardId): void {
    const machine = this.machine(this.leader, right);
    this.expectDone(right, machine.freeze({ into: left }, this.nowMs));
    for (let i = this.prng.below(10); i > 0; i--) this.act();
    const frozen = this.leader.machines.get(right) as ShardMachine;
    this.leader.table.checkpoint(right, frozen);
    this.leader.machines.delete(right);
    this.leader.retired.add(right);
    const own = this.machine(this.leader, left);
    this.expectDone(left, own.absorb(frozen.absorption(), this.nowMs));
    own.takeChanges();
    for (const input of frozen.takeStalled()) if (input.kind === "task-done") this.input(left, input);
    this.run(right, frozen.stepDown());
  }

  private expectDone(shard: ShardId, result: readonly Effect[] | Rejection): void {
    if ("reject" in result) throw new Error(result.message);
    this.run(shard, result);
  }

  // The load.

  act(): void {
    const { prng } = this;
    const draw = prng.below(100);
    const shards = [...this.leader.machines.keys()];
    const shard = shards[prng.below(shards.length)] as ShardId;
    if (draw < 14) this.start();
    else if (draw < 22) this.command({ kind: "signal", run: this.name(), name: "go", payload: payload("s"), id: "" });
    else if (draw < 24) this.command({ kind: "terminate", run: this.name(), reason: "enough" });
    else if (draw < 26) this.command({ kind: "cancel", run: this.name(), reason: "" });
    else if (draw < 52) this.answerActivation();
    else if (draw < 72) this.answerTask();
    else if (draw < 80) this.advance(prng.below(prng.chance(0.1) ? 70_000 : 400));
    else if (draw < 82) this.join();
    else if (draw < 83) this.leave();
    else if (draw < 88) this.checkpoint(this.leader, shard, 1 + prng.below(10));
    else if (draw < 91) this.run(shard, this.machine(this.leader, shard).evictIdle(this.nowMs));
    else if (draw < 93) this.putEmpty(shard);
    else if (draw < 95) this.catchUp(shard);
    else if (draw < 97) this.restWithFollower();
    else this.command({ kind: "await-result", run: this.name() });
  }

  private restWithFollower(): void {
    const { follower, prng } = this;
    for (const [shard, machine] of [...follower.machines]) {
      if (prng.chance(0.7)) this.checkpoint(follower, shard, 1 + prng.below(20));
      if (prng.chance(0.5)) machine.evictIdle(this.nowMs);
    }
    if (prng.chance(0.1)) this.restart(follower);
  }

  private putEmpty(shard: ShardId): void {
    this.log(shard).pushEmpty();
    this.machine(this.leader, shard).skip(this.log(shard).lastIndex);
  }

  private name(): RunId {
    return this.names[this.prng.below(this.names.length)] as RunId;
  }

  private start(): void {
    const idempotencyKey = this.prng.chance(0.3) ? `k${this.prng.below(5)}` : "";
    this.command({
      kind: "start",
      run: this.name(),
      type: "t",
      bundle: new Uint8Array(32),
      input: payload("in"),
      contention: "attach",
      idempotencyKey,
      deadlineMs: this.prng.chance(0.1) ? 30_000 : 0,
      awaitResult: this.prng.chance(0.3),
    });
  }

  command(command: Command, shard = this.owner(keyOf(runPartition(command.run)))): number {
    const request = ++this.requests;
    this.input(shard, { kind: "command", request: asRequestId(request), identity, command });
    return request;
  }

  advance(ms: number): void {
    this.nowMs += ms;
    for (const shard of [...this.leader.machines.keys()]) this.input(shard, { kind: "tick" });
  }

  join(): void {
    if (this.sessions.size >= 3) return;
    const session = asSessionId(++this.lastSession);
    const capacity = new SessionCapacity(1 + this.prng.below(6));
    this.sessions.set(session, capacity);
    for (const shard of [...this.leader.machines.keys()]) this.input(shard, { ...joining(session, this.nowMs), capacity });
  }

  private leave(): void {
    const session = [...this.sessions.keys()][0];
    if (session === undefined) return;
    this.sessions.delete(session);
    for (const shard of [...this.leader.machines.keys()]) this.input(shard, { kind: "worker-gone", session });
  }

  liveRun(shard: ShardId, session: SessionId, handle: number): LiveRun | undefined {
    for (const live of this.leader.machines.get(shard)?.liveRuns() ?? [])
      if (live.session?.id === session && live.handle === handle) return live;
    return undefined;
  }

  private answerActivation(): void {
    const at = this.activations.splice(this.prng.below(this.activations.length), 1)[0];
    if (at === undefined || !this.leader.machines.has(at.shard)) return;
    const { shard, session, handle, activation } = at;
    const live = this.liveRun(shard, session, handle);
    const commands = live === undefined ? [] : this.commands(live);
    this.input(shard, {
      kind: "activated",
      session,
      message: { shard, handle, activation, status: ActivatedStatus.ok, commands, problem: "" },
    });
  }

  private commands(live: LiveRun): Asked[] {
    const base = fromBytes(decodeCommand, noBytes);
    const asked: Asked[] = [];
    for (let op = live.run.nextOp; this.prng.chance(0.6); op++) {
      const draw = this.prng.below(12);
      if (draw < 5) asked.push({ ...base, kind: CommandKind.activity, op, name: this.prng.chance(0.5) ? "a" : "b", payload: payload("x") });
      else if (draw < 8)
        asked.push({ ...base, kind: CommandKind.timer, op, durationMs: this.prng.below(this.prng.chance(0.3) ? 200_000 : 500) });
      else if (draw < 10) asked.push({ ...base, kind: CommandKind.awaitSignal, op, name: "go" });
      else asked.push({ ...base, kind: CommandKind.compensate, op, name: "b", payload: payload("u"), trigger: draw - 10 });
    }
    if (this.prng.chance(0.1)) asked.push({ ...base, kind: CommandKind.complete, payload: payload("out") });
    return asked;
  }

  private answerTask(): void {
    const task = this.tasks.splice(this.prng.below(this.tasks.length), 1)[0];
    if (task === undefined) return;
    const failure = { type: "Error", message: "no", nonRetryable: this.prng.chance(0.3) };
    const end = this.prng.chance(0.8)
      ? { result: payload("r"), failure: undefined }
      : { result: undefined, failure: { ...failure, stack: "", cause: undefined, details: undefined, origin: "" } };
    const shard = this.owner(keyOf(runPartition(task.token.run)));
    this.input(shard, { kind: "task-done", session: task.session, message: { token: task.token, ...end } as never });
  }

  // Steps and effects.

  input(shard: ShardId, input: Untimed): void {
    this.run(shard, this.machine(this.leader, shard).step({ ...input, nowMs: this.nowMs } as Input));
    for (const [session, capacity] of this.sessions) {
      for (let next = capacity.owed(); next !== undefined; next = capacity.owed()) {
        const machine = this.leader.machines.get(next);
        if (machine === undefined) capacity.forget(next);
        else this.run(next, machine.step({ kind: "capacity-freed", session, nowMs: this.nowMs }));
      }
    }
  }

  private run(shard: ShardId, effects: readonly Effect[]): void {
    for (const effect of effects) {
      if (effect.kind === "activate" || effect.kind === "replay") {
        const { session, handle, activation } = effect;
        this.activations.push({ shard, session, handle, activation });
      } else if (effect.kind === "task") {
        const capacity = this.sessions.get(effect.session);
        if (capacity !== undefined && capacity.tasks.size > capacity.activitySlots) throw new Error("A worker has more tasks than slots");
        this.tasks.push(effect);
      } else if (effect.kind === "reply") this.replies.set(effect.request, effect.reply);
    }
  }

  // What came of it.

  /** Encoded states by partition, all loaded, and headers by shard. */
  statesOf(node: ReplicaNode): Map<string, string> {
    const all = new Map<string, string>();
    for (const [shard, machine] of [...node.machines].sort((a, b) => a[0] - b[0])) {
      all.set(`header ${shard}`, JSON.stringify(machine.header()));
      for (const run of this.names) machine.describe(runPartition(run));
      for (const [partition, state] of machine.states()) {
        if (all.has(partition)) throw new Error(`${partition} is in two shards`);
        all.set(partition, state.toHex());
      }
    }
    return new Map([...all].sort((a, b) => (a[0] < b[0] ? -1 : 1)));
  }

  /** Size and root of every history, whichever shard it is in. */
  heads(node = this.leader): Map<RunId, string> {
    const heads = new Map<RunId, string>();
    for (const run of this.names) {
      const partition = runPartition(run);
      const found = this.machine(node, this.owner(keyOf(partition), node)).describe(partition);
      if (found !== undefined) heads.set(run, `${found.size} ${found.root.toHex()}`);
    }
    return heads;
  }

  /** A history, read backwards along `previous` through the logs of whichever shards it lies in. */
  history(run: RunId): { readonly events: Uint8Array[]; readonly shards: Set<ShardId> } {
    const partition = runPartition(run);
    const end = this.machine(this.leader, this.owner(keyOf(partition))).historyEnd(partition);
    if (end === undefined) return { events: [], shards: new Set() };
    const parts: Uint8Array[][] = [];
    const shards = new Set<ShardId>();
    let index: Index = asIndex(end.lastIndex);
    let shard = end.lastShard;
    while (index > 0) {
      shards.add(shard);
      const record = fromBytes(decodeRecord, this.log(shard).record(index));
      const own = [...record.event.entries()].filter(([, bytes]) => fromBytes(decodeEvent, bytes).partition === partition);
      const [first] = own;
      if (first === undefined) throw new Error(`Record ${index} of shard ${shard} holds no event of ${partition}`);
      if (record.previousShard.length > 0 && record.previousShard.length !== record.event.length)
        throw new Error("previous_shard is not parallel");
      parts.unshift(own.map(([, bytes]) => bytes));
      const from = record.previousShard[first[0]] ?? 0;
      const previous = record.previous[first[0]] as number;
      if (from === 0 && previous >= index) throw new Error(`The history of ${partition} goes on from record ${index} to ${previous}`);
      index = asIndex(previous);
      shard = from === 0 ? shard : asShardId(from);
    }
    return { events: parts.flat(), shards };
  }
}
