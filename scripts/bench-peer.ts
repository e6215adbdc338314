/**
 * What a link between nodes costs: Raft heartbeats echoed by a second process over framed TCP and
 * over grpc-js, each plain and under mutual TLS; then calls through the whole of PeerNet.
 *
 * Usage: bun scripts/bench-peer.ts [--seconds N]. TLS needs openssl.
 */
import { parseArgs } from "node:util";
import * as grpc from "@grpc/grpc-js";
import { asNodeId, asShardId } from "#core/base";
import { decodeRaftMessage, fromBytes, type PeerItem, type RaftMessageInit } from "#proto";
import {
  type Connection,
  channelOptions,
  connectGrpc,
  connectSocket,
  grpcClient,
  type Receiver,
  type SocketTls,
  serveConnections,
  serveSocket,
} from "#proto/connection";
import { noLogger } from "../node/observe/logger.ts";
import { frameBounds } from "../node/peer/peer-bounds.ts";
import { type OutItem, peerCodec } from "../node/peer/peer-codec.ts";
import { TcpPeerNet } from "../node/peer/tcp-peer-net.ts";
import { hasOpenssl, TestAuthority } from "../tests/certificates.ts";

const { values } = parseArgs({
  options: { seconds: { type: "string", default: "3" }, serve: { type: "string" }, tls: { type: "string", default: "" } },
});
const seconds = Number(values.seconds);
const path = "/hopskip.v1.Peer/Link";
const clusterId = "hop_00000000000000aa";
const shard = asShardId(7);
type Form = "tcp" | "grpc" | "net";

interface Address {
  readonly port: number;
  readonly tls: SocketTls | undefined;
}

const heartbeat = (index: number): RaftMessageInit => ({ kind: 3, shard: 7, from: 1, to: 2, term: 12, commit: index, tick: index });

/** Reads each message as a member would, and sends one back. */
function echo(connection: Connection<OutItem>): Receiver<PeerItem> {
  return {
    item: (item) => {
      if (item.kind === "raft") connection.send({ kind: "raftOf", shard, message: fromBytes(decodeRaftMessage, item.value.message) });
      if (item.kind === "cancel") process.stdout.write(`${JSON.stringify(cpuUs())}\n`);
    },
    ended: () => {},
    closed: () => {},
  };
}

function cpuUs(): number {
  const { user, system } = process.cpuUsage();
  return user + system;
}

async function serve(form: Form, tls: SocketTls | undefined): Promise<number> {
  if (form === "net") {
    const net = new TcpPeerNet({
      host: "127.0.0.1",
      port: 0,
      version: "0.1.0",
      identity: { clusterId, nodeId: asNodeId(2) },
      logger: noLogger,
      tls,
    });
    net.serve("echo", (_, body) => body);
    net.serve("cpu", () => new TextEncoder().encode(String(cpuUs())));
    return Number(new URL(`tcp://${net.address}`).port);
  }
  if (form === "tcp") {
    const server = serveSocket({ hostname: "127.0.0.1", port: 0 }, peerCodec, frameBounds, echo, {
      tls: tls === undefined ? undefined : { ...tls, requireClientCert: true },
    });
    return (server.address as { port: number }).port;
  }
  const server = new grpc.Server(channelOptions(frameBounds));
  serveConnections(server, path, peerCodec, frameBounds, echo);
  const credentials =
    tls === undefined
      ? grpc.ServerCredentials.createInsecure()
      : grpc.ServerCredentials.createSsl(
          Buffer.from(tls.ca),
          [{ cert_chain: Buffer.from(tls.cert), private_key: Buffer.from(tls.key) }],
          true,
        );
  return new Promise((done, fail) => {
    server.bindAsync("127.0.0.1:0", credentials, (error, port) => (error === null ? done(port) : fail(error)));
  });
}

function connect(form: Form, address: Address, receiver: Receiver<PeerItem>): Connection<OutItem> {
  const { port, tls } = address;
  if (form === "tcp") return connectSocket({ hostname: "127.0.0.1", port }, peerCodec, frameBounds, () => receiver, tls);
  const credentials =
    tls === undefined
      ? grpc.credentials.createInsecure()
      : grpc.credentials.createSsl(Buffer.from(tls.ca), Buffer.from(tls.key), Buffer.from(tls.cert));
  return connectGrpc(grpcClient(`localhost:${port}`, frameBounds, credentials), path, peerCodec, frameBounds, () => receiver);
}

