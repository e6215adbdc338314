/** Peers on loopback for tests, and those who only pretend to be one. */
import { asNodeId, type NodeId } from "#core/base";
import type { PeerHelloInit, PeerItem } from "#proto";
import { type Closing, type Connection, connectSocket, type SocketAddress, type SocketServer, serveSocket } from "#proto/connection";
import { until } from "../../tests/until.ts";
import type { Fields, Logger } from "../observe/logger.ts";
import { frameBounds } from "./peer-bounds.ts";
import { type OutItem, peerCodec } from "./peer-codec.ts";
import { type PeerNetOptions, TcpPeerNet } from "./tcp-peer-net.ts";

export const cluster = "hop_00000000000000aa";
export const node = (id: number) => asNodeId(id);
export const utf8 = (text: string) => new TextEncoder().encode(text);
export const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

export interface Said {
  readonly message: string;
  readonly fields: Fields;
}

/** A network of one node, and what it logged. */
export class TestPeer implements Disposable {
  readonly net: TcpPeerNet;
  readonly said: Said[] = [];
  readonly events: string[] = [];

  constructor(id: number, options: Partial<PeerNetOptions> = {}) {
    const note = (message: string, fields: Fields = {}) => void this.said.push({ message, fields });
    const logger: Logger = { debug: note, info: note, warn: note, error: note };
    const identity = id === 0 ? {} : { identity: { clusterId: cluster, nodeId: node(id) } };
    this.net = new TcpPeerNet({ host: "127.0.0.1", port: 0, version: "0.1.0", logger, ...identity, ...options });
    this.net.onReachable = (peer) => void this.events.push(`up ${peer}`);
    this.net.onUnreachable = (peer) => void this.events.push(`down ${peer}`);
  }

  /** Knows where the others are. */
  meet(...others: readonly TestPeer[]): void {
    this.net.setPeers(new Map(others.map(({ net }) => [net.self, net.address])));
  }

  [Symbol.dispose](): void {
    this.net.close();
  }
}

export const addressOfPeer = (net: Pick<TcpPeerNet, "address">): SocketAddress => {
  const [hostname, port] = net.address.split(":");
  return { hostname: hostname as string, port: Number(port) };
};

/** Speaks a peer's protocol as it is told to, and keeps what it hears. */
export class Pretender implements Disposable {
  readonly items: PeerItem[] = [];
  closing: Closing | undefined;
  readonly connection: Connection<OutItem>;

  constructor(target: Pick<TcpPeerNet, "address">) {
    this.connection = connectSocket(addressOfPeer(target), peerCodec, frameBounds, () => ({
      item: (item) => void this.items.push(item),
      ended: () => {},
      closed: (closing) => {
        this.closing = closing;
      },
    }));
  }

  hello(own: PeerHelloInit = {}): this {
    this.connection.send({ kind: "hello", value: { ...goodHello(), ...own } });
    return this;
  }

  async next<K extends PeerItem["kind"]>(kind: K): Promise<Extract<PeerItem, { kind: K }>> {
    return until(() => this.items.find((item) => item.kind === kind) as Extract<PeerItem, { kind: K }> | undefined, {
      what: () => `${kind}; came: ${this.items.map((item) => item.kind).join(", ")}, ${this.closing?.message}`,
    });
  }

  async end(): Promise<Closing> {
    return until(() => this.closing, { what: "the link's end" });
  }

  [Symbol.dispose](): void {
    this.connection.close("done");
  }
}

/** What node 9 would say. */
export const goodHello = (): PeerHelloInit => ({
  clusterId: cluster,
  node: 9,
  version: "0.1.0",
  protocolMin: 1,
  protocolMax: 1,
  advertised: "127.0.0.1:9009",
  wanted: 0,
  life: new Uint8Array(16).fill(9),
});

export interface Listening extends Disposable {
  readonly address: string;
  readonly connections: Connection<OutItem>[];
  readonly items: PeerItem[];
}

/** Listens as node `id` would, says welcome, and then only what `answer` says. */
export function pretendToBe(id: NodeId, answer: (connection: Connection<OutItem>, item: PeerItem) => void = () => {}): Listening {
  const connections: Connection<OutItem>[] = [];
  const items: PeerItem[] = [];
  const server: SocketServer = serveSocket({ hostname: "127.0.0.1", port: 0 }, peerCodec, frameBounds, (connection) => {
    connections.push(connection);
    return {
      item: (item) => {
        items.push(item);
        if (item.kind === "hello") {
          const life = new Uint8Array(16).fill(7);
          connection.send({ kind: "welcome", value: { clusterId: cluster, node: id, version: "0.1.0", protocol: 1, life } });
        }
        answer(connection, item);
      },
      ended: () => {},
      closed: () => {},
    };
  });
  const { hostname, port } = server.address as { hostname: string; port: number };
  return { address: `${hostname}:${port}`, connections, items, [Symbol.dispose]: () => server.close() };
}
