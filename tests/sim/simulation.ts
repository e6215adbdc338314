/**
 * One simulation: a seed, a cluster of nodes with their disks, clients, workers, faults, and the
 * checkers that look at everything that happens. Equal seeds give equal simulations, to the byte.
 */
import { drainMicrotasks } from "bun:jsc";
import { type NodeId, type Partition, Prng, placementShard, type ShardId } from "#core/base";
import type { ClusterView } from "#core/placement";
import type { ServerItem } from "#proto";
import type { ShardHost } from "../../node/shard/shard-host.ts";
import { Digests } from "./check/guests.ts";
import { RaftWatch } from "./check/raft.ts";
import { noAckedEventLost } from "./check/recovery.ts";
import { Reference } from "./check/reference.ts";
import { checkReplicas } from "./check/replicas.ts";
import { type Acked, checkReply, TokenLedger } from "./check/replies.ts";
import { type Answer, type Ask, type ClientStream, SimulatedClient } from "./client.ts";
import { ClientEnd } from "./client-end.ts";
import { SimulatedTime } from "./clock.ts";
import { ColdBucket } from "./cold-store.ts";
import { Journal } from "./journal.ts";
import { type Delays, SimulatedStream } from "./network.ts";
import { Machine, SimNode } from "./node.ts";
import { activityNames } from "./program.ts";
import { Schedule } from "./schedule.ts";
import { claim, takeRaised, Violation } from "./violation.ts";
import { type WireFaults, Wires } from "./wires.ts";
import { SimulatedWorker } from "./worker.ts";
import { WorkerEnd } from "./worker-end.ts";
import type { WorkerStream } from "./worker-link.ts";
import { type ChanceFault, drawWorkload, type Fault, type Workload } from "./workload.ts";

const calm: WireFaults = { minMs: 0.05, meanMs: 0.2, clogged: 0, clogMs: 0, loss: 0, duplication: 0, capacity: 100 };

export interface SimulationOptions {
  /** Prints what happens. */
  readonly isVerbose?: boolean;
  /** Faults that are left out: what a failure does not need. */
  readonly without?: readonly string[];
  /** Requests of clients a second while faults strike, in place of what the seed draws. */
  readonly rate?: number | undefined;
  /** In place of what the seed draws. */
  readonly workload?: Partial<Workload>;
}

/** A stream of a client or a worker to a node. */
interface Tie {
  readonly node: NodeId;
  readonly stream: { break(serverMs: number, peerMs: number): void; isBroken: boolean };
}

export class Simulation {
  readonly seed: number;
  readonly prng: Prng;
  readonly workload: Workload;
  readonly schedule = new Schedule();
  readonly journal = new Journal();
  readonly wires: Wires;
  readonly cold: ColdBucket;
  readonly digests = new Digests();
  readonly tokens = new TokenLedger();
  readonly acked: Acked[] = [];
  readonly clients: SimulatedClient[] = [];
  readonly workers: SimulatedWorker[] = [];
  readonly fired = new Map<Fault, number>();
  /** Nodes that live. */
  readonly nodes = new Map<NodeId, SimNode>();
  /** Members that are to live: those that don't come back by themselves. */
  readonly machines = new Map<NodeId, Machine>();
  readonly raft: RaftWatch;
  readonly reference: Reference | undefined;
  /** Faults strike. */
  isFaulty = false;
  hash = 0;
  lives = 0;
  /** Requests of clients so far. */
  requests = 0;
  private delays: Delays = calm;
  private readonly isVerbose: boolean;
  private ties: Tie[] = [];
  private names = 0;
  private machineCount = 0;
  private boundMs = 0;
  private boundAtMs = 0;
  private readonly ackedSizes = new Map<string, number>();

  constructor(seed: number, options: SimulationOptions = {}) {
    this.seed = seed;
    this.prng = new Prng(Math.imul(seed, 0x9e3779b1) ^ 0x51ed270b);
    this.workload = { ...atRate(without(drawWorkload(seed, this.prng), options.without ?? []), options.rate), ...options.workload };
    this.wires = new Wires(this.schedule, this.prng, calm);
    this.cold = new ColdBucket(this);
    this.isVerbose = options.isVerbose ?? false;
    this.raft = new RaftWatch(this.journal);
    this.journal.clockBoundMs = () => this.clockBound();
    if (this.workload.hasReference) {
      const reference = new Reference();
      this.reference = reference;
      this.journal.onCommitted = (shard, entry) => {
        if (shard.shard !== placementShard) reference.take(shard, entry);
      };
    }
    for (let i = 0; i < this.workload.workers; i++) {
      // The first worker offers everything, so that there is always one that can go on.
      const offers = activityNames.filter(() => i === 0 || this.prng.chance(0.7));
      this.workers.push(new SimulatedWorker(this, `w${i}`, offers));
    }
    for (let i = 0; i < this.workload.clients; i++) this.clients.push(new SimulatedClient(this, `c${i}`));
    takeRaised();
  }

