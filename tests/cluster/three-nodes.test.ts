/**
 * A cluster of the compiled executable on loopback, from three empty folders: any node answers any
 * client, the loss of one costs nothing that was acknowledged, shards split, move and merge under
 * runs that go on.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { keyOfDigest } from "#core/base";
import { until } from "../until.ts";
import type { HopProcess } from "./harness.ts";
import { Nodes, type ShardShown } from "./nodes.ts";

const workflows = `
import { activities, durable, query, resultOf, sendSignal, signal, sleep } from "@hopskip/runtime";
import type * as work from "./activities.ts";
const { upper } = activities<typeof work>({ retry: { initialMs: 10 } });

export const greet = durable(async (name: string) => \`Hello, \${await upper(name)}!\`);
export const naps = durable(async (ms: number) => { await sleep(ms); return "awake"; });
export const collects = durable(async (count: number) => {
  const seen: string[] = [];
  query("seen", () => seen);
  while (seen.length < count) seen.push(await signal<string>("item"));
  return seen;
});
export const sends = durable(async (o: { to: string; from: string; count: number }) => {
  for (let n = 1; n <= o.count; n++) await sendSignal(o.to, "item", \`\${o.from}\${n}\`);
  return await resultOf<string[]>(o.to);
});
`;

const middle = 2 ** 47;
const keyOf = (instance: string) => keyOfDigest(new Bun.CryptoHasher("sha256").update(`run/default:${instance}`).digest());

/** Names of runs whose keys are in the lower (false) or upper (true) half. */
function namesIn(isUpper: boolean, prefix: string, count: number): string[] {
  const names: string[] = [];
  for (let n = 1; names.length < count; n++) if (keyOf(`${prefix}${n}`) >= middle === isUpper) names.push(`${prefix}${n}`);
  return names;
}

/** The longest a failover may keep a caller waiting here, where every test of the machine runs at once. */
const pauseMsMax = 15_000;

let nodes: Nodes;
const settled = async (shard: number) =>
  until(async () => (await nodes.shard(shard)).change === null, { what: `no change of shard ${shard}` });

beforeAll(async () => {
  nodes = new Nodes(4, 3);
  nodes.project({ "workflows.ts": workflows, "activities.ts": "export const upper = (text: string) => text.toUpperCase();\n" });
}, 60_000);
afterAll(() => nodes[Symbol.asyncDispose]());

test("three nodes with seeds wait for ever, and are one cluster when one of them is told so", async () => {
  const started = await Promise.all([nodes.start(), nodes.start(), nodes.start()]);
  for (const server of started) {
    expect(server.process.stdout).toContain("joining grpc=");
    const alone = await nodes.json<{ phase: string; cluster: string | null }>(["cluster", "status"], { server });
    expect(alone).toMatchObject({ phase: "joining", cluster: null });
    expect((await fetch(`http://${server.http}/readyz`)).status).toBe(503);
  }
  const early = await nodes.run(["policy", "set", "early", "--input", "1"], { server: nodes.at(1) });
  expect([early.code, early.stderr]).toEqual([6, expect.stringContaining("hop cluster init")]);
  const id = (await nodes.ok(["cluster", "init"], { server: nodes.at(0) })).trimEnd();
  await nodes.whole(3);
  for (const server of started)
    expect(await nodes.json(["cluster", "status"], { server })).toMatchObject({
      cluster: id,
      phase: "member",
      nodesLive: 3,
      shardsUnderReplicated: 0,
      replicationFactor: 3,
      placement: { voters: [1, 2, 3] },
    });
  const again = await nodes.run(["cluster", "init"], { server: nodes.at(1) });
  expect([again.code, again.stderr]).toEqual([5, expect.stringContaining(`of ${id} already (ALREADY_MEMBER)`)]);
});

test("members and shards are listed whole, page by page, by each node", async () => {
  for (const server of nodes.servers) {
    const numbers = JSON.parse(await nodes.ok(["cluster", "members", "-o", "json"], { server })) as { node: number; state: string }[];
    expect(numbers.map(({ node, state }) => [node, state])).toEqual([1, 2, 3].map((node) => [node, "live"]));
    const { cluster } = nodes.client(server);
    const paged: number[] = [];
    for (let pageToken = "", pages = 0; pages < 10; pages++) {
      const page = await cluster.members({ limit: 1, pageToken });
      paged.push(...page.member.map(({ node }) => node));
      pageToken = page.nextPageToken;
      if (pageToken === "") break;
    }
    expect(paged).toEqual([1, 2, 3]);
  }
});

