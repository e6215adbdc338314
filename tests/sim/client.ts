/**
 * A client under the simulator: knows several nodes and talks to one; asks again, there or at
 * another one, after its stream broke or its patience ended; and knows what it was promised.
 */
import { type NodeId, type Partition, type Rejection, type Reply, type RunId, runPartition } from "#core/base";
import type { Command } from "#core/shard";
import { type DescribeReply, EventKind } from "#proto";
import type { SimulatedStream } from "./network.ts";
import type { Simulation } from "./simulation.ts";
import { claim } from "./violation.ts";

export type Question = Command | { readonly kind: "describe" | "history"; readonly run: RunId };

/** A request on its way. `isUnnamed`: the node makes up the run's name. */
export interface Ask {
  readonly number: number;
  readonly command: Question;
  readonly isUnnamed: boolean;
}

export type ClientReply =
  | Reply
  | { readonly kind: "described"; readonly state: DescribeReply | undefined }
  | { readonly kind: "told"; readonly events: readonly Uint8Array[] };

export interface Answer {
  readonly number: number;
  readonly reply: ClientReply;
}

export type ClientStream = SimulatedStream<Ask, Answer>;

interface Call extends Ask {
  readonly onReply: (reply: ClientReply) => void;
  /** Reads: the answer must show at least so many events. */
  readonly floor: number;
  tries: number;
  /** It is to be sent again: another refusal of the same request, which was sent twice, changes nothing. */
  isPutOff: boolean;
  /** Time of the newest try. */
  sentMs: number;
}

const transient: ReadonlySet<string> = new Set([
  "NO_SPACE",
  "BUFFER_FULL",
  "STORE_UNAVAILABLE",
  "NOT_LEADER",
  "STALE_EPOCH",
  "BUDGET_EXPIRED",
]);
/** A budget in a queue is over for ever. */
const isTransient = ({ reject, message }: Rejection) => transient.has(reject) && !message.includes("waited in the queue");

/** A read that nobody answers is given up: it left nothing behind. */
const readTriesMax = 6;

export class SimulatedClient {
  readonly name: string;
  private readonly sim: Simulation;
  private stream: ClientStream | undefined;
  private node: NodeId | undefined;
  private readonly calls = new Map<number, Call>();
  private next = 1;
  private readonly signals = new Map<string, number>();
  private readonly queues = new Map<string, { readonly name: string; readonly ticket: number }[]>();
  /** Highest acknowledged sequence of each run. */
  private readonly acked = new Map<string, number>();

  constructor(sim: Simulation, name: string) {
    this.sim = sim;
    this.name = name;
  }

  get openCalls(): readonly Ask[] {
    return [...this.calls.values()];
  }

  connect(): void {
    if (this.stream !== undefined) return;
    const { sim } = this;
    const nodes = [...sim.nodes.keys()].filter((node) => node !== this.node || sim.nodes.size === 1);
    const node = nodes[sim.prng.below(nodes.length)];
    this.node = node;
    const stream: ClientStream | undefined =
      node === undefined
        ? undefined
        : sim.openClientStream(
            node,
            (answer) => this.onAnswer(answer),
            () => this.onClosed(stream),
          );
    if (stream === undefined) return sim.schedule.after(20 + sim.prng.below(200), () => this.connect());
    this.stream = stream;
    for (const call of this.calls.values()) this.put(call);
  }

  disconnect(): void {
    const { prng } = this.sim;
    this.stream?.break(prng.below(300), prng.below(100));
  }

  ask(command: Question, options: { isUnnamed?: boolean; onReply?: (reply: ClientReply) => void } = {}): void {
    const call: Call = {
      number: this.next++,
      command,
      isUnnamed: options.isUnnamed ?? false,
      onReply: options.onReply ?? (() => {}),
      floor: this.floorOf(command),
      tries: 0,
      isPutOff: false,
      sentMs: 0,
    };
    this.calls.set(call.number, call);
    this.sim.requests++;
    this.put(call);
  }

  private floorOf({ kind, run }: Question): number {
    if (kind === "query") return this.acked.get(run) ?? -1;
    if (kind !== "describe" && kind !== "history") return 0;
    return this.sim.ackedSize(runPartition(run));
  }