  note(text: () => string): void {
    if (this.isVerbose) console.log(`${this.schedule.nowMs.toFixed(2).padStart(10)} ${text()}`);
  }

  count(fault: Fault): void {
    if (this.isFaulty) this.fired.set(fault, (this.fired.get(fault) ?? 0) + 1);
  }

  /** Draws whether a fault of chance strikes now. */
  strikes(fault: ChanceFault): boolean {
    const chance = this.workload.chances.get(fault);
    if (!this.isFaulty || chance === undefined || !this.prng.chance(chance)) return false;
    this.count(fault);
    return true;
  }

  madeUpName(): string {
    return `default:wf_${++this.names}`;
  }

  /** Runs the next thing that happens, and all that it causes at once. Throws what was found broken. */
  step(): boolean {
    const isMore = this.schedule.step();
    drainMicrotasks();
    const broken = takeRaised();
    if (broken !== undefined) throw broken;
    return isMore;
  }

  runUntil(atMs: number): void {
    while (this.schedule.nextMs <= atMs) this.step();
    this.schedule.idleTo(atMs);
  }

  /** Promises that a node's step resolved go on before anything else happens there. */
  settle(): void {
    drainMicrotasks();
  }

  // Nodes.

  newMachine(place = `10.0.0.${this.machines.size + 1}`): Machine {
    const { prng, workload, schedule } = this;
    const drift = workload.driftPpm === 0 ? 0 : prng.below(2 * workload.driftPpm) - workload.driftPpm;
    const offset = workload.offsetMs === 0 ? 0 : prng.below(2 * workload.offsetMs) - workload.offsetMs;
    const machine = new Machine(`${place}/${++this.machineCount}`, new SimulatedTime(schedule, drift, offset));
    machine.checkpoints.failsNow = () => this.strikes("checkpointFails");
    machine.checkpoints.flush = (done) => schedule.after((this.isFaulty ? workload.flushMs : 0.3) * (0.5 + prng.fraction()), done);
    let readableMs = 0;
    machine.checkpoints.isUnreadableNow = () => {
      if (schedule.nowMs >= readableMs && this.strikes("statesUnreadable")) readableMs = schedule.nowMs + 20 + prng.below(3000);
      return schedule.nowMs < readableMs;
    };
    return machine;
  }

  startNode(id: NodeId, machine: Machine, isFirst = false): SimNode {
    this.lives++;
    this.note(() => `node ${id} starts`);
    this.machines.set(id, machine);
    const node = new SimNode(this, id, machine, isFirst);
    this.nodes.set(id, node);
    node.start();
    for (const worker of this.workers) worker.connect();
    return node;
  }

  /** Ends a node's life. With `isPowerLoss`, its disk keeps what it has to. It comes back by itself. */
  crash(node: SimNode, why: string, isPowerLoss = false): void {
    if (node.isDead) return;
    this.note(() => `node ${node.id} dies (${why})`);
    this.end(node, isPowerLoss);
    node.machine.disk.failure = undefined;
    this.schedule.after(20 + this.prng.below(this.prng.chance(0.8) ? 1500 : 8000), () => this.restart(node.id));
  }

  restart(id: NodeId): void {
    const machine = this.machines.get(id);
    if (machine !== undefined && !this.nodes.has(id)) this.startNode(id, machine);
  }

  private end(node: SimNode, isPowerLoss: boolean): void {
    this.observe(node);
    node.die(this.prng.chance(0.7));
    if (isPowerLoss) node.machine.checkpoints.losePower(this.prng);
    this.nodes.delete(node.id);
    this.raft.died(node.id, node.machine.disk);
    for (const { node: at, stream } of this.ties) if (at === node.id) stream.break(0, this.prng.below(isPowerLoss ? 2000 : 150));
    for (const other of this.nodes.values()) {
      const ms = isPowerLoss ? 500 + this.prng.below(2500) : this.prng.below(50);
      this.schedule.after(ms, () => other.take(() => other.net.lose(node.id)));
    }
    noAckedEventLost(this.journal, this.acked);
  }

  /** The node and its disk are gone for good. */
  lose(node: SimNode): void {
    this.note(() => `node ${node.id} loses its disk`);
    this.end(node, true);
    this.machines.delete(node.id);
    this.raft.died(node.id, undefined);
  }

  /** The newest view that anybody has. */
  view(): ClusterView | undefined {
    let newest: ClusterView | undefined;
    for (const { placement } of this.nodes.values()) if (placement.view.version > (newest?.version ?? 0)) newest = placement.view;
    return newest;
  }

