/**
 * The link that this node dials to one other: it asks here, sends its Raft messages and shows that
 * it lives. It is made when it is first needed, and again after it broke.
 *
 * Nothing but the hello is sent before the welcome. What was asked when the link breaks fails;
 * while the link rests before the next dial, asks fail at once.
 */
import { errorText, HopError, type NodeId, type Reason, reasons, type ShardId } from "#core/base";
import { CodecError, type PeerFail, type PeerItem, type RaftMessageInit } from "#proto";
import { type Connection, connectSocket, type SocketTls } from "#proto/connection";
import { hostAndPort } from "../config.ts";
import type { Ask, AskRoad } from "./ask.ts";
import { protocol, type Self, welcomeProblem } from "./greeting.ts";
import { frameBounds, peerBounds } from "./peer-bounds.ts";
import { type OutItem, peerCodec } from "./peer-codec.ts";
import { NotSentError, type PeerPlace } from "./peer-net.ts";
import { SendLedger } from "./send-ledger.ts";

export interface DialParts {
  readonly self: () => Self;
  /** Addresses that a name stands for now. */
  readonly resolve: (host: string) => Promise<readonly string[]>;
  readonly tls: SocketTls | undefined;
  /** 0 … 1. */
  readonly random: () => number;
  readonly heard: (node: NodeId, nowMs: number) => void;
  readonly up: (link: DialedLink) => void;
  /** The link broke, or could not be made. */
  readonly down: (link: DialedLink, problem: string) => void;
  readonly refused: (link: DialedLink, refusal: { readonly rule: string; readonly message: string }) => void;
  readonly beatPayload: (to: NodeId) => Uint8Array | undefined;
}

type State =
  /** Not needed so far. */
  | { readonly kind: "idle" }
  | { readonly kind: "dialing"; connection?: Connection<OutItem>; readonly timer: ReturnType<typeof setTimeout> }
  | { readonly kind: "up"; readonly connection: Connection<OutItem>; readonly ledger: SendLedger }
  | { readonly kind: "resting"; readonly until: number; readonly timer: ReturnType<typeof setTimeout> | undefined }
  | { readonly kind: "closed" };

/** Room for what stands in an item beside its body. */
const bodyBytesMax = frameBounds.frameBytesMax - 4096;

export class DialedLink implements AskRoad {
  /** 0: whoever is at the place. */
  readonly node: NodeId;
  readonly place: PeerPlace;
  /** Why the last link broke or could not be made. */
  problem = "";
  /** The rule by which it was refused, if it was. */
  private rule: string | undefined;
  /** Raft messages that were not taken. */
  droppedCount = 0;
  private readonly parts: DialParts;
  private state: State = { kind: "idle" };
  private readonly open = new Map<number, Ask>();
  private readonly waiting = new Set<Ask>();
  private waitingBytes = 0;
  private lastId = 0;
  private failures = 0;
  private dials = 0;
  private heardMs = 0;
  private beatMs = 0;
  private beatNumber = 0;
  private usedMs = performance.now();

  constructor(node: NodeId, place: PeerPlace, parts: DialParts) {
    this.node = node;
    this.place = place;
    this.parts = parts;
  }

  get isUp(): boolean {
    return this.state.kind === "up";
  }

  /** Nothing is asked here, nor was for `ms`. */
  isIdleFor(ms: number, nowMs: number): boolean {
    return this.open.size + this.waiting.size === 0 && nowMs - this.usedMs > ms;
  }

  sendRaft(shard: ShardId, message: RaftMessageInit): boolean {
    const { state } = this;
    if (state.kind === "idle") this.dial();
    if (state.kind !== "up" || state.ledger.bytes("raft") > peerBounds.raftBytesMax) {
      this.droppedCount++;
      return false;
    }
    this.put(state, "raft", { kind: "raftOf", shard, message });
    return true;
  }

  /** Sends the ask, at once or when the link is up. An ask that can't be sent fails. */
  ask(ask: Ask): void {
    this.usedMs = performance.now();
    const problem = this.askProblem(ask);
    if (problem !== undefined) {
      ask.fail(problem);
      return;
    }
    if (this.state.kind === "up") {
      this.start(this.state, ask);
      return;
    }
    this.waiting.add(ask);
    this.waitingBytes += ask.body.length;
    if (this.state.kind === "idle") this.dial();
  }

  giveUp(ask: Ask): void {
    if (this.waiting.delete(ask)) this.waitingBytes -= ask.body.length;
    if (!this.open.delete(ask.id)) return;
    this.usedMs = performance.now();
    if (this.state.kind === "up") this.state.connection.send({ kind: "cancel", value: { id: ask.id } });
  }