test("any node answers any client: runs through each, with the worker told of one", async () => {
  await nodes.ok(["deploy", "project/workflows.ts"], { server: nodes.at(2) });
  await nodes.cluster.worker(nodes.at(1), ["--activities", join(nodes.cluster.folder, "project/activities.ts")]);
  for (const [index, server] of nodes.servers.entries()) {
    const run = `through-${index}`;
    expect(await nodes.ok(["run", "greet", "--input", '"Ada"', "--instance", run, "--follow"], { server })).toBe('"Hello, ADA!"\n');
    const other = nodes.at((index + 1) % 3);
    expect(await nodes.ok(["workflow", "result", `default:${run}`], { server: other })).toBe('"Hello, ADA!"\n');
    expect(await nodes.ok(["audit", `default:${run}`], { server: other })).toContain(`default:${run}`);
  }
  const listed = await Promise.all(nodes.servers.map((server) => nodes.ok(["workflow", "list", "-o", "ids"], { server })));
  expect(new Set(listed.map((text) => text.split("\n").sort().join("\n"))).size).toBe(1);
});

test("the leader's node dies by SIGKILL: runs go on, its clients too, and it catches up when it is back", async () => {
  const leader = await nodes.leaderOf(1);
  const number = await nodes.numberOf(leader);
  const given = nodes.client(leader);
  // It has a session with the node that dies, and has been told of the others.
  expect(await given.execute<string>("greet", "before")).toBe("Hello, BEFORE!");
  const waiting = nodes.cluster.launch(["run", "naps", "--input", "2500", "--instance", "sleeper", "--follow"], { server: leader });
  await waiting.line(/started/);
  const collected = await given.start("collects", 40, { instance: "collector" });
  await leader.kill();
  const pauses: number[] = [];
  for (let n = 0; n < 40; n++) {
    const begunMs = performance.now();
    await collected.signal("item", `s${n}`, { id: `s${n}` });
    pauses.push(performance.now() - begunMs);
  }
  expect(Math.max(...pauses)).toBeLessThan(pauseMsMax);
  expect(await collected.result()).toEqual(Array.from({ length: 40 }, (_, n) => `s${n}`));
  expect(await given.execute<string>("greet", "after")).toBe("Hello, AFTER!");
  expect([await waiting.exited, waiting.stdout]).toEqual([0, '"awake"\n']);
  // The start that is in doubt is one run however often it is sent.
  const [next] = await nodes.shards();
  expect(next?.leader).not.toBe(number);
  const late = await nodes.run(["cluster", "status"], { server: leader });
  expect(late.code).toBe(6);

  await leader.restart();
  await nodes.whole(3);
  await until(async () => (await nodes.shard(1)).replicas.every(({ lag }) => lag === 0), { what: "no lag" });
  expect(await nodes.ok(["shard", "verify", "--all"])).toContain(`  ${number}  `);
  expect(await nodes.ok(["run", "greet", "--input", '"Eve"', "--follow"], { server: leader })).toBe('"Hello, EVE!"\n');
});

// restate 1.7.2: a schema that was applied in memory and not stored was lost with a restart.
test("what was set and deployed is on every replica after SIGKILL of all", async () => {
  const policy = (n: number) => nodes.ok(["policy", "set", "retention", "--input", `{"days":${n}}`], { server: nodes.at(n % 3) });
  for (let n = 1; n <= 3; n++) expect(await policy(n)).toBe(`${n}\n`);
  await nodes.ok(["namespace", "set", "shop", "--input", '{"owner":"ada"}'], { server: nodes.at(1) });
  await Promise.all(nodes.servers.map((server) => server.kill()));
  await Promise.all(nodes.servers.map((server) => server.restart()));
  for (const server of nodes.servers) {
    expect(await nodes.ok(["policy", "get", "retention"], { server })).toBe('{"days":3}\n');
    expect(await nodes.ok(["namespace", "get", "shop"], { server })).toBe('{"owner":"ada"}\n');
    expect(await nodes.ok(["run", "greet", "--input", '"deployed"', "--follow"], { server })).toBe('"Hello, DEPLOYED!"\n');
  }
  await nodes.whole(3);
});

