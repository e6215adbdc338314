/**
 * The network between nodes over framed TCP, with TLS where it is told to: one link that this
 * node dials to each peer, and one that each peer dials to it.
 */
import { randomBytes } from "node:crypto";
import { asNodeId, bytesEqual, type NodeId, type ShardId } from "#core/base";
import type { PeerHello, RaftMessageInit } from "#proto";
import { type SocketPeer, type SocketServer, type SocketTls, serveSocket } from "#proto/connection";
import { addressOf, isLoopback } from "../config.ts";
import { cannotListen } from "../listening.ts";
import type { Logger } from "../observe/logger.ts";
import { errorFields } from "../observe/logger.ts";
import { AcceptedLink, type AcceptParts } from "./accepted-link.ts";
import { type Resolve, resolveHost } from "./addresses.ts";
import { type Ask, CallAsk, lazyStream, type Question, StreamAsk } from "./ask.ts";
import { DialedLink, type DialParts } from "./dialed-link.ts";
import { helloProblem, lifeBytes, type Refusal, type Self } from "./greeting.ts";
import { Methods } from "./methods.ts";
import { frameBounds, peerBounds, peerGate } from "./peer-bounds.ts";
import { peerCodec } from "./peer-codec.ts";
import {
  type CallHandler,
  type CallOptions,
  NotSentError,
  type PeerNet,
  type PeerPlace,
  type ServeOptions,
  type StreamHandler,
  type StreamOptions,
} from "./peer-net.ts";

export interface PeerTlsOptions {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
  /** Peers must prove that `ca` vouches for them. Left out: they must. */
  readonly requireClientCert?: boolean;
  /** Name that every peer's certificate bears. Left out: each bears the host it is dialed by. */
  readonly serverName?: string;
}

export interface PeerNetOptions {
  readonly host: string;
  /** 0 = any free one. */
  readonly port: number;
  /** host:port under which peers reach this node, given the port it got. Left out: host and that port. */
  readonly advertised?: (port: number) => string;
  readonly version: string;
  /** Left out: this node is joining; it `become`s somebody later. */
  readonly identity?: { readonly clusterId: string; readonly nodeId: NodeId };
  readonly tls?: PeerTlsOptions | undefined;
  readonly logger: Logger;
  /** Placement has removed this node. Left out: none. */
  readonly isRemoved?: (node: NodeId) => boolean;
  /** A peer refused this node, by the name of a rule such as NODE_REMOVED. */
  readonly onRefused?: (by: NodeId, rule: string, message: string) => void;
  readonly resolve?: Resolve;
  /** 0 … 1; spreads the dials of many nodes. */
  readonly random?: () => number;
}

export interface PeerFigures {
  readonly linksUp: number;
  readonly accepted: number;
  readonly raftDropped: number;
  readonly refused: number;
}

/** A pause of this process longer than this is not the silence of its peers. */
const pauseMs = 1000;
const saidMax = 1000;

export class TcpPeerNet implements PeerNet {
  onRaft: PeerNet["onRaft"] = () => {};
  onReachable: PeerNet["onReachable"] = () => {};
  onUnreachable: PeerNet["onUnreachable"] = () => {};
  beatPayload: PeerNet["beatPayload"] = () => undefined;
  onBeat: PeerNet["onBeat"] = () => {};
  readonly address: string;
  /** host:port that peers are told. */
  readonly advertised: string;
  private readonly options: PeerNetOptions;
  private readonly methods = new Methods();
  private readonly server: SocketServer;
  private readonly life = randomBytes(lifeBytes);
  private identity: Self;
  private addresses: ReadonlyMap<NodeId, string> = new Map();
  private readonly links = new Map<NodeId, DialedLink>();
  private readonly places = new Map<string, DialedLink>();
  private readonly accepted = new Set<AcceptedLink>();
  private readonly byNode = new Map<NodeId, AcceptedLink>();
  private readonly heardMs = new Map<NodeId, number>();
  private readonly unreachable = new Set<NodeId>();
  /** Refusals that were logged: each is said once. */
  private readonly said = new Set<string>();
  private readonly dialParts: DialParts;
  private readonly acceptParts: AcceptParts;
  private readonly timer: ReturnType<typeof setInterval>;
  private tickedMs = performance.now();
  private refusedCount = 0;
  private droppedBefore = 0;
  private isClosed = false;