/** Keeps `batches` groups of `size` messages under way; a group is sent in one tick when the one before it is back. */
async function exchange(form: Form, address: Address, load: { size: number; batches: number }, server: () => Promise<number>) {
  const { size, batches } = load;
  const times: number[] = [];
  const sent: number[] = [];
  let came = 0;
  let stop = 0;
  const over = Promise.withResolvers<void>();
  const group = () => {
    sent.push(performance.now());
    for (let i = 0; i < size; i++) connection.send({ kind: "raftOf", shard, message: heartbeat(i) });
  };
  const connection = connect(form, address, {
    item: () => {
      if (++came % size !== 0) return;
      const nowMs = performance.now();
      times.push(nowMs - (sent[times.length] as number));
      if (nowMs < stop || stop === 0) group();
      else if (times.length === sent.length) over.resolve();
    },
    ended: () => {},
    closed: ({ message }) => over.reject(new Error(message)),
  });
  group();
  await new Promise((done) => setTimeout(done, 500));
  connection.send({ kind: "cancel", value: { id: 1 } });
  const serverBefore = await server();
  for (let i = 1; i < batches; i++) group();
  const [before, at, own] = [times.length, performance.now(), cpuUs()];
  stop = at + seconds * 1000;
  await over.promise;
  const elapsed = (performance.now() - at) / 1000;
  const ownUs = cpuUs() - own;
  connection.send({ kind: "cancel", value: { id: 1 } });
  const serverUs = (await server()) - serverBefore;
  connection.close("measured");
  report(times.slice(before), { messages: (times.length - before) * size, elapsed, ownUs, serverUs });
}

function report(
  times: number[],
  { messages, elapsed, ownUs, serverUs }: { messages: number; elapsed: number; ownUs: number; serverUs: number },
): void {
  times.sort((a, b) => a - b);
  const at = (share: number) => (times[Math.floor(times.length * share)] as number).toFixed(3);
  const cpu = (us: number) => (us / messages).toFixed(1);
  console.log(
    `    p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, ${Math.round(messages / elapsed)} messages/s, CPU ${cpu(ownUs)} + ${cpu(serverUs)} µs a message`,
  );
}

async function calls(address: Address, atATime: number): Promise<void> {
  const { port, tls } = address;
  const net = new TcpPeerNet({
    host: "127.0.0.1",
    port: 0,
    version: "0.1.0",
    identity: { clusterId, nodeId: asNodeId(1) },
    logger: noLogger,
    tls,
  });
  const other = asNodeId(2);
  net.setPeers(new Map([[other, `127.0.0.1:${port}`]]));
  const body = new Uint8Array(100);
  const serverCpu = async () => Number(new TextDecoder().decode(await net.call(other, "cpu", body)));
  const times: number[] = [];
  await Promise.all(Array.from({ length: 2000 }, () => net.call(other, "echo", body)));
  const serverBefore = await serverCpu();
  const [at, own] = [performance.now(), cpuUs()];
  const loop = async () => {
    while (performance.now() - at < seconds * 1000) {
      const began = performance.now();
      await net.call(other, "echo", body);
      times.push(performance.now() - began);
    }
  };
  await Promise.all(Array.from({ length: atATime }, loop));
  const elapsed = (performance.now() - at) / 1000;
  const ownUs = cpuUs() - own;
  report(times, { messages: times.length, elapsed, ownUs, serverUs: (await serverCpu()) - serverBefore });
  net.close();
}

async function measure(form: Form, tls: SocketTls | undefined): Promise<void> {
  const child = Bun.spawn([process.execPath, import.meta.path, "--serve", form, "--tls", tls === undefined ? "" : JSON.stringify(tls)], {
    stdout: "pipe",
  });
  const lines = (async function* () {
    let rest = "";
    for await (const chunk of child.stdout) {
      rest += new TextDecoder().decode(chunk);
      const whole = rest.split("\n");
      rest = whole.pop() as string;
      yield* whole;
    }
  })();
  const next = async () => Number((await lines.next()).value);
  const address = { port: await next(), tls };
  try {
    await measureOver(form, address, next);
  } finally {
    child.kill();
    await child.exited;
  }
}

async function measureOver(form: Form, address: Address, next: () => Promise<number>): Promise<void> {
  const named = { tcp: "framed TCP", grpc: "grpc-js bidi", net: "PeerNet calls of 100 bytes" }[form];
  console.log(`${named}, ${address.tls === undefined ? "plain" : "mutual TLS"}`);
  if (form === "net") {
    for (const atATime of [1, 16, 64]) {
      console.log(`  ${atATime} at a time`);
      await calls(address, atATime);
    }
  } else {
    for (const load of [
      { size: 1, batches: 1 },
      { size: 1, batches: 64 },
      { size: 64, batches: 1 },
      { size: 64, batches: 4 },
    ]) {
      console.log(`  ${load.batches} × ${load.size} under way`);
      await exchange(form, address, load, next);
    }
  }
}

if (values.serve !== undefined) {
  const tls = values.tls === "" ? undefined : (JSON.parse(values.tls) as SocketTls);
  console.log(await serve(values.serve as Form, tls));
} else {
  const tls = hasOpenssl ? new TestAuthority().issue("node", ["IP:127.0.0.1", "DNS:localhost"]) : undefined;
  for (const form of ["tcp", "grpc", "net"] as const) {
    await measure(form, undefined);
    if (tls !== undefined) await measure(form, tls);
  }
  process.exit();
}
