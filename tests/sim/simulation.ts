/**
 * One simulation: a seed, a server and its disks, clients, workers, faults, and the checkers that
 * look at everything that happens. Equal seeds give equal simulations, to the byte.
 */
import { asShardId, asTerm, type Partition, Prng, type Reply } from "#core/base";
import { type Command, ShardMachine } from "#core/shard";
import { decodeRunState, fromBytes, type ServerItem, Writer } from "#proto";
import { MemoryDisk } from "../../store/log/memory-log-store.ts";
import { bunHasher } from "../hashers.ts";
import { Digests } from "./check/guests.ts";
import { durableBytesUnchanged, historiesVerify, noAckedEventLost, sameRuns, snapshotPlusTailEqualsFullReplay } from "./check/recovery.ts";
import { type Acked, TokenLedger } from "./check/replies.ts";
import { type Answer, type ClientStream, SimulatedClient } from "./client.ts";
import { SimulatedTime } from "./clock.ts";
import { Journal } from "./journal.ts";
import { type Delays, SimulatedStream } from "./network.ts";
import { activityNames } from "./program.ts";
import { Schedule } from "./schedule.ts";
import { Server, type ServerEnd, shard } from "./server.ts";
import { StateDisk } from "./state-disk.ts";
import { SimulatedWorker, type WorkerStream } from "./worker.ts";
import { type ChanceFault, drawWorkload, type Fault, type Workload } from "./workload.ts";

const calm: Delays = { minMs: 0.05, meanMs: 0.2, clogged: 0, clogMs: 0 };
const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");

export interface SimulationOptions {
  /** Prints what happens. */
  readonly isVerbose?: boolean;
}

export class Simulation {
  readonly seed: number;
  readonly prng: Prng;
  readonly workload: Workload;
  readonly schedule = new Schedule();
  readonly time: SimulatedTime;
  readonly journal = new Journal();
  readonly disk = new MemoryDisk();
  readonly states = new StateDisk();
  readonly digests = new Digests();
  readonly tokens = new TokenLedger();
  readonly acked: Acked[] = [];
  readonly clients: SimulatedClient[] = [];
  readonly workers: SimulatedWorker[] = [];
  readonly fired = new Map<Fault, number>();
  server: Server | undefined;
  /** Faults strike. */
  isFaulty = true;
  hash = 0;
  lives = 0;
  private delays: Delays;
  private readonly isVerbose: boolean;
  private readonly streams = new Set<{ break(serverMs: number, peerMs: number): void; isBroken: boolean }>();
  private names = 0;
  /** Follows the durable log from its first record on: a full replay that is always there. */
  private reference = this.emptyMachine();
  private referenceIndex = 0;

  constructor(seed: number, options: SimulationOptions = {}) {
    this.seed = seed;
    this.prng = new Prng(Math.imul(seed, 0x9e3779b1) ^ 0x51ed270b);
    this.workload = drawWorkload(this.prng);
    this.delays = this.workload.delays;
    this.time = new SimulatedTime(this.schedule, this.workload.driftPpm);
    this.isVerbose = options.isVerbose ?? false;
    for (let i = 0; i < this.workload.workers; i++) {
      // The first worker offers everything, so that there is always one that can go on.
      const offers = activityNames.filter(() => i === 0 || this.prng.chance(0.7));
      this.workers.push(new SimulatedWorker(this, `w${i}`, offers));
    }
    for (let i = 0; i < this.workload.clients; i++) this.clients.push(new SimulatedClient(this, `c${i}`));
  }

  note(text: () => string): void {
    if (this.isVerbose) console.log(`${this.schedule.nowMs.toFixed(2).padStart(10)} ${text()}`);
  }

