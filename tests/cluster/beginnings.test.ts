/** What somebody meets who starts nodes: taken ports, a cluster that is there already, and a node that still looks for its own. */
import { expect, test } from "bun:test";
import { Cluster, Server } from "./harness.ts";
import { Nodes } from "./nodes.ts";

interface Standing {
  readonly cluster: string;
  readonly peer: string;
}

const anyPort = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];

test("a taken port is refused with 6, its number, the cause and the option that names another", async () => {
  await using hop = new Cluster();
  const taken = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  try {
    const { port } = taken;
    const start = (...args: string[]) => hop.run(["server", "start", "--data", "node", ...args]);
    const peer = await start(...anyPort, "--peer-port", String(port), "--seed", "127.0.0.1:1");
    expect([peer.code, peer.stderr]).toEqual([
      6,
      expect.stringContaining(
        `Cannot listen on 127.0.0.1:${port} for peers (EADDRINUSE): the port is in use; stop what uses it, or choose another port with --peer-port`,
      ),
    ]);
    const http = await start("--listen", "127.0.0.1:0", "--http", `127.0.0.1:${port}`);
    expect(http.stderr).toContain(`Cannot listen on 127.0.0.1:${port} (EADDRINUSE): the port is in use; stop what uses it, or`);
    expect(http.stderr).toContain("with --http");
    const grpc = await start("--listen", `127.0.0.1:${port}`, "--http", "127.0.0.1:0");
    expect(grpc.stderr).toContain(`Cannot listen on 127.0.0.1:${port} (EADDRINUSE)`);
    expect(grpc.stderr).toContain("with --listen");
  } finally {
    taken.stop(true);
  }
});

test("init makes no cluster where a seed is of one", async () => {
  await using hop = new Cluster();
  const made = await Promise.all(["a", "b"].map((data) => hop.server({ data, args: ["--bootstrap", "--peer-port", "0"] })));
  const statuses = await Promise.all(
    made.map(async (server) => JSON.parse(await hop.expectOk(["cluster", "status", "-o", "json"], { server })) as Standing),
  );
  // It joins neither by itself: they are not of one cluster.
  const third = new Server(hop, { data: "c", args: ["--peer-port", "0", ...statuses.flatMap(({ peer }) => ["--seed", peer])] });
  await third.begin();
  const { code, stdout, stderr } = await hop.run(["cluster", "init"], { server: third });
  expect([code, stdout]).toEqual([5, ""]);
  expect(stderr).toMatch(/Cannot make a cluster: seed \S+ is of cluster hop_\w+, which this node joins by itself; .* \(ALREADY_MEMBER\)/);
  expect(statuses.filter(({ cluster }) => stderr.includes(cluster))).toHaveLength(1);
});

test("a command that waits for a node which looks for its cluster says so within two seconds, and at its end", async () => {
  await using nodes = new Nodes(2, 2);
  const server = await nodes.start();
  for (const args of [
    ["run", "hello"],
    ["workflow", "list"],
  ]) {
    // It is told before the two seconds end.
    const { code, stderr } = await nodes.run([...args, "--timeout", "2s"], { server });
    expect(code).toBe(6);
    expect(stderr).toMatch(/^waiting: .*this node is looking for its cluster; .*`hop cluster init`/m);
    expect(stderr).toMatch(/^error: Cannot finish within 2s: .*this node is looking for its cluster/m);
  }
});
