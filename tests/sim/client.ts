/**
 * A client under the simulator: asks, waits, asks again after its stream broke or its patience
 * ended, and knows what it was promised.
 */
import type { Reply, RunId } from "#core/base";
import type { Command } from "#core/shard";
import { EventKind } from "#proto";
import type { SimulatedStream } from "./network.ts";
import type { Simulation } from "./simulation.ts";
import { claim } from "./violation.ts";

/** A request on its way. `isUnnamed`: the server makes up the run's name. */
export interface Ask {
  readonly number: number;
  readonly command: Command;
  readonly isUnnamed: boolean;
}

export interface Answer {
  readonly number: number;
  readonly reply: Reply;
}

export type ClientStream = SimulatedStream<Ask, Answer>;

interface Call extends Ask {
  readonly onReply: (reply: Reply) => void;
  /** Queries: the answer must show at least this. */
  readonly floorSeq: number;
}

const transient: ReadonlySet<string> = new Set(["NO_SPACE", "BUFFER_FULL", "STORE_UNAVAILABLE"]);

export class SimulatedClient {
  readonly name: string;
  private readonly sim: Simulation;
  private stream: ClientStream | undefined;
  private readonly calls = new Map<number, Call>();
  private next = 1;
  private readonly signals = new Map<string, number>();
  private readonly queues = new Map<string, string[]>();
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
    const stream: ClientStream | undefined = this.sim.openClientStream(
      (answer) => this.onAnswer(answer),
      () => this.onClosed(stream),
    );
    if (stream === undefined) return this.sim.schedule.after(20 + this.sim.prng.below(200), () => this.connect());
    this.stream = stream;
    for (const call of this.calls.values()) stream.toServer(call);
  }

  disconnect(): void {
    const { prng } = this.sim;
    this.stream?.break(prng.below(300), prng.below(100));
  }

  ask(command: Command, options: { isUnnamed?: boolean; onReply?: (reply: Reply) => void } = {}): void {
    const floorSeq = command.kind === "query" ? (this.acked.get(command.run) ?? -1) : -1;
    const call: Call = {
      number: this.next++,
      command,
      isUnnamed: options.isUnnamed ?? false,
      onReply: options.onReply ?? (() => {}),
      floorSeq,
    };
    this.calls.set(call.number, call);
    this.put(call);
  }

  /**
   * Sends a signal under this client's next number for the run.
   *
   * What is refused and asked again may overtake nothing, so where a refusal is not for good the
   * next one waits for the reply to the one before.
   */
  signal(run: RunId, name: string): void {
    const isForGood = run.includes(":wf_") && !this.sim.workload.timed.has("diskFull");
    if (isForGood) return this.sendSignal(run, name, () => {});
    const queue = this.queues.get(run);
    if (queue !== undefined) {
      queue.push(name);
      return;
    }
    this.queues.set(run, []);
    const next = (): void => {
      const waiting = this.queues.get(run)?.shift();
      if (waiting === undefined) this.queues.delete(run);
      else this.sendSignal(run, waiting, next);
    };
    this.sendSignal(run, name, next);
  }

  private sendSignal(run: RunId, name: string, onReply: () => void): void {
    const number = (this.signals.get(run) ?? 0) + 1;
    this.signals.set(run, number);
    const id = `${this.name}/${number}`;
    const payload = { data: new TextEncoder().encode(id), ref: undefined };
    this.ask({ kind: "signal", run, name, payload, id }, { onReply });
  }

  private put(call: Call): void {
    this.stream?.toServer(call);
    if (this.stream !== undefined && this.sim.strikes("resend")) {
      this.sim.schedule.after(this.sim.prng.below(500), () => {
        if (this.calls.has(call.number)) this.stream?.toServer(call);
      });
    }
  }

  private onAnswer({ number, reply }: Answer): void {
    const call = this.calls.get(number);
    if (call === undefined) return;
    if (
      reply.kind === "rejected" &&
      transient.has(reply.rejection.reject) &&
      call.command.kind !== "signal" &&
      call.command.kind !== "query"
    ) {
      this.sim.schedule.after(100 + this.sim.prng.below(400), () => {
        if (this.calls.has(number)) this.put(call);
      });
      return;
    }
    this.calls.delete(number);
    if (call.command.kind === "signal" && reply.kind === "signalled") this.remember(call.command);
    if (reply.kind === "queried") this.queryReadsAckedSignals(call, reply);
    call.onReply(reply);
  }

  private remember({ run, id }: { readonly run: RunId; readonly id: string }): void {
    const { events } = this.sim.journal.of(`run/${run}`);
    const e = events.find(({ event }) => event.kind === EventKind.signalReceived && event.body.id === id);
    if (e !== undefined) this.acked.set(run, Math.max(this.acked.get(run) ?? -1, e.seq));
  }

  /** A query that follows an acknowledgement shows what was acknowledged, while the run is live. */
  private queryReadsAckedSignals(call: Call, reply: Extract<Reply, { kind: "queried" }>): void {
    const { model } = this.sim.journal.of(`run/${call.command.run}`);
    const { seen } = JSON.parse(new TextDecoder().decode(reply.result?.data)) as { seen: number };
    // An ended run may have ended without being told of its last signals, and another may have followed it.
    if (!model.isLive || seen < (model.started?.seq ?? 0)) return;
    claim(
      "queryReadsAckedSignals",
      seen >= call.floorSeq,
      () => `${call.command.run} answers as of seq ${seen}, ${this.name} had ${call.floorSeq} acknowledged before it asked`,
    );
  }

  private onClosed(stream: ClientStream | undefined): void {
    if (this.stream !== stream) return;
    this.stream = undefined;
    this.sim.schedule.after(this.sim.prng.below(200), () => this.connect());
  }
}