  count(fault: Fault): void {
    this.fired.set(fault, (this.fired.get(fault) ?? 0) + 1);
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

  // The server's lives.

  startServer(): void {
    if (this.server !== undefined) return;
    this.lives++;
    this.note(() => `server starts, life ${this.lives}`);
    const server = new Server(this);
    this.server = server;
    server.start();
    // Peers that were waiting may all be there at once.
    if (this.prng.chance(0.5)) for (const peer of [...this.clients, ...this.workers]) this.schedule.after(0, () => peer.connect());
  }

  crashServer(why: string): void {
    const { server } = this;
    if (server === undefined) return;
    server.die(this.prng.chance(0.7));
    // A machine that was off may come back with its clock set back.
    if (this.isFaulty && this.workload.timed.has("wallJump") && this.prng.chance(0.5)) this.time.jumpedMs -= this.prng.below(20_000);
    this.server = undefined;
    for (const stream of this.streams) stream.break(0, this.prng.below(150));
    this.streams.clear();
    this.disk.failure = undefined;
    const kept = this.disk.shards.get(shard)?.length ?? 0;
    this.note(() => `server dies (${why}), log keeps ${kept} of ${this.journal.lastIndex}`);
    this.journal.truncate(kept);
    this.onDurable(kept);
    noAckedEventLost(this.journal, this.acked);
    this.schedule.after(20 + this.prng.below(1500), () => this.startServer());
  }

  /** Records through `index` are durable: the reference takes them in. */
  onDurable(index: number): void {
    const records = this.disk.shards.get(shard) ?? [];
    for (; this.referenceIndex < index; this.referenceIndex++) {
      const record = records[this.referenceIndex];
      if (record === undefined) break;
      durableBytesUnchanged(this.journal, record.index, record.body);
      this.reference.recover(record.index, record.body);
    }
  }

  onRecovered(machine: ShardMachine): void {
    snapshotPlusTailEqualsFullReplay(this.statesOf(machine), new Map(this.reference.states()), describeState);
    sameRuns(machine, this.reference);
  }

  /** While nothing is uncommitted, the live states must be what the log folds to. */
  compareLive(server: Server): void {
    if (server.isDead || server.machine.lastIndex !== this.referenceIndex || !this.prng.chance(0.02)) return;
    this.onRecovered(server.machine);
  }

  private statesOf(machine: ShardMachine): Map<string, Uint8Array> {
    const states = new Map<string, Uint8Array>([...this.states.rows.values()].map((row) => [row.partition, row.state]));
    for (const [partition, state] of machine.states()) states.set(partition, state);
    return states;
  }

  private emptyMachine(): ShardMachine {
    const writer = new Writer();
    const log = { begin: () => writer, end: () => {} };
    return new ShardMachine({
      shard: asShardId(1),
      term: asTerm(1),
      log,
      hasher: bunHasher,
      states: { load: () => undefined, dueBefore: () => [] },
    });
  }

  onReply(command: Command, reply: Reply): void {
    for (const char of `${command.kind} ${command.run} ${reply.kind}`) this.hash = Math.imul(this.hash ^ char.charCodeAt(0), 0x01000193);
  }

  // Streams.

  openWorkerStream(onPeer: (item: ServerItem) => void, onPeerClosed: () => void): WorkerStream | undefined {
    const { server } = this;
    if (server === undefined) return undefined;
    const end: ServerEnd = { session: undefined, requests: new Map() };
    const stream: WorkerStream = new SimulatedStream(this.streamParts(), {
      onServer: (item) => server.onWorkerItem(end, item, { send: (out) => stream.toPeer(out), close: () => stream.break(0, 0) }),
      onPeer,
      onServerClosed: () => server.onWorkerClosed(end),
      onPeerClosed,
    });
    this.streams.add(stream);
    return stream;
  }

  openClientStream(onPeer: (answer: Answer) => void, onPeerClosed: () => void): ClientStream | undefined {
    const { server } = this;
    if (server === undefined) return undefined;
    const end: ServerEnd = { session: undefined, requests: new Map() };
    const stream: ClientStream = new SimulatedStream(this.streamParts(), {
      onServer: (ask) => server.onAsk(end, ask, (answer) => stream.toPeer(answer)),
      onPeer,
      onServerClosed: () => server.onClientClosed(end),
      onPeerClosed,
    });
    this.streams.add(stream);
    return stream;
  }

  private streamParts() {
    for (const stream of this.streams) if (stream.isBroken) this.streams.delete(stream);
    return { schedule: this.schedule, prng: this.prng, delays: () => this.delays };
  }

  /** From now on nothing goes wrong and everything is fast. What hangs, hangs on. */
  calmDown(): void {
    this.isFaulty = false;
    this.delays = calm;
    this.disk.isFull = false;
    this.disk.failure = undefined;
  }

  /** Everything once more, from the bytes alone. */
  checkEnd(server: Server): void {
    const { machine } = server;
    this.onDurable(server.durableIndex);
    noAckedEventLost(this.journal, this.acked);
    this.onRecovered(machine);
    const fresh = this.emptyMachine();
    for (const record of this.disk.shards.get(shard) ?? []) fresh.recover(record.index, record.body);
    snapshotPlusTailEqualsFullReplay(this.statesOf(machine), new Map(fresh.states()), describeState);
    historiesVerify(this.journal, (partition: Partition) => machine.describe(partition));
  }
}

function describeState(state: Uint8Array): string {
  return JSON.stringify(fromBytes(decodeRunState, state), (_, value: unknown) =>
    value instanceof Uint8Array ? hex(value).slice(0, 24) : value,
  );
}