  credit(ask: Ask, bytes: number): void {
    if (this.state.kind === "up" && this.open.has(ask.id)) this.state.connection.send({ kind: "credit", value: { id: ask.id, bytes } });
  }

  /** Shows that this node lives, and gives up a peer that does not. After a pause of this process, nobody's silence counts. */
  tick(nowMs: number, wasPaused: boolean): void {
    const { state } = this;
    if (state.kind !== "up") return;
    if (wasPaused) this.heardMs = nowMs;
    if (nowMs - this.heardMs > peerBounds.silenceMs) {
      state.connection.close(`Nothing was heard from ${this.name} for ${Math.round(nowMs - this.heardMs)} ms`);
      return;
    }
    const payload = this.node === 0 ? undefined : this.parts.beatPayload(this.node);
    if (payload === undefined && nowMs - this.beatMs < peerBounds.idleBeatMs) return;
    this.beatMs = nowMs;
    state.connection.send({ kind: "beat", value: { number: ++this.beatNumber, payload } });
  }

  /** The peer is there: it is not rested any longer. */
  hurry(): void {
    if (this.state.kind !== "resting") return;
    clearTimeout(this.state.timer);
    this.dial();
  }

  close(reason: string): void {
    const { state } = this;
    if (state.kind === "closed") return;
    this.state = { kind: "closed" };
    if (state.kind === "dialing" || state.kind === "resting") clearTimeout(state.timer);
    if (state.kind === "dialing" || state.kind === "up") state.connection?.close(reason);
    this.failAll(reason);
  }

  get name(): string {
    return this.node === 0 ? this.place.address : `node ${this.node} at ${this.place.address}`;
  }

  private askProblem(ask: Ask): HopError | undefined {
    const { state } = this;
    if (ask.body.length > bodyBytesMax)
      return new HopError(
        "PAYLOAD_TOO_LARGE",
        `Cannot ask ${this.name}: the request has ${ask.body.length} bytes, at most ${bodyBytesMax} are allowed`,
      );
    if (state.kind === "closed") return new NotSentError(`Cannot ask ${this.name}: ${this.problem || "the link was closed"}`);
    if (state.kind === "resting") {
      const retryAfterMs = Math.max(Math.ceil(state.until - performance.now()), 1);
      return new NotSentError(`Cannot reach ${this.name}: ${this.problem}`, { retryAfterMs, rule: this.rule });
    }
    const bytes = this.waitingBytes + (state.kind === "up" ? state.ledger.bytes("ask") : 0);
    if (bytes > 0 && bytes + ask.body.length > peerBounds.askBytesMax)
      return new NotSentError(`Cannot ask ${this.name}: ${bytes} bytes wait for it already, at most ${peerBounds.askBytesMax} may`);
    if (this.open.size + this.waiting.size >= peerBounds.asksMax)
      return new NotSentError(`Cannot ask ${this.name}: it was asked ${peerBounds.asksMax} things that it has not answered yet`);
    return undefined;
  }

  private start(state: State & { kind: "up" }, ask: Ask): void {
    ask.id = ++this.lastId;
    this.open.set(ask.id, ask);
    this.put(state, "ask", ask.item(ask.id));
  }

  private put(state: State & { kind: "up" }, kind: "raft" | "ask", item: OutItem): void {
    const { connection, ledger } = state;
    const before = connection.bufferedBytes;
    connection.send(item);
    ledger.add(kind, connection.bufferedBytes - before);
  }

  private dial(): void {
    const timer = setTimeout(() => give(`it said nothing within ${peerBounds.helloMs} ms`), peerBounds.helloMs);
    const state: State & { kind: "dialing" } = { kind: "dialing", timer };
    const give = (problem: string) => {
      if (this.state !== state) return;
      this.lost(problem);
      state.connection?.close(problem);
    };
    this.state = state;
    this.connect(state).catch((error: unknown) => give(errorText(error)));
  }

  private async connect(state: State & { kind: "dialing" }): Promise<void> {
    const { host, port } = hostAndPort(this.place.address, "a peer's address");
    const found = await this.parts.resolve(host);
    if (this.state !== state) return;
    // One of several addresses may be dead: each dial takes the next.
    const hostname = found[this.dials++ % found.length];
    if (hostname === undefined) throw new Error(`${host} has no address`);
    const tls =
      this.parts.tls === undefined
        ? undefined
        : { ...this.parts.tls, serverName: this.parts.tls.serverName ?? this.place.serverName ?? host };
    connectSocket(
      { hostname, port: port ?? 0 },
      peerCodec,
      frameBounds,
      (connection) => {
        state.connection = connection;
        this.hello(connection);
        const isOwn = () => "connection" in this.state && this.state.connection === connection;
        return {
          item: (item) => void (isOwn() && this.take(connection, item)),
          ended: () => {},
          closed: ({ message }) => void (isOwn() && this.lost(message)),
        };
      },
      tls,
    );
  }

