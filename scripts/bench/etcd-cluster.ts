/** Three members of etcd (Debian package `etcd-server`) with its defaults, for C7. */
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { type Client, credentials, makeGenericClientConstructor } from "@grpc/grpc-js";
import { eventually } from "./cluster-product.ts";
import type { Appender } from "./durable-append.ts";
import { freePorts, freshFolder } from "./product.ts";

const varint = (value: number): number[] => (value < 128 ? [value] : [(value & 127) | 128, ...varint(value >>> 7)]);
const bytesField = (field: number, bytes: Uint8Array): number[] => [(field << 3) | 2, ...varint(bytes.length), ...bytes];
const text = (of: string): Uint8Array => new TextEncoder().encode(of);
const nothing = Buffer.alloc(0);

const putMethod = {
  put: {
    path: "/etcdserverpb.KV/Put",
    requestStream: false,
    responseStream: false,
    requestSerialize: (bytes: Uint8Array) => Buffer.from(bytes),
    requestDeserialize: (bytes: Buffer) => bytes,
    responseSerialize: () => nothing,
    responseDeserialize: (bytes: Buffer) => bytes,
  },
};
const KeyValue = makeGenericClientConstructor(putMethod, "KV");

type Put = (request: Uint8Array, done: (error: Error | null) => void) => void;

function putter(client: Client, value: string): Appender["append"] {
  const { put } = client as unknown as { readonly put: Put };
  const asked = text(value);
  return (i) =>
    new Promise<void>((resolve, reject) => {
      const request = new Uint8Array([...bytesField(1, text(`/bench/${i}`)), ...bytesField(2, asked)]);
      put.call(client, request, (error) => (error === null ? resolve() : reject(error)));
    });
}

interface Etcd {
  readonly address: string;
  readonly stop: () => void;
}

/** Members of etcd with its defaults, and the address of the one that leads. */
async function startEtcd(executable: string, count: number): Promise<Etcd> {
  const folder = freshFolder();
  const free = freePorts(count * 2);
  const urls = Array.from({ length: count }, (_, i) => ({
    client: `http://127.0.0.1:${free[2 * i]}`,
    peer: `http://127.0.0.1:${free[2 * i + 1]}`,
  }));
  const cluster = urls.map(({ peer }, i) => `m${i}=${peer}`).join(",");
  const children = urls.map(({ client, peer }, i) =>
    Bun.spawn(
      [
        ...[executable, "--name", `m${i}`, "--data-dir", join(folder, `m${i}`), "--log-level", "error"],
        ...["--listen-client-urls", client, "--advertise-client-urls", client],
        ...["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster],
      ],
      { stdin: "ignore", stdout: "ignore", stderr: "ignore" },
    ),
  );
  const stop = (): void => {
    for (const child of children) child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  };
  process.on("exit", stop);
  // The gateway is asked for the leader only; what is measured goes over gRPC.
  const leader = await eventually("etcd's leader", async () => {
    for (const { client } of urls) {
      const answer = await fetch(`${client}/v3/maintenance/status`, { method: "POST", body: "{}" });
      const { header, leader } = (await answer.json()) as { header?: { member_id: string }; leader?: string };
      if (leader !== undefined && leader === header?.member_id) return client;
    }
    return undefined;
  });
  return { address: leader.replace("http://", ""), stop };
}

/** Puts under rising keys; undefined, with the reason said, where etcd is not installed. */
export async function etcdAppender(count: number, value: string): Promise<Appender | undefined> {
  const executable = Bun.which("etcd") ?? "/usr/bin/etcd";
  if (!existsSync(executable)) {
    console.error("Not measured: etcd, which is not installed (Debian package etcd-server)");
    return undefined;
  }
  const cluster = await startEtcd(executable, count);
  const client = new KeyValue(cluster.address, credentials.createInsecure());
  return {
    append: putter(client, value),
    stop: () => {
      client.close();
      cluster.stop();
    },
  };
}
