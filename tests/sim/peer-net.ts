/**
 * The network of one life of a node, over simulated wires: what `node/peer` is over TCP.
 *
 * Raft messages are packets. Calls and streams are carried: they arrive in order, or their link
 * breaks and both ends hear of it.
 */
import { HopError, type NodeId, type ShardId } from "#core/base";
import { decodeRaftMessage, encodeRaftMessage, fromBytes, type RaftMessage, type RaftMessageInit, toBytes } from "#proto";
import { Methods } from "../../node/peer/methods.ts";
import { type CallOptions, NotSentError, type PeerNet, type StreamOptions } from "../../node/peer/peer-net.ts";
import { asHopError } from "../../node/service/status.ts";
import type { Timing } from "../../node/timing.ts";
import type { Wires } from "./wires.ts";

export interface PeerNetParts {
  readonly self: NodeId;
  readonly wires: Wires;
  readonly timing: Timing;
  /** The network of a node that lives now. */
  readonly netOf: (node: NodeId) => SimulatedPeerNet | undefined;
  readonly everyone: () => Iterable<NodeId>;
  /** Runs at this node as soon as it is awake; never where its life is over. */
  readonly take: (run: () => void) => void;
}

interface Pending {
  readonly to: NodeId;
  readonly fail: (error: unknown) => void;
}

const beatMs = 100;
/** Beats between two signs of life. */
const aliveBeats = 5;
/** A link on which nothing comes for so long is given up. */
const silentMsMax = 3000;
const callMsDefault = 10_000;
const noBytes = new Uint8Array(0);

export class SimulatedPeerNet implements PeerNet {
  readonly self: NodeId;
  readonly address: string;
  onRaft: PeerNet["onRaft"] = () => {};
  onReachable: PeerNet["onReachable"] = () => {};
  onUnreachable: PeerNet["onUnreachable"] = () => {};
  beatPayload: PeerNet["beatPayload"] = () => undefined;
  onBeat: PeerNet["onBeat"] = () => {};
  private readonly parts: PeerNetParts;
  private readonly methods = new Methods();
  private readonly pending = new Set<Pending>();
  private readonly serving = new Map<NodeId, Set<AbortController>>();
  private readonly heard = new Map<NodeId, number>();
  private readonly lost = new Set<NodeId>();
  private beats = 0;
  private isClosed = false;

  constructor(parts: PeerNetParts) {
    this.parts = parts;
    this.self = parts.self;
    this.address = `10.0.0.${parts.self}:7072`;
  }

  start(): void {
    this.parts.timing.after(beatMs, () => {
      if (this.isClosed) return;
      this.beat();
      this.start();
    });
  }

  sendRaft(to: NodeId, _shard: ShardId, message: RaftMessageInit): boolean {
    if (this.isClosed) return false;
    // What holds only numbers is the same on both sides, and most messages do.
    const isPlain = (message.entries?.length ?? 0) === 0 && message.snapshot === undefined;
    const sent = isPlain ? (message as RaftMessage) : toBytes(encodeRaftMessage, message);
    this.parts.wires.packet(this.self, to, () => this.parts.netOf(to)?.takeRaft(this.self, sent));
    return true;
  }

  private takeRaft(from: NodeId, sent: RaftMessage | Uint8Array): void {
    this.parts.take(() => {
      this.hear(from);
      const message: RaftMessage = sent instanceof Uint8Array ? fromBytes(decodeRaftMessage, sent) : { ...sent };
      this.onRaft(from, message.shard as ShardId, message);
    });
  }

  call(to: NodeId, method: string, body: Uint8Array, options: CallOptions = {}): Promise<Uint8Array> {
    const asked = body.slice();
    return this.ask(to, { timeoutMs: callMsDefault, ...options }, async (net, gone) => {
      const answer = await net.methods.call(method, this.self)(this.self, asked, gone.signal);
      return answer.slice();
    });
  }

  callAt(): Promise<Uint8Array> {
    return Promise.reject(new NotSentError("Cannot reach an address in the simulation"));
  }

  streamAt(): AsyncIterable<Uint8Array> {
    throw new NotSentError("Cannot reach an address in the simulation");
  }

  serve: PeerNet["serve"] = (method, handler, options) => this.methods.serve(method, handler, options);
  serveStream: PeerNet["serveStream"] = (method, handler, options) => this.methods.serveStream(method, handler, options);

  async *stream(to: NodeId, method: string, body: Uint8Array, options: StreamOptions = {}): AsyncGenerator<Uint8Array> {
    const asked = body.slice();
    let served: AsyncIterator<Uint8Array> | undefined;
    let server: SimulatedPeerNet | undefined;
    // The next chunk is made while one is on its way.
    let next: Promise<IteratorResult<Uint8Array>> | undefined;
    let stop = (): void => {};
    try {
      for (;;) {
        const step = await this.ask(to, options, async (net, gone) => {
          if (server !== undefined && server !== net) throw new HopError("STORE_UNAVAILABLE", `Node ${to} was started again`);
          server = net;
          if (served === undefined) {
            served = net.methods.stream(method, this.self)(this.self, asked, gone.signal)[Symbol.asyncIterator]();
            const made = served;
            stop = () => {
              gone.abort();
              void made.return?.().catch(() => {});
            };
          }
          const step = await (next ?? served.next());
          if (step.done === true) return undefined;
          next = served.next();
          next.catch(() => {});
          return step.value.slice();
        });
        if (step === undefined) return;
        yield step;
      }
    } finally {
      this.parts.wires.carry(this.self, to, () => this.parts.netOf(to)?.parts.take(stop), stop);
    }
  }

