/**
 * C7: the durable append on three members, beside etcd: one value of 128 bytes that a quorum has on
 * disk when it is acknowledged. Both are asked by one client in this process over gRPC with the same library
 * and one connection to the member that leads: etcd for `KV/Put` of rising keys, Hopskip for a
 * signal to a run, whose record also holds hashes, names and a place in the run's history.
 */
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { type Client, credentials, makeGenericClientConstructor } from "@grpc/grpc-js";
import { now } from "./clock.ts";
import { Cluster, eventually } from "./cluster-product.ts";
import { closedLoop, freshName } from "./load.ts";
import { freshFolder } from "./product.ts";
import type { Extra } from "./result.ts";
import type { Setting, Workload } from "./workload.ts";

const members = 3;
const value = "v".repeat(128);
const warmUp = 50;
const concurrency = 50;

type Append = (i: number) => Promise<unknown>;

async function measure({ scale, report }: Setting, what: string, append: Append, extra: Extra): Promise<void> {
  const times: number[] = [];
  let made = 0;
  for (let i = -warmUp; i < scale.samples; i++) {
    const begun = now();
    await append(made++);
    if (i >= 0) times.push(now() - begun);
  }
  report.quantiles("C7", `${what}_append`, times, extra);
  const loop = { concurrency, seconds: Math.max(scale.seconds / 4, 3) };
  const { done, ms } = await closedLoop(loop, () => append(made++));
  report.value("C7", `${what}_appends_per_s`, (done / ms) * 1000, "1/s", { ...extra, concurrency });
}

// etcd.

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

function putter(client: Client): Append {
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

function ports(count: number): number[] {
  const listeners = Array.from({ length: count }, () => Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } }));
  return listeners.map((listener) => {
    const { port } = listener;
    listener.stop(true);
    return port;
  });
}

/** Members of etcd with its defaults, and the address of the one that leads. */
async function startEtcd(executable: string, count: number): Promise<Etcd> {
  const folder = freshFolder();
  const free = ports(count * 2);
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

async function etcd(setting: Setting): Promise<void> {
  const executable = Bun.which("etcd") ?? "/usr/bin/etcd";
  if (!existsSync(executable)) return console.error("Not measured: etcd, which is not installed (Debian package etcd-server)");
  const cluster = await startEtcd(executable, members);
  const client = new KeyValue(cluster.address, credentials.createInsecure());
  try {
    await measure(setting, "etcd", putter(client), { members });
  } finally {
    client.close();
    cluster.stop();
  }
}

async function hopskip(setting: Setting): Promise<void> {
  await using cluster = await Cluster.up({ nodes: members });
  const { client } = await cluster.leaderOf(1);
  // Many runs, as etcd has many keys.
  const ids = Array.from({ length: 100 }, () => freshName("appended"));
  for (const id of ids) await client.start("waiter", { id: "" }, { instance: id });
  const signal: Append = (i) => client.signal(`default:${ids[i % ids.length]}`, { name: "append", value, id: `s${i}` });
  await measure(setting, "hopskip", signal, { members });
}

/** In turns, so that both have the same machine. */
export const durableAppend: Workload = async (setting) => {
  for (const one of [etcd, hopskip]) await one(setting);
};
