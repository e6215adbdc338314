/**
 * A whole group in one seed: 3 or 5 members and two that may join, under faults for a few
 * seconds, then healed. Invariants are checked after every step; reads are checked against what
 * was committed when they were asked; healed, the group must commit again.
 */
import { asIndex, asNodeId, asShardId, asTerm, InvariantError, type NodeId, Prng } from "#core/base";
import { type ConfState, isJoint, type Message, MessageKind, membersOf, noConf, raftDefaults } from "#core/raft";
import { ConfTransition, MemberChangeKind, RaftEntryKind } from "#proto";
import { type MemberView, RaftInvariants } from "./invariants.ts";
import { Member, type MemberHost, type Settings } from "./member.ts";
import { Network } from "./network.ts";
import { Schedule } from "./schedule.ts";

export interface Outcome {
  readonly seed: number;
  readonly failure: string | undefined;
  readonly steps: number;
  readonly committed: number;
  readonly leaders: number;
  /** How often each thing happened. */
  readonly counts: ReadonlyMap<string, number>;
}

const tickMs = 50;
const faultMs = 12_000;
const healMs = 8_000;
const shard = asShardId(1);

class Failure extends Error {}

class Simulation {
  readonly counts = new Map<string, number>();
  readonly invariants = new RaftInvariants();
  steps = 0;
  private readonly seed: number;
  private readonly prng: Prng;
  private readonly schedule = new Schedule();
  private readonly network: Network;
  private readonly host: MemberHost;
  private readonly members: Member[] = [];
  private views: MemberView[] = [];
  private readonly signatures = new Map<NodeId, string>();
  private readonly clocks = new Map<NodeId, { readonly offset: number; readonly rate: number }>();
  /** Until when a member stands still; what happens to it meanwhile happens then. */
  private readonly pausedUntil = new Map<NodeId, number>();
  /** Lives of members: an action of an earlier life is void. */
  private readonly lives = new Map<NodeId, number>();
  private readonly reads = new Map<number, number>();
  private readCount = 0;
  private proposals = 0;
  private isFaulty = true;
  /** Who comes into office often falls soon after. */
  private readonly isStormy: boolean;
  private readonly rates: Readonly<Record<string, number>>;

  constructor(seed: number) {
    this.seed = seed;
    this.prng = new Prng(seed);
    const { prng } = this;
    const chance = (share: number, most: number) => (prng.chance(share) ? prng.fraction() * most : 0);
    this.network = new Network({
      prng,
      faults: {
        loss: chance(0.6, 0.3),
        duplication: chance(0.5, 0.3),
        delayMinMs: prng.below(10),
        delayMeanMs: 10 + prng.below(chance(0.3, 1) > 0 ? 200 : 40),
      },
      deliver: (ms, message) => this.later(message.to, ms, () => this.receive(message)),
      lost: (message) => this.sent(message, false),
    });
    // Mean times between, in milliseconds.
    this.rates = {
      // In an idle group a member that hears nothing stays electable.
      propose: prng.chance(0.3) ? 500 + prng.below(1500) : 10 + prng.below(60),
      read: 5 + prng.below(40),
      crash: prng.chance(0.7) ? 100 + prng.below(1500) : Number.POSITIVE_INFINITY,
      partition: prng.chance(0.7) ? 100 + prng.below(1500) : Number.POSITIVE_INFINITY,
      eclipse: prng.chance(0.5) ? 400 + prng.below(1500) : Number.POSITIVE_INFINITY,
      pause: prng.chance(0.6) ? 300 + prng.below(1500) : Number.POSITIVE_INFINITY,
      change: prng.chance(0.6) ? 100 + prng.below(500) : Number.POSITIVE_INFINITY,
      transfer: prng.chance(0.5) ? 100 + prng.below(800) : Number.POSITIVE_INFINITY,
      compact: prng.chance(0.6) ? 200 + prng.below(800) : Number.POSITIVE_INFINITY,
    };
    this.host = this.newHost();
    this.isStormy = prng.chance(0.4);
    this.open();
  }

  private newHost(): MemberHost {
    const { prng } = this;
    return {
      prng,
      after: (id, ms, action) => this.after(id, ms, action),
      send: (message) => this.network.send(message),
      answered: (id, context, index) => this.answered(id, context, index),
      writeMeanMs: prng.chance(0.3) ? prng.below(150) : prng.below(10),
      applyMeanMs: prng.chance(0.3) ? prng.below(200) : prng.below(5),
    };
  }