  setPeers(): void {}

  lastHeardMs(node: NodeId): number {
    return this.heard.get(node) ?? 0;
  }

  close(): void {
    this.isClosed = true;
    this.pending.clear();
  }

  /** The other end is gone, or silent: what is under way with it is over. */
  lose(node: NodeId): void {
    if (this.isClosed) return;
    const broken = new HopError("STORE_UNAVAILABLE", `The link to node ${node} broke`);
    const hadLink = this.pendingWith(node);
    for (const each of [...this.pending]) if (each.to === node) each.fail(broken);
    for (const gone of this.serving.get(node) ?? []) gone.abort();
    this.serving.delete(node);
    // The other end hears of it, sooner or later.
    const tell = (): void => {
      const net = this.parts.netOf(node);
      net?.parts.take(() => net.lose(this.self));
    };
    if (hadLink) this.parts.wires.carry(this.self, node, tell, tell);
    if (this.lost.has(node)) return;
    this.lost.add(node);
    this.onUnreachable(node);
  }

  private hear(from: NodeId): void {
    this.heard.set(from, this.parts.timing.monotonicMs());
    if (this.lost.delete(from)) this.onReachable(from);
  }

  /** One question and its answer. `work` runs at the other node. */
  private ask<T>(to: NodeId, options: CallOptions, work: (net: SimulatedPeerNet, gone: AbortController) => Promise<T>): Promise<T> {
    if (this.isClosed) return new Promise(() => {});
    return new Promise((resolve, reject) => {
      const { timing } = this.parts;
      let stopTimer = (): void => {};
      const gone = new AbortController();
      const settle = (): boolean => {
        stopTimer();
        options.signal?.removeEventListener("abort", onAbort);
        return this.pending.delete(pending);
      };
      const fail = (error: unknown): void => {
        if (settle()) reject(asHopError(error));
      };
      const pending: Pending = { to, fail };
      const giveUp = (error: unknown): void => {
        fail(error);
        if (to !== this.self)
          this.parts.wires.carry(
            this.self,
            to,
            () => gone.abort(),
            () => gone.abort(),
          );
        else gone.abort();
      };
      const onAbort = (): void => giveUp(options.signal?.reason);
      this.pending.add(pending);
      options.signal?.addEventListener("abort", onAbort);
      const { timeoutMs } = options;
      if (timeoutMs !== undefined && timeoutMs < 2 ** 31 - 1)
        stopTimer = timing.after(timeoutMs, () => giveUp(new HopError("BUDGET_EXPIRED", `No answer of node ${to} within ${timeoutMs} ms`)));
      const answered = (value: T): void => {
        if (settle()) resolve(value);
      };
      if (to === this.self) void work(this, gone).then(answered, fail);
      else this.carry(to, { work, gone, answered, fail });
    });
  }

  private carry<T>(
    to: NodeId,
    question: {
      readonly work: (net: SimulatedPeerNet, gone: AbortController) => Promise<T>;
      readonly gone: AbortController;
      readonly answered: (value: T) => void;
      readonly fail: (error: unknown) => void;
    },
  ): void {
    const { wires, take } = this.parts;
    const { work, gone, answered, fail } = question;
    const broken = () => take(() => this.lose(to));
    const arrive = (): void => {
      const net = this.parts.netOf(to);
      if (net === undefined) return wires.carry(to, this.self, () => take(() => fail(new NotSentError(`Cannot reach node ${to}`))), broken);
      net.parts.take(() =>
        net.answer(
          this.self,
          gone,
          () => work(net, gone),
          (run) =>
            wires.carry(
              to,
              this.self,
              () =>
                take(() => {
                  this.hear(to);
                  run();
                }),
              broken,
            ),
          answered,
          fail,
        ),
      );
    };
    wires.carry(this.self, to, arrive, broken);
  }

  /** Works for another node, and has the answer brought back. */
  private answer<T>(
    from: NodeId,
    gone: AbortController,
    work: () => Promise<T>,
    back: (run: () => void) => void,
    answered: (value: T) => void,
    fail: (error: unknown) => void,
  ): void {
    this.hear(from);
    const under = this.serving.get(from) ?? new Set();
    this.serving.set(from, under.add(gone));
    const over = () => under.delete(gone);
    work().then(
      (value) => {
        over();
        if (!this.isClosed) back(() => answered(value));
      },
      (error: unknown) => {
        over();
        if (!this.isClosed) back(() => fail(error));
      },
    );
  }

  private beat(): void {
    this.beats++;
    const isAlive = this.beats % aliveBeats === 0;
    for (const to of this.parts.everyone()) {
      if (to === this.self) continue;
      const payload = this.beatPayload(to)?.slice();
      if (payload !== undefined || isAlive)
        this.parts.wires.packet(this.self, to, () => this.parts.netOf(to)?.takeBeat(this.self, payload ?? noBytes));
      if (isAlive && this.pendingWith(to) && this.parts.timing.monotonicMs() - this.lastHeardMs(to) > silentMsMax) this.lose(to);
    }
  }

  private pendingWith(node: NodeId): boolean {
    if ((this.serving.get(node)?.size ?? 0) > 0) return true;
    for (const { to } of this.pending) if (to === node) return true;
    return false;
  }

  private takeBeat(from: NodeId, payload: Uint8Array): void {
    this.parts.take(() => {
      this.hear(from);
      if (payload.length > 0) this.onBeat(from, payload);
    });
  }
}
