/**
 * A link that another node dialed: its questions are answered here, and its Raft messages and
 * beats are taken.
 *
 * The first item must be a good hello; nothing else has any effect. A refusal is said before the
 * link ends. What nobody waits for any more is told so through its signal.
 */
import { asNodeId, asShardId, errorText, HopError, type NodeId } from "#core/base";
import { CodecError, decodeRaftMessage, fromBytes, type PeerHello, type PeerItem, type RaftMessage } from "#proto";
import type { Closing, Connection, Receiver, SocketPeer } from "#proto/connection";
import { chunkCost } from "./ask.ts";
import { protocol, type Refusal, type Self } from "./greeting.ts";
import type { Methods } from "./methods.ts";
import { frameBounds, peerBounds } from "./peer-bounds.ts";
import type { OutItem } from "./peer-codec.ts";
import type { CallHandler, StreamHandler } from "./peer-net.ts";

export interface AcceptParts {
  readonly self: () => Self;
  readonly methods: Methods;
  /** Why the hello is refused; where it is not, `link` is the node's from now on. */
  readonly greet: (link: AcceptedLink, hello: PeerHello) => Refusal | undefined;
  readonly refused: (peer: SocketPeer, hello: PeerHello | undefined, refusal: Refusal) => void;
  readonly heard: (node: NodeId, nowMs: number) => void;
  readonly raft: (from: NodeId, shard: ReturnType<typeof asShardId>, message: RaftMessage) => void;
  readonly beat: (from: NodeId, payload: Uint8Array) => void;
  readonly closed: (link: AcceptedLink, closing: Closing) => void;
  /** A handler threw what is no refusal. */
  readonly fault: (method: string, error: unknown) => void;
}

/** One question that is being answered. */
interface Answering {
  readonly gone: AbortController;
  /** A stream's: more credit for its chunks. */
  credit?: (bytes: number) => void;
}

export class AcceptedLink implements Receiver<PeerItem> {
  /** Who dialed; undefined before a good hello. */
  hello: PeerHello | undefined;
  readonly peer: SocketPeer;
  private readonly connection: Connection<OutItem>;
  private readonly parts: AcceptParts;
  private readonly open = new Map<number, Answering>();
  private isRefused = false;
  private heardMs = performance.now();

  constructor(connection: Connection<OutItem>, peer: SocketPeer, parts: AcceptParts) {
    this.connection = connection;
    this.peer = peer;
    this.parts = parts;
  }

  get node(): NodeId {
    return asNodeId(this.hello?.node ?? 0);
  }

  item(item: PeerItem): void {
    if (this.isRefused) return;
    if (this.hello === undefined) {
      this.greet(item);
      return;
    }
    this.heardMs = performance.now();
    if (this.hello.node !== 0) this.parts.heard(this.node, this.heardMs);
    this.take(item);
  }

  /** The side that dials ends a link by closing it. */
  ended(): void {
    this.connection.close("The peer ended the link");
  }

  closed(closing: Closing): void {
    const open = [...this.open.values()];
    this.open.clear();
    for (const { gone } of open) gone.abort();
    this.parts.closed(this, closing);
  }

  tick(nowMs: number, wasPaused: boolean): void {
    if (wasPaused) this.heardMs = nowMs;
    if (this.hello !== undefined && nowMs - this.heardMs > peerBounds.silenceMs)
      this.connection.close(`Nothing was heard from node ${this.node} for ${Math.round(nowMs - this.heardMs)} ms`);
  }

  close(reason: string): void {
    this.connection.close(reason);
  }

  private greet(item: PeerItem): void {
    if (item.kind !== "hello") {
      this.refuse(undefined, { rule: "BAD_HELLO", message: `its first item is ${item.kind}, want hello` });
      return;
    }
    const refusal = this.parts.greet(this, item.value);
    if (refusal !== undefined) {
      this.refuse(item.value, refusal);
      return;
    }
    this.hello = item.value;
    this.heardMs = performance.now();
    this.peer.admit();
    const { clusterId, nodeId, version, life } = this.parts.self();
    const spoken = Math.min(item.value.protocolMax, protocol.max);
    this.connection.send({ kind: "welcome", value: { clusterId, node: nodeId, version, protocol: spoken, life } });
  }

  private refuse(hello: PeerHello | undefined, refusal: Refusal): void {
    this.isRefused = true;
    this.connection.send({ kind: "refuse", value: refusal });
    this.connection.end();
    this.parts.refused(this.peer, hello, refusal);
  }