describe("shards that change under runs", () => {
  const lower = namesIn(false, "to", 2);
  const upper = namesIn(true, "to", 2);
  let held: readonly string[];

  test("split: no history is cut, and the runs of both halves go on", async () => {
    held = [...lower, ...upper];
    const all = nodes.client(nodes.at(0));
    for (const instance of held) {
      const handle = await all.start("collects", 8, { instance });
      await handle.signal("item", "before");
    }
    const { stdout, stderr } = await nodes.run(["shard", "split", "1", "--at", "0x8000000000000000"]);
    expect(stderr).toContain("Shard 1 is to split at 0x8000000000000000; the new shard is 2 (0 of 2)\n");
    expect(stdout).toBe("Shard 2 owns 0x8000000000000000–0xffffffffffffffff\n");
    const shards = await nodes.shards();
    expect(shards.map(({ shard }) => shard)).toEqual([1, 2]);
    for (const instance of held) await all.handle(`default:${instance}`).signal("item", "after");
    for (const instance of held) expect(await all.handle(`default:${instance}`).query("seen")).toEqual(["before", "after"]);
    await nodes.whole(3);
    await nodes.ok(["shard", "verify", "--all"]);
  });

  test("transfer: another node leads, so the two shards are led by two nodes", async () => {
    const { leader, voters } = await nodes.shard(2);
    const first = (await nodes.shard(1)).leader;
    const to = voters.find((node) => node !== leader && node !== first) as number;
    await nodes.ok(["shard", "transfer", "2", "--to", String(to)]);
    expect((await nodes.shard(2)).leader).toBe(to);
    // The cluster balances leads by itself: the other one may be on its way.
    await until(async () => (await nodes.shard(1)).leader !== to, { what: "two nodes that lead a shard each" });
  });

  test("a run signals runs of both shards, and awaits their results: each once, in order", async () => {
    const senders = [...namesIn(false, "from", 2), ...namesIn(true, "from", 2)];
    const all = nodes.client(nodes.at(1));
    const sent = await Promise.all(
      held.map((to, n) => all.start("sends", { to, from: "x", count: 6 }, { instance: senders[n] as string })),
    );
    const results = await Promise.all(sent.map((handle) => handle.result()));
    for (const result of results) expect(result).toEqual(["before", "after", "x1", "x2", "x3", "x4", "x5", "x6"]);
  });

  test("audit proves a history that began before the split", async () => {
    for (const [index, instance] of held.entries()) {
      const { code, stdout } = await nodes.run(["audit", `default:${instance}`, "-o", "json"], { server: nodes.at(index % 3) });
      expect([code, JSON.parse(stdout) as object]).toEqual([0, expect.objectContaining({ ok: true })]);
    }
  });

  test("a fourth node joins, takes a replica over, and holds what the others hold", async () => {
    await nodes.start();
    const added = nodes.at(3);
    await added.process.line(/^ready grpc=/m);
    const to = await nodes.numberOf(added);
    // What is planned for a new node comes first: a shard changes in one way at a time.
    await until(async () => (await nodes.members()).some(({ node, replicas }) => node === to && replicas > 0), { what: "a replica on it" });
    await nodes.whole(4);
    const shard = (await nodes.shards()).find(({ voters }) => !voters.includes(to)) as ShardShown;
    const from = shard.voters.find((node) => node !== shard.leader) as number;
    await nodes.ok(["shard", "move", String(shard.shard), "--from", String(from), "--to", String(to)]);
    expect((await nodes.shard(shard.shard)).voters).toContain(to);
    await settled(shard.shard);
    expect(await nodes.ok(["shard", "verify", String(shard.shard)])).toContain(`  ${to}  `);
    expect(await nodes.ok(["workflow", "result", `default:${held[3]}`], { server: added })).toContain("x6");
  });

  test("merge: one shard again, with all that both had", async () => {
    await settled(1);
    await settled(2);
    await nodes.ok(["shard", "merge", "1", "--timeout", "30s"]);
    expect((await nodes.shards()).map(({ shard }) => shard)).toEqual([1]);
    await nodes.ok(["shard", "verify", "--all"]);
    const all = nodes.client(nodes.at(2));
    for (const instance of held) expect(await all.handle(`default:${instance}`).result()).toContain("x6");
    expect(await nodes.ok(["audit", `default:${held[3]}`])).toContain(held[3] as string);
    expect(await nodes.ok(["run", "greet", "--input", '"merged"', "--follow"])).toBe('"Hello, MERGED!"\n');
  });

  test("leave: the node gives up all it holds, is removed, and is not taken back", async () => {
    const gone = nodes.at(3);
    const number = await nodes.numberOf(gone);
    const left = await nodes.run(["cluster", "leave", String(number), "--timeout", "30s"]);
    expect(left).toMatchObject({ code: 0 });
    expect((await nodes.members()).map(({ node }) => node)).toEqual([1, 2, 3]);
    expect((await nodes.members("--removed")).find(({ node }) => node === number)?.state).toBe("removed");
    for (const { voters, learners } of await nodes.shards()) expect([...voters, ...learners]).not.toContain(number);
    // It says what to do, and goes: nobody has anything to do with it.
    const told = /The server stops: this node was removed from its cluster; start it with an empty data folder/;
    expect(await gone.process.exited).toBe(1);
    expect(gone.process.stderr).toMatch(told);
    await nodes.whole(3);
    const back: HopProcess = gone.launch();
    await back.line(told);
    expect(await back.exited).toBe(1);
    expect((await nodes.members()).map(({ node }) => node)).toEqual([1, 2, 3]);
    expect(await nodes.ok(["shard", "verify", "--all"])).not.toContain("Cannot");
  });
});