  private open(): void {
    const { prng } = this;
    const size = prng.chance(0.5) ? 3 : 5;
    const voters = Array.from({ length: size }, (_, at) => asNodeId(at + 1));
    const first = { index: asIndex(1), term: asTerm(1), conf: { ...noConf, voters } };
    const electionTicks = 4 + prng.below(7);
    const settings: Settings = {
      ...raftDefaults,
      electionTicks,
      leases: prng.chance(0.75),
      heartbeatTicks: electionTicks > 6 ? 1 + prng.below(2) : 1,
      shard,
      maxBytesPerMessage: 20 + prng.below(200),
      maxApplyBytes: 20 + prng.below(400),
      maxInflight: 1 + prng.below(8),
      maxInflightBytes: 100 + prng.below(400),
      maxUncommittedBytes: 200 + prng.below(2000),
    };
    for (let at = 0; at < size + 2; at++) {
      const member = new Member(asNodeId(at + 1), this.host, settings);
      if (at < size) member.format(first);
      this.members.push(member);
      this.clocks.set(member.id, { offset: prng.below(1000), rate: 1 + (prng.fraction() - 0.5) * 0.0004 });
      this.start(member);
      this.tickLater(member);
    }
    this.views = this.members.map((member) => member.view());
    for (const member of this.members) this.check(member);
  }