  placementLeader(): SimNode | undefined {
    for (const node of this.nodes.values()) if (!node.isPaused && node.placement.leads) return node;
    return undefined;
  }

  leaderOf(shard: ShardId): SimNode | undefined {
    for (const node of this.nodes.values()) if (node.leads(shard)) return node;
    return undefined;
  }

  write(node: SimNode, _bytes: number, done: () => void): void {
    const { prng, schedule, workload } = this;
    const ms = this.strikes("slowFlush") ? 100 + prng.below(1500) : (this.isFaulty ? workload.flushMs : 0.3) * (0.5 + prng.fraction());
    if (this.strikes("crashAtWrite")) schedule.after(ms * prng.fraction(), () => this.crash(node, "crashAtWrite", prng.chance(0.5)));
    schedule.after(ms, done);
  }

  onDurable(node: SimNode): void {
    if (this.strikes("crashBeforeAck")) this.schedule.after(0, () => this.crash(node, "crashBeforeAck"));
  }

  /** What the node's own log says. */
  noted(node: SimNode, level: "info" | "warn" | "error", what: string, fields?: Record<string, string | number>): void {
    if (node.isDead) return;
    this.note(() => `node ${node.id} ${level} ${what} ${JSON.stringify(fields ?? {})}`);
    if (level === "error" && what !== "replay failed")
      throw new Violation("InvariantError", `node ${node.id}: ${what} ${JSON.stringify(fields)}`);
  }

  /** A replica stopped by a bug of its own. */
  faulted(node: SimNode, error: Error): void {
    if (node.isDead) return;
    throw new Violation("InvariantError", `node ${node.id}: ${error.stack ?? error.message}`);
  }

  // What is seen.

  /** Takes in what the node's groups have committed, and looks at how they are. */
  observe(node: SimNode): void {
    let news: ShardId[] | undefined;
    for (const group of node.replicas.everyGroup()) {
      if (!this.raft.observe(node, group)) continue;
      if (group.commitIndex > this.journal.lastIndex(group.shard)) news = [...(news ?? []), group.shard];
    }
    if (news === undefined) return;
    // A shard that a split made comes behind its parent.
    news.sort((a, b) => a - b);
    for (const shard of news) this.takeCommitted(node, shard);
  }

  private takeCommitted(node: SimNode, shard: ShardId): void {
    for (const group of node.replicas.everyGroup()) {
      if (group.shard !== shard) continue;
      const from = this.journal.lastIndex(shard) + 1;
      if (from > group.commitIndex) return;
      const entries = node.log.entries(shard, from as never, (group.commitIndex + 1) as never, Number.MAX_SAFE_INTEGER);
      for (const entry of entries) this.journal.commit(shard, entry);
    }
  }

  /** Everything that a leader answers is looked at when it leaves. */
  watchHost(node: SimNode, shard: ShardId, host: ShardHost): void {
    const command = host.command.bind(host);
    const describe = host.describe.bind(host);
    const envelope = host.envelope.bind(host);
    host.command = (identity, asked, done) =>
      command(identity, asked, (reply) => {
        this.observe(node);
        checkReply(this.replyContext(), asked, reply);
        for (const char of `${asked.kind} ${asked.run} ${reply.kind}`) this.hash = Math.imul(this.hash ^ char.charCodeAt(0), 0x01000193);
        if (reply.kind === "rejected" && reply.rejection.reject === "STALE_EPOCH") this.count("staleRefused");
        this.noteAcked();
        done(reply);
      });
    host.envelope = (sent, done, tries?: number) =>
      envelope.call(
        host,
        sent,
        (reply) => {
          this.observe(node);
          if (reply.kind === "enveloped") this.journal.messages.checkAnswer(sent, reply.answer);
          else if (reply.kind === "rejected" && reply.rejection.reject === "STALE_EPOCH") this.count("staleRefused");
          done(reply);
        },
        tries,
      );
    host.describe = (partition) => {
      const state = describe(partition);
      this.observe(node);
      const committed = this.journal.of(partition).events.length;
      const told = () =>
        `node ${node.id} describes ${partition} with ${state?.size ?? 0} events as leader of shard ${shard}, ${committed} are committed`;
      claim("readsAreLinearizable", (state?.size ?? 0) >= committed, told);
      return state;
    };
  }

  private acksNoted = 0;

  private noteAcked(): void {
    for (; this.acksNoted < this.acked.length; this.acksNoted++) {
      const { partition, seq } = this.acked[this.acksNoted] as Acked;
      this.ackedSizes.set(partition, Math.max(this.ackedSizes.get(partition) ?? 0, seq + 1));
    }
  }

  /** Events of a partition of which somebody was told. */
  ackedSize(partition: Partition): number {
    return this.ackedSizes.get(partition) ?? 0;
  }