  /** Listens at once. Throws `HopError` STORE_UNAVAILABLE where the address can't be listened on. */
  constructor(options: PeerNetOptions) {
    this.options = options;
    this.acceptParts = this.partsOfAccepting();
    this.dialParts = this.partsOfDialing();
    const { host, tls } = options;
    this.server = this.listen();
    const { port } = this.server.address as { readonly port: number };
    this.address = addressOf(host, port);
    this.advertised = options.advertised?.(port) ?? this.address;
    const { clusterId, nodeId } = options.identity ?? { clusterId: "", nodeId: asNodeId(0) };
    this.identity = { clusterId, nodeId, version: options.version, advertised: this.advertised, life: this.life };
    if (tls === undefined && !isLoopback(host))
      options.logger.warn("Peers are not verified: whoever reaches the peer port may act as one", { host });
    this.timer = setInterval(() => this.tick(), peerBounds.tickMs);
  }

  get self(): NodeId {
    return this.identity.nodeId;
  }

  get clusterId(): string {
    return this.identity.clusterId;
  }

  /** Tells this life of the process from others. */
  get lifeId(): Uint8Array {
    return this.life;
  }

  /** This node is a member now. Links of before are dropped: they were greeted by nobody. */
  become(identity: { readonly clusterId: string; readonly nodeId: NodeId }): void {
    this.identity = { ...this.identity, ...identity };
    this.dropAll("this node became a member of a cluster");
  }

  sendRaft(to: NodeId, shard: ShardId, message: RaftMessageInit): boolean {
    return this.linkTo(to)?.sendRaft(shard, message) ?? false;
  }

  call(to: NodeId, method: string, body: Uint8Array, options: CallOptions = {}): Promise<Uint8Array> {
    const question: Question = { method, body, whom: `node ${to}` };
    if (options.signal?.aborted === true) return Promise.reject(options.signal.reason);
    if (to === this.self && to !== 0) return this.methods.callOwn(this.self, question, options);
    return this.ask(this.linkTo(to), `node ${to}`, (link) => new CallAsk(question, options, link)).promise;
  }

  callAt(place: PeerPlace, method: string, body: Uint8Array, options: CallOptions = {}): Promise<Uint8Array> {
    const question: Question = { method, body, whom: place.address };
    if (options.signal?.aborted === true) return Promise.reject(options.signal.reason);
    return this.ask(this.linkAt(place), place.address, (link) => new CallAsk(question, options, link)).promise;
  }

  stream(to: NodeId, method: string, body: Uint8Array, options: StreamOptions = {}): AsyncIterable<Uint8Array> {
    const question: Question = { method, body, whom: `node ${to}` };
    if (to === this.self && to !== 0) return this.methods.streamOwn(this.self, question, options);
    return lazyStream(() => this.ask(this.linkTo(to), `node ${to}`, (link) => StreamAsk.of(question, options, link)));
  }

  streamAt(place: PeerPlace, method: string, body: Uint8Array, options: StreamOptions = {}): AsyncIterable<Uint8Array> {
    const question: Question = { method, body, whom: place.address };
    return lazyStream(() => this.ask(this.linkAt(place), place.address, (link) => StreamAsk.of(question, options, link)));
  }

  serve(method: string, handler: CallHandler, options?: ServeOptions): void {
    this.methods.serve(method, handler, options);
  }

  serveStream(method: string, handler: StreamHandler, options?: ServeOptions): void {
    this.methods.serveStream(method, handler, options);
  }