  private hello(connection: Connection<OutItem>): void {
    const { clusterId, nodeId, version, advertised, life } = this.parts.self();
    const own = { clusterId, node: nodeId, version, advertised, life };
    connection.send({ kind: "hello", value: { ...own, protocolMin: protocol.min, protocolMax: protocol.max, wanted: this.node } });
  }

  private take(connection: Connection<OutItem>, item: PeerItem): void {
    if (item.kind === "refuse") {
      const { rule, message } = item.value;
      this.turnedAway(connection, { rule: rule.slice(0, 64), message: `it refused this node: ${message.slice(0, 512)}` });
      return;
    }
    if (this.state.kind === "dialing") {
      if (item.kind !== "welcome") throw new CodecError(`Cannot read ${item.kind} of a peer: it has not said welcome`);
      const problem = welcomeProblem(this.parts.self(), this.node, item.value);
      if (problem === undefined) this.welcomed(connection);
      else this.turnedAway(connection, problem);
      return;
    }
    this.heardMs = performance.now();
    if (this.node !== 0) this.parts.heard(this.node, this.heardMs);
    this.answered(item);
  }

  private turnedAway(connection: Connection<OutItem>, refusal: { readonly rule: string; readonly message: string }): void {
    this.lost(refusal.message, refusal.rule);
    connection.close(refusal.message);
    this.parts.refused(this, refusal);
  }

  private welcomed(connection: Connection<OutItem>): void {
    if (this.state.kind === "dialing") clearTimeout(this.state.timer);
    const state = { kind: "up", connection, ledger: new SendLedger(() => connection.bufferedBytes) } as const;
    this.state = state;
    this.failures = 0;
    this.problem = "";
    this.heardMs = performance.now();
    this.beatMs = this.heardMs;
    if (this.node !== 0) this.parts.heard(this.node, this.heardMs);
    const asks = [...this.waiting];
    this.waiting.clear();
    this.waitingBytes = 0;
    for (const ask of asks) this.start(state, ask);
    this.parts.up(this);
  }

  private answered(item: PeerItem): void {
    if (item.kind === "echo" || item.kind === "unknown") return;
    if (item.kind !== "answer" && item.kind !== "chunk" && item.kind !== "end" && item.kind !== "fail")
      throw new CodecError(`Cannot read ${item.kind} of a peer: only the side that dials sends it`);
    const { id } = item.value;
    const ask = this.open.get(id);
    // It was given up; the peer did not know yet.
    if (ask === undefined) return;
    if (item.kind !== "chunk") {
      this.open.delete(id);
      this.usedMs = performance.now();
    }
    if (item.kind === "fail") {
      ask.fail(refusalOf(item.value));
      return;
    }
    const isTaken = item.kind === "answer" ? ask.answer(item.value.body) : item.kind === "chunk" ? ask.chunk(item.value.body) : ask.end();
    if (isTaken) return;
    ask.fail(new HopError("STORE_UNAVAILABLE", `Cannot read what ${this.name} answers: its ${item.kind} is none that was asked for`));
    throw new CodecError(`Cannot read ${item.kind} of a peer: it is none that was asked for`);
  }

  private lost(problem: string, rule?: string): void {
    const { state } = this;
    if (state.kind === "dialing") clearTimeout(state.timer);
    this.problem = problem;
    this.rule = rule;
    const longest = Math.min(peerBounds.backoffMinMs * 2 ** Math.min(this.failures++, 16), peerBounds.backoffMaxMs);
    const restMs = longest * (0.5 + this.parts.random() / 2);
    // Whoever is at an address is not dialed again by itself.
    const timer = this.node === 0 ? undefined : setTimeout(() => this.dial(), restMs);
    this.state = { kind: "resting", until: performance.now() + restMs, timer };
    this.failAll(problem);
    this.parts.down(this, problem);
  }

  private failAll(problem: string): void {
    const unsent = [...this.waiting];
    const unanswered = [...this.open.values()];
    this.waiting.clear();
    this.waitingBytes = 0;
    this.open.clear();
    for (const ask of unsent) ask.fail(new NotSentError(`Cannot reach ${this.name}: ${problem}`, { rule: this.rule }));
    for (const ask of unanswered)
      ask.fail(new HopError("STORE_UNAVAILABLE", `The link to ${this.name} broke before it answered: ${problem}`));
  }
}

function refusalOf({ reason, message, retryAfterMs, epoch }: PeerFail): HopError {
  const isKnown = Object.hasOwn(reasons, reason);
  return new HopError(isKnown ? (reason as Reason) : "INTERNAL", isKnown ? message : `${reason}: ${message}`, { retryAfterMs, epoch });
}