  /** A history as a client was given it is the committed one, to the byte. */
  checkHistory(partition: Partition, events: readonly Uint8Array[]): void {
    const { events: committed } = this.journal.of(partition);
    const told = () => `${partition} is told with ${events.length} events, its log has ${committed.length} or others`;
    claim(
      "noAckedEventLost",
      events.length <= committed.length && events.every((bytes, i) => Bun.deepEquals(bytes, committed[i]?.bytes)),
      told,
    );
  }

  compareReplicas(): void {
    checkReplicas(this, { isAll: false });
  }

  private replyContext() {
    return { journal: this.journal, acked: this.acked };
  }

  /** No machine's clock is above this. */
  clockBound(): number {
    const { nowMs } = this.schedule;
    if (nowMs > this.boundAtMs) {
      this.boundMs += (nowMs - this.boundAtMs) * 1.0003;
      this.boundAtMs = nowMs;
    }
    for (const { time } of this.machines.values()) this.boundMs = Math.max(this.boundMs, time.wallMs());
    return this.boundMs;
  }

  /** Every machine's clock is at or above this. */
  clockFloor(): number {
    let floor = Number.POSITIVE_INFINITY;
    for (const { time } of this.machines.values()) floor = Math.min(floor, time.wallMs());
    return floor;
  }

  // Streams.

  openWorkerStream(id: NodeId, onPeer: (item: ServerItem) => void, onPeerClosed: () => void): WorkerStream | undefined {
    const node = this.nodes.get(id);
    if (node === undefined || node.isPaused) return undefined;
    const road = { send: (item: ServerItem) => stream.toPeer(item), close: () => stream.break(0, 0) };
    const end = new WorkerEnd(node, road, (item) => {
      if (item.kind !== "task" || item.value.token === undefined) return;
      this.observe(node);
      this.tokens.check(this.replyContext(), item.value.token, this.clockBound());
    });
    const stream: WorkerStream = new SimulatedStream(this.streamParts(), {
      onServer: (item) => node.take(() => end.item(item)),
      onPeer,
      onServerClosed: () => node.take(() => end.closed()),
      onPeerClosed,
    });
    this.ties.push({ node: id, stream });
    return stream;
  }

  openClientStream(id: NodeId, onPeer: (answer: Answer) => void, onPeerClosed: () => void): ClientStream | undefined {
    const node = this.nodes.get(id);
    if (node === undefined) return undefined;
    const end = new ClientEnd(
      node,
      (answer) => stream.toPeer(answer),
      () => this.madeUpName(),
    );
    const stream: ClientStream = new SimulatedStream<Ask, Answer>(this.streamParts(), {
      onServer: (ask) => node.take(() => end.ask(ask)),
      onPeer,
      onServerClosed: () => node.take(() => end.closed()),
      onPeerClosed,
    });
    this.ties.push({ node: id, stream });
    return stream;
  }

  private streamParts() {
    this.ties = this.ties.filter(({ stream }) => !stream.isBroken);
    return { schedule: this.schedule, prng: this.prng, delays: () => this.delays };
  }

  /** Faults strike from now on. */
  begin(): void {
    this.isFaulty = true;
    this.wires.faults = this.workload.wires;
    this.delays = this.workload.wires;
    if (this.workload.offsetMs > 0) this.count("clockOff");
  }

  /** From now on nothing goes wrong and everything is fast. What hangs, hangs on. */
  calmDown(): void {
    const { lost, doubled, clogged } = this.wires.counts;
    if (lost > 0) this.count("messageLost");
    if (doubled > 0) this.count("messageDoubled");
    if (clogged > 0) this.count("pathClogged");
    this.isFaulty = false;
    this.wires.faults = calm;
    this.wires.heal();
    this.delays = calm;
    for (const [id, machine] of this.machines) {
      machine.disk.isFull = false;
      machine.disk.failure = undefined;
      this.restart(id);
    }
    for (const node of this.nodes.values()) node.wakeNow();
  }
}

function without(workload: Workload, left: readonly string[]): Workload {
  const timed = new Map([...workload.timed].filter(([fault]) => !left.includes(fault)));
  const chances = new Map([...workload.chances].filter(([fault]) => !left.includes(fault)));
  const wires = { ...workload.wires };
  if (left.includes("messageLost")) wires.loss = 0;
  if (left.includes("messageDoubled")) wires.duplication = 0;
  if (left.includes("pathClogged")) wires.clogged = 0;
  return { ...workload, timed, chances, wires };
}

/** Requests that a start brings with it on average, itself included: see `onStarted` of the simulator. */
const requestsAStart = 6.5;

function atRate(workload: Workload, rate: number | undefined): Workload {
  if (rate === undefined) return workload;
  // Work arrives in nine tenths of the phase.
  return { ...workload, starts: Math.ceil(((workload.faultMs * 0.9) / 1000) * (rate / requestsAStart)) };
}