  setPeers(addresses: ReadonlyMap<NodeId, string>): void {
    this.addresses = new Map(addresses);
    for (const [node, link] of [...this.links]) {
      const address = addresses.get(node);
      if (address === link.place.address) continue;
      this.forget(node, link, address === undefined ? "the node is not a member any more" : `the node moved to ${address}`);
    }
    for (const [node, link] of [...this.byNode]) if (this.isRemoved(node)) link.close(`node ${node} was removed from the cluster`);
  }

  lastHeardMs(node: NodeId): number {
    return this.heardMs.get(node) ?? 0;
  }

  figures(): PeerFigures {
    const links = [...this.links.values()];
    return {
      linksUp: links.filter((link) => link.isUp).length,
      accepted: this.accepted.size,
      raftDropped: this.droppedBefore + links.reduce((sum, link) => sum + link.droppedCount, 0),
      refused: this.refusedCount,
    };
  }

  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    clearInterval(this.timer);
    this.dropAll("this node is closing");
    this.server.close();
  }

  private listen(): SocketServer {
    const { host, port, tls } = this.options;
    const served: SocketTls | undefined = tls === undefined ? undefined : { ...tls, requireClientCert: tls.requireClientCert ?? true };
    try {
      return serveSocket(
        { hostname: host, port },
        peerCodec,
        frameBounds,
        (connection, peer) => this.accept(new AcceptedLink(connection, peer, this.acceptParts)),
        {
          tls: served,
          gate: peerGate,
        },
      );
    } catch (error) {
      throw cannotListen(`${addressOf(host, port)} for peers`, error, "--peer-port");
    }
  }

  private isRemoved(node: NodeId): boolean {
    return this.options.isRemoved?.(node) ?? false;
  }

  private accept(link: AcceptedLink): AcceptedLink {
    if (this.isClosed || this.accepted.size >= peerBounds.acceptedMax) queueMicrotask(() => link.close("too many peers are linked"));
    this.accepted.add(link);
    return link;
  }

  /** The link to a node whose place is known. */
  private linkTo(node: NodeId): DialedLink | undefined {
    const found = this.links.get(node);
    if (found !== undefined || this.isClosed) return found;
    const address = this.addresses.get(node);
    if (address === undefined || node === this.self) return undefined;
    const link = new DialedLink(node, { address }, this.dialParts);
    this.links.set(node, link);
    return link;
  }

  private linkAt(place: PeerPlace): DialedLink | undefined {
    const key = `${place.serverName ?? ""}@${place.address}`;
    const found = this.places.get(key);
    if (found !== undefined || this.isClosed) return found;
    if (this.places.size >= peerBounds.placesMax) return undefined;
    const link = new DialedLink(asNodeId(0), place, this.dialParts);
    this.places.set(key, link);
    return link;
  }

  private ask<A extends Ask>(
    link: DialedLink | undefined,
    whom: string,
    make: (road: { giveUp(ask: Ask): void; credit(ask: Ask, bytes: number): void }) => A,
  ): A {
    if (link !== undefined) {
      const ask = make(link);
      link.ask(ask);
      return ask;
    }
    const ask = make({ giveUp: () => {}, credit: () => {} });
    const why = this.isClosed
      ? "this node is closing"
      : whom.startsWith("node ")
        ? "no address of it is known"
        : "too many links to addresses are open";
    ask.fail(new NotSentError(`Cannot reach ${whom}: ${why}`));
    return ask;
  }

  private forget(node: NodeId, link: DialedLink, reason: string): void {
    this.links.delete(node);
    this.unreachable.delete(node);
    this.droppedBefore += link.droppedCount;
    link.close(reason);
  }

  private dropAll(reason: string): void {
    for (const [node, link] of [...this.links]) this.forget(node, link, reason);
    const places = [...this.places.values()];
    this.places.clear();
    for (const link of places) link.close(reason);
    for (const link of [...this.accepted]) link.close(reason);
  }

  private tick(): void {
    const nowMs = performance.now();
    const wasPaused = nowMs - this.tickedMs > pauseMs;
    this.tickedMs = nowMs;
    for (const link of [...this.links.values()]) link.tick(nowMs, wasPaused);
    for (const link of [...this.accepted]) link.tick(nowMs, wasPaused);
    for (const [key, link] of [...this.places]) {
      link.tick(nowMs, wasPaused);
      if (!link.isIdleFor(peerBounds.placeIdleMs, nowMs)) continue;
      this.places.delete(key);
      link.close("nothing was asked for a while");
    }
  }

  private partsOfDialing(): DialParts {
    const { resolve = resolveHost, random = Math.random, tls } = this.options;
    return {
      self: () => this.identity,
      resolve,
      random,
      tls,
      heard: (node, nowMs) => void this.heardMs.set(node, nowMs),
      beatPayload: (to) => this.beatPayload(to),
      up: (link) => {
        if (link.node === 0) return;
        this.unreachable.delete(link.node);
        this.onReachable(link.node);
      },
      down: (link) => this.down(link),
      refused: (link, { rule, message }) => {
        this.sayOnce(`to ${link.name} ${rule}`, "No link to a peer", { peer: link.name, rule, why: message });
        this.options.onRefused?.(link.node, rule, message);
      },
    };
  }

  private down(link: DialedLink): void {
    if (link.node === 0) {
      for (const [key, each] of this.places) if (each === link) this.places.delete(key);
      return;
    }
    if (this.unreachable.has(link.node)) return;
    this.unreachable.add(link.node);
    this.onUnreachable(link.node);
  }

  private partsOfAccepting(): AcceptParts {
    return {
      self: () => this.identity,
      methods: this.methods,
      greet: (link, hello) => this.greet(link, hello),
      refused: (peer, hello, refusal) => this.refuse(peer, hello, refusal),
      heard: (node, nowMs) => void this.heardMs.set(node, nowMs),
      raft: (from, shard, message) => this.onRaft(from, shard, message),
      beat: (from, payload) => this.onBeat(from, payload),
      closed: (link, closing) => {
        this.accepted.delete(link);
        if (this.byNode.get(link.node) === link) this.byNode.delete(link.node);
        if (closing.kind === "malformed") {
          const who = link.hello === undefined ? "a stranger" : `node ${link.node}`;
          this.sayOnce(`malformed ${link.peer.address} ${who}`, "A peer's link was cut: it sent what can't be read", {
            peer: link.peer.address,
            who,
            why: closing.message,
          });
        }
      },
      fault: (method, error) => this.options.logger.error("fault", { where: `peer call ${method}`, ...errorFields(error) }),
    };
  }

  /** Takes the link as the node's one, in place of an older, or says why not. */
  private greet(link: AcceptedLink, hello: PeerHello): Refusal | undefined {
    const refusal = helloProblem(this.identity, hello, {
      isRemoved: (node) => this.isRemoved(node),
      linked: (node) => this.byNode.get(node)?.hello,
      known: (node) => this.addresses.get(node),
    });
    if (refusal !== undefined || hello.node === 0) return refusal;
    const node = asNodeId(hello.node);
    const older = this.byNode.get(node);
    this.byNode.set(node, link);
    older?.close(`node ${node} has a newer link`);
    this.heardMs.set(node, performance.now());
    this.links.get(node)?.hurry();
    return undefined;
  }

  private refuse(peer: SocketPeer, hello: PeerHello | undefined, { rule, message }: Refusal): void {
    this.refusedCount++;
    // Seeds are asked by those who are among them.
    if (rule === "ITSELF" && hello !== undefined && bytesEqual(hello.life, this.life)) return;
    const advertised = hello?.advertised.slice(0, 64) ?? "";
    this.sayOnce(`${rule} ${peer.address} ${advertised} ${hello?.node ?? 0}`, "A peer was refused", {
      peer: peer.address,
      advertised,
      rule,
      why: message,
    });
  }

  private sayOnce(key: string, message: string, fields: Readonly<Record<string, string>>): void {
    if (this.said.has(key)) return;
    // Strangers could make it grow without end; what is forgotten is said again.
    if (this.said.size >= saidMax) this.said.clear();
    this.said.add(key);
    this.options.logger.warn(message, fields);
  }
}