  /**
   * Sends a signal under this client's next number for the run. The next one waits for the reply:
   * what is asked again may overtake nothing.
   */
  signal(run: RunId, name: string, ticket = 0): void {
    const queue = this.queues.get(run);
    if (queue !== undefined) {
      queue.push({ name, ticket });
      return;
    }
    this.queues.set(run, []);
    const next = (): void => {
      const waiting = this.queues.get(run)?.shift();
      if (waiting === undefined) this.queues.delete(run);
      else this.sendSignal(run, waiting, next);
    };
    this.sendSignal(run, { name, ticket }, next);
  }

  private sendSignal(run: RunId, { name, ticket }: { readonly name: string; readonly ticket: number }, onReply: () => void): void {
    const number = (this.signals.get(run) ?? 0) + 1;
    this.signals.set(run, number);
    const id = `${this.name}/${number}`;
    const payload = { data: new TextEncoder().encode(id), ref: undefined };
    this.ask({ kind: "signal", run, ticket, name, payload, id }, { onReply });
  }

  private put(call: Call): void {
    const { sim, stream } = this;
    if (stream === undefined) return;
    call.tries++;
    call.sentMs = sim.schedule.nowMs;
    stream.toServer(call);
    if (sim.strikes("resend")) {
      sim.schedule.after(sim.prng.below(500), () => {
        if (this.calls.has(call.number)) this.stream?.toServer(call);
      });
    }
  }

  /** Turns to another node when one does not answer what should be answered at once. */
  losePatience(ms: number): void {
    const { nowMs } = this.sim.schedule;
    for (const call of this.calls.values()) {
      if (isWait(call.command) || nowMs - call.sentMs < ms) continue;
      return this.disconnect();
    }
  }

  private onAnswer({ number, reply }: Answer): void {
    const call = this.calls.get(number);
    if (call === undefined) return;
    const isRead = call.command.kind === "query" || call.command.kind === "describe" || call.command.kind === "history";
    if (reply.kind === "rejected" && isTransient(reply.rejection) && (!isRead || call.tries < readTriesMax)) {
      if (call.isPutOff) return;
      call.isPutOff = true;
      this.sim.schedule.after(50 + this.sim.prng.below(400), () => {
        call.isPutOff = false;
        if (this.calls.has(number)) this.put(call);
      });
      return;
    }
    this.calls.delete(number);
    this.take(call, reply);
    call.onReply(reply);
  }

  private take({ command, floor }: Call, reply: ClientReply): void {
    const { kind, run } = command;
    if (kind === "signal" && reply.kind === "signalled") this.remember(run, command.id);
    if (reply.kind === "queried") this.queryReadsAckedSignals(run, floor, reply);
    const size = reply.kind === "described" ? (reply.state?.size ?? 0) : reply.kind === "told" ? reply.events.length : floor;
    claim(
      "readsAreLinearizable",
      size >= floor,
      () => `${this.name} is answered a ${kind} of ${run} with ${size} events, ${floor} were acknowledged before it asked`,
    );
    if (reply.kind === "told") this.sim.checkHistory(runPartition(run), reply.events);
  }

  private remember(run: RunId, id: string): void {
    const { events } = this.sim.journal.of(`run/${run}`);
    const e = events.find(({ event }) => event.kind === EventKind.signalReceived && event.body.id === id);
    if (e !== undefined) this.acked.set(run, Math.max(this.acked.get(run) ?? -1, e.seq));
  }

  /** A query that follows an acknowledgement shows what was acknowledged, while the run is live. */
  private queryReadsAckedSignals(run: RunId, floor: number, reply: Extract<Reply, { kind: "queried" }>): void {
    const { model } = this.sim.journal.of(`run/${run}` as Partition);
    const { seen } = JSON.parse(new TextDecoder().decode(reply.result?.data)) as { seen: number };
    // A run whose end is decided was perhaps not told of its last signals, and another may have followed it.
    if (!model.isLive || model.decided !== undefined || seen < (model.started?.seq ?? 0)) return;
    const told = () => `${run} answers as of seq ${seen}, ${this.name} had ${floor} acknowledged before it asked`;
    claim("queryReadsAckedSignals", seen >= floor, told);
  }

  private onClosed(stream: ClientStream | undefined): void {
    if (this.stream !== stream) return;
    this.stream = undefined;
    // Who only reads may have seen enough.
    for (const { number, command } of this.calls.values())
      if (command.kind === "consume" && this.sim.prng.chance(0.5)) this.calls.delete(number);
    this.sim.schedule.after(this.sim.prng.below(200), () => this.connect());
  }
}

/** Answered only when its run ends. */
const isWait = (command: Question) =>
  command.kind === "await-result" || command.kind === "consume" || (command.kind === "start" && command.awaitResult);