  private count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
  }

  /** Runs at a member that still lives its life of now. */
  private after(id: NodeId, ms: number, action: () => void): void {
    const life = this.lives.get(id);
    this.later(id, ms, () => {
      if (life === this.lives.get(id)) action();
    });
  }

  /** Runs at a member when it does not stand still, whatever life it lives then. */
  private later(id: NodeId, ms: number, action: () => void): void {
    const run = (): void => {
      const paused = this.pausedUntil.get(id) ?? 0;
      if (paused > this.schedule.now) return this.schedule.after(paused - this.schedule.now + this.prng.fraction(), run);
      action();
      this.check(this.member(id));
    };
    this.schedule.after(ms, run);
  }

  private member(id: NodeId): Member {
    return this.members[id - 1] as Member;
  }

  /** The member's own clock, in ticks. */
  private tickAt(id: NodeId): number {
    const { offset, rate } = this.clocks.get(id) as { offset: number; rate: number };
    return Math.floor((this.schedule.now * rate + offset) / tickMs);
  }

  private tickLater(member: Member): void {
    const run = () => {
      if ((this.pausedUntil.get(member.id) ?? 0) <= this.schedule.now && member.raft !== undefined) {
        member.raft.tick(this.tickAt(member.id));
        member.pump();
        this.check(member);
      }
      this.schedule.after(tickMs * (0.97 + this.prng.fraction() * 0.06), run);
    };
    this.schedule.after(this.prng.below(tickMs), run);
  }

  private start(member: Member): void {
    this.lives.set(member.id, (this.lives.get(member.id) ?? 0) + 1);
    member.start();
    member.pump();
  }

  private receive(message: Message): void {
    const { raft } = this.member(message.to);
    if (raft === undefined) return this.sent(message, false);
    raft.step(message);
    this.sent(message, true);
    this.member(message.to).pump();
  }

  /** Whoever sends a snapshot hears what became of it. */
  private sent(message: Message, ok: boolean): void {
    if (message.kind !== MessageKind.snapshot) return;
    this.count("snapshot");
    this.after(message.from, 20, () => this.member(message.from).raft?.reportSnapshot(message.to, ok));
  }

  /** Checks the invariants if the step changed what they are about. */
  private check(member: Member): void {
    this.steps++;
    const view = member.view();
    const { term, vote, role, commit, log, durable, conf } = view;
    const shape = (of: typeof log) => `${of.base},${of.lastIndex},${of.term(of.lastIndex)}`;
    const signature = `${term} ${vote} ${role} ${commit} ${shape(log)} ${shape(durable)} ${membersOf(conf).length}`;
    if (this.signatures.get(member.id) === signature) return;
    this.signatures.set(member.id, signature);
    const wasLeader = this.views[member.id - 1]?.role === "leader";
    this.views[member.id - 1] = view;
    if (role === "leader" && !wasLeader && this.isFaulty && this.isStormy) this.strike(member);
    const failure = this.invariants.observe(this.views, view);
    if (failure !== undefined) throw new Failure(failure);
  }

  private leaders(): Member[] {
    return this.members.filter(({ raft }) => raft?.role === "leader");
  }

  private pick<T>(from: readonly T[]): T | undefined {
    return from[this.prng.below(from.length)];
  }

  private isPaused = ({ id }: Member) => (this.pausedUntil.get(id) ?? 0) > this.schedule.now;

  // --- What happens

  private propose(): void {
    const leader = this.pick(this.leaders().filter((each) => !this.isPaused(each)));
    if (leader?.raft === undefined) return;
    const count = 1 + this.prng.below(3);
    const proposals = Array.from({ length: count }, () => ({ kind: RaftEntryKind.data, data: this.payload() }));
    if (leader.raft.propose(proposals) === "ok") this.count("propose");
    leader.pump();
    this.check(leader);
  }

  private payload(): Uint8Array {
    const data = new Uint8Array(4 + this.prng.below(20));
    new DataView(data.buffer).setUint32(0, ++this.proposals);
    return data;
  }

  /** A read: by the lease at once, else by asking a majority. */
  private read(at?: Member): void {
    const leader = at ?? this.pick(this.leaders());
    if (leader?.raft?.role !== "leader" || this.isPaused(leader)) return;
    const context = ++this.readCount;
    this.reads.set(context, this.invariants.committedIndex);
    if (leader.raft.leaseHeldAt(this.tickAt(leader.id))) {
      this.count("leaseRead");
      this.answered(leader.id, context, leader.raft.commit);
    } else if (leader.raft.readIndex(context) === "ok") {
      leader.pump();
      this.check(leader);
    }
  }

  private answered(id: NodeId, context: number, index: number): void {
    this.count("read");
    const wanted = this.reads.get(context) ?? 0;
    if (index < wanted) throw new Failure(`staleRead: ${id} answers as of ${index}, ${wanted} was committed when it was asked`);
  }

  /** Cuts a new leader off from some, or ends it, before it has done much. */
  private strike(leader: Member): void {
    this.schedule.after(this.prng.below(60), () => {
      if (!this.isFaulty) return;
      for (const { id } of this.members) if (this.prng.chance(0.4)) this.network.cuts.add(`${leader.id}>${id}`);
      if (this.prng.chance(0.7)) this.schedule.after(this.prng.below(150), () => this.crashOne(leader));
    });
  }

  private crash(): void {
    const leader = this.prng.chance(0.4) ? this.pick(this.leaders()) : undefined;
    this.crashOne(leader ?? this.pick(this.members));
  }

  private crashOne(member: Member | undefined): void {
    if (member?.raft === undefined || !this.isFaulty) return;
    this.count("crash");
    this.lives.set(member.id, (this.lives.get(member.id) ?? 0) + 1);
    member.crash();
    this.check(member);
    this.schedule.after(this.prng.chance(0.7) ? this.prng.below(100) : this.prng.below(1500), () => this.restart(member));
  }

  private restart(member: Member): void {
    if (member.raft !== undefined) return;
    this.start(member);
    this.check(member);
  }

  private partition(): void {
    this.count("partition");
    this.network.heal();
    if (this.prng.chance(0.3)) return;
    this.network.split(
      this.members.map(({ id }) => id),
      this.prng.chance(0.3),
    );
  }

  private isolate({ id }: Member): void {
    if (!this.isFaulty) return;
    for (const other of this.members) if (other.id !== id) this.network.part(id, other.id);
  }

  /** A leader loses its members one after the other; the last one restarts as it is lost. */
  private eclipse(): void {
    const leader = this.pick(this.leaders());
    if (leader?.raft === undefined) return;
    const others = leader.raft.conf.voters.filter((id) => id !== leader.id);
    const last = this.pick(others);
    if (last === undefined) return;
    this.count("eclipse");
    for (const id of others) if (id !== last) this.network.part(leader.id, id);
    this.schedule.after(this.prng.below(1000), () => {
      if (!this.isFaulty) return;
      this.network.part(leader.id, last);
      this.crashOne(this.member(last));
    });
  }

  private pause(): void {
    const leader = this.pick(this.leaders());
    const member = leader !== undefined && this.prng.chance(0.7) ? leader : this.pick(this.members);
    if (member === undefined) return;
    this.count("pause");
    const ms = 100 + this.prng.below(1500);
    this.pausedUntil.set(member.id, this.schedule.now + ms);
    // Somebody asks at the moment it wakes up, before it has heard anything.
    this.schedule.after(ms, () => this.read(member));
  }

  private transfer(): void {
    const leader = this.pick(this.leaders());
    const to = leader?.raft === undefined ? undefined : this.pick(leader.raft.conf.voters);
    if (leader?.raft === undefined || to === undefined) return;
    if (leader.raft.transferLeader(to) === "ok") this.count("transfer");
    leader.pump();
    this.check(leader);
    if (this.prng.chance(0.5)) return;
    // Cut off as it hands over, it is asked all the same.
    this.schedule.after(1 + this.prng.below(30), () => this.isolate(leader));
    for (let ms = 50; ms <= 400; ms += 50) this.schedule.after(ms, () => this.read(leader));
  }

  private compact(): void {
    const member = this.pick(this.members);
    if (member?.raft === undefined) return;
    member.compact();
    this.count("compact");
    this.check(member);
  }

  private change(): void {
    const leader = this.pick(this.leaders());
    if (leader?.raft === undefined) return;
    const { conf } = leader.raft;
    const changes = isJoint(conf) ? [] : this.someChanges(conf);
    const transition = this.prng.chance(0.3) && changes.length > 0 ? ConfTransition.implicit : ConfTransition.auto;
    if (leader.raft.proposeConfChange({ transition, changes }) === "ok") this.count(changes.length > 1 ? "jointChange" : "change");
    leader.pump();
    this.check(leader);
  }

  /** Never fewer than three voters, never more than five. */
  private someChanges(conf: ConfState): { kind: number; node: number }[] {
    const voters = new Set(conf.voters);
    const changes: { kind: number; node: number }[] = [];
    for (const { id } of this.members.toSorted(() => this.prng.fraction() - 0.5).slice(0, 1 + this.prng.below(3))) {
      const isVoter = voters.has(id);
      if (isVoter && voters.size > 3) {
        voters.delete(id);
        changes.push({ kind: this.prng.chance(0.3) ? MemberChangeKind.addLearner : MemberChangeKind.remove, node: id });
      } else if (!isVoter && voters.size < 5) {
        const kind = this.prng.chance(0.3) ? MemberChangeKind.addLearner : MemberChangeKind.addVoter;
        if (kind === MemberChangeKind.addVoter) voters.add(id);
        changes.push({ kind, node: id });
      }
    }
    return changes;
  }

  private begin(name: string, action: () => void): void {
    const mean = this.rates[name] ?? Number.POSITIVE_INFINITY;
    if (!Number.isFinite(mean)) return;
    const run = () => {
      if (name === "read" || this.isFaulty) action();
      this.schedule.after(-Math.log(1 - this.prng.fraction()) * mean, run);
    };
    this.schedule.after(this.prng.below(mean), run);
  }

  run(): void {
    for (const name of ["propose", "read", "crash", "partition", "eclipse", "pause", "change", "transfer", "compact"] as const)
      this.begin(name, () => this[name]());
    this.schedule.runUntil(faultMs);
    this.heal();
    const before = this.invariants.committedIndex;
    // A group that was healed has time for a few elections and for catching up.
    for (let until = faultMs + 500; until <= faultMs + healMs; until += 250) {
      this.schedule.runUntil(until);
      if (this.isWhole(before)) return;
      this.propose();
    }
    const state = this.members.map(({ id, raft }) => `${id}: ${raft?.role} ${raft?.term} ${raft?.commit}`).join(", ");
    throw new Failure(`liveness: nothing new is committed everywhere ${healMs} ms after healing (${before}; ${state})`);
  }

  private heal(): void {
    this.isFaulty = false;
    this.network.heal();
    this.network.faults = { loss: 0, duplication: 0, delayMinMs: 1, delayMeanMs: 5 };
    this.pausedUntil.clear();
    Object.assign(this.host, { writeMeanMs: 2, applyMeanMs: 1 });
    for (const member of this.members) this.restart(member);
  }

  /** Something new is committed, and every voter of the newest configuration has it. */
  private isWhole(before: number): boolean {
    const leader = this.leaders().toSorted((a, b) => (b.raft?.term ?? 0) - (a.raft?.term ?? 0))[0];
    if (leader?.raft === undefined || isJoint(leader.raft.conf)) return false;
    const { conf } = leader.raft;
    return conf.voters.every((id) => (this.member(id).raft?.commit ?? 0) > before);
  }

  outcome(failure: string | undefined): Outcome {
    const { seed, steps, counts } = this;
    const { committedIndex: committed, leaderCount: leaders } = this.invariants;
    return { seed, failure, steps, committed, leaders, counts };
  }
}

/** Runs one seed. A broken assertion of the product is a failure like a broken invariant. */
export function simulateRaft(seed: number): Outcome {
  let simulation: Simulation | undefined;
  try {
    simulation = new Simulation(seed);
    simulation.run();
    return simulation.outcome(undefined);
  } catch (error) {
    const isOurs = error instanceof Failure || error instanceof InvariantError || error instanceof RangeError;
    if (!isOurs || simulation === undefined) throw error;
    return simulation.outcome(error instanceof Failure ? error.message : `${error.name}: ${error.message}`);
  }
}