  private take(item: PeerItem): void {
    switch (item.kind) {
      case "raft":
        this.requireMember(item.kind);
        this.parts.raft(this.node, asShardId(item.value.shard), fromBytes(decodeRaftMessage, item.value.message));
        return;
      case "beat":
        this.connection.send({ kind: "echo", value: { number: item.value.number } });
        if (this.node !== 0) this.parts.beat(this.node, item.value.payload);
        return;
      case "call":
        this.call(item.value.id, item.value.method, item.value.body);
        return;
      case "open":
        this.stream(item.value.id, item.value.method, { body: item.value.body, window: item.value.window });
        return;
      case "credit":
        this.open.get(item.value.id)?.credit?.(item.value.bytes);
        return;
      case "cancel": {
        const answering = this.open.get(item.value.id);
        this.open.delete(item.value.id);
        answering?.gone.abort();
        return;
      }
      case "unknown":
        return;
      default:
        throw new CodecError(`Cannot read ${item.kind} of a peer: the side that dials does not send it`);
    }
  }

  private requireMember(what: string): void {
    if (this.node === 0) throw new CodecError(`Cannot read ${what} of a peer: it is joining`);
  }

  private begin(id: number): Answering | undefined {
    if (this.open.has(id)) throw new CodecError(`Cannot read a question: number ${id} is being answered`);
    if (this.open.size >= peerBounds.asksMax) {
      this.fail(id, new HopError("BUFFER_FULL", `Cannot answer: ${peerBounds.asksMax} questions of this link are being answered`));
      return undefined;
    }
    const answering: Answering = { gone: new AbortController() };
    this.open.set(id, answering);
    return answering;
  }

  private call(id: number, method: string, body: Uint8Array): void {
    const answering = this.begin(id);
    if (answering === undefined) return;
    this.answer({ id, method, body }, answering).catch((error: unknown) => this.failed(id, answering, { method, error }));
  }

  private async answer(call: { id: number; method: string; body: Uint8Array }, answering: Answering): Promise<void> {
    const { id, method, body } = call;
    const handle: CallHandler = this.parts.methods.call(method, this.node);
    const answer = await handle(this.node, body, answering.gone.signal);
    if (this.open.get(id) !== answering) return;
    this.requireRoom(answer.length);
    this.open.delete(id);
    this.connection.send({ kind: "answer", value: { id, body: answer } });
  }

  private stream(id: number, method: string, { body, window }: { body: Uint8Array; window: number }): void {
    const answering = this.begin(id);
    if (answering === undefined) return;
    this.pour({ id, method, body, window }, answering).catch((error: unknown) => this.failed(id, answering, { method, error }));
  }

  private async pour(asked: { id: number; method: string; body: Uint8Array; window: number }, answering: Answering): Promise<void> {
    const { id, method, body, window } = asked;
    const { gone } = answering;
    let credit = Math.min(window, peerBounds.windowBytesMax);
    let wake = () => {};
    answering.credit = (bytes) => {
      credit = Math.min(credit + bytes, peerBounds.windowBytesMax);
      wake();
    };
    const isWanted = () => this.open.get(id) === answering;
    const handle: StreamHandler = this.parts.methods.stream(method, this.node);
    const chunks = handle(this.node, body, gone.signal)[Symbol.asyncIterator]();
    // Where the handler waits for something, it is left when that comes: it is told to look at its signal.
    const leave = () => {
      wake();
      chunks.return?.().catch(() => {});
    };
    gone.signal.addEventListener("abort", leave);
    try {
      while (isWanted()) {
        if (credit <= 0) {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
          continue;
        }
        const { done, value } = await chunks.next();
        if (!isWanted()) return;
        if (done === true) {
          this.open.delete(id);
          this.connection.send({ kind: "end", value: { id } });
          return;
        }
        if (value.length > peerBounds.chunkBytesMax)
          throw new HopError(
            "PAYLOAD_TOO_LARGE",
            `A chunk of ${method} has ${value.length} bytes, at most ${peerBounds.chunkBytesMax} are allowed`,
          );
        this.requireRoom(value.length);
        credit -= chunkCost(value);
        this.connection.send({ kind: "chunk", value: { id, body: value } });
      }
    } finally {
      gone.signal.removeEventListener("abort", leave);
      chunks.return?.().catch(() => {});
    }
  }

  private requireRoom(bytes: number): void {
    const waiting = this.connection.bufferedBytes;
    if (bytes > frameBounds.frameBytesMax - 4096)
      throw new HopError("PAYLOAD_TOO_LARGE", `The answer has ${bytes} bytes, at most ${frameBounds.frameBytesMax - 4096} are allowed`);
    if (waiting > 0 && waiting + bytes > peerBounds.askBytesMax)
      throw new HopError(
        "STORE_UNAVAILABLE",
        `The answer can't be sent: ${waiting} bytes wait for the link already, at most ${peerBounds.askBytesMax} may`,
      );
  }

  private failed(id: number, answering: Answering, { method, error }: { method: string; error: unknown }): void {
    if (this.open.get(id) !== answering) return;
    this.open.delete(id);
    if (error instanceof HopError) {
      this.fail(id, error);
      return;
    }
    this.parts.fault(method, error);
    this.fail(id, new HopError("INTERNAL", `${method} failed: ${errorText(error)}`));
  }

  private fail(id: number, { reason, message, retryAfterMs, epoch }: HopError): void {
    this.connection.send({ kind: "fail", value: { id, reason, message, retryAfterMs, epoch } });
  }
}
