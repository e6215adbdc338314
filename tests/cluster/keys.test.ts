/** Idempotency keys of activities through the compiled executable: three nodes, and the one that leads the keys' shard dies. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { until } from "../until.ts";
import type { Server } from "./harness.ts";
import { Nodes } from "./nodes.ts";

const example = (file: string) => fileURLToPath(new URL(`../../examples/idempotency/${file}`, import.meta.url));

interface Charged {
  readonly charge: string;
  readonly by: string;
}

let nodes: Nodes;
let ledger: string;
/** A node that is not killed. */
let alive: Server;

beforeAll(async () => {
  nodes = new Nodes(3);
  ledger = join(nodes.cluster.folder, "ledger.jsonl");
  await nodes.form(3);
  await nodes.ok(["deploy", example("workflow.ts")], { server: nodes.at(0) });
}, 90_000);
afterAll(() => nodes[Symbol.asyncDispose]());

/** Orders that were charged, each as often as it was. */
function charged(): string[] {
  if (!existsSync(ledger)) return [];
  const lines = readFileSync(ledger, "utf8").split("\n");
  return lines.filter((line) => line !== "").map((line) => (JSON.parse(line) as { order: string }).order);
}

const order = (id: string, cents = 500) => ({ id, cents });

test("runs that call an activity with one key have one charge between them, over the death of the shard's leader", async () => {
  const leader = await nodes.leaderOf(1);
  const others = nodes.servers.filter((server) => server !== leader);
  const [home] = others;
  if (home === undefined) throw new Error("There is one node only");
  alive = home;
  await nodes.cluster.worker(home, ["--activities", example("activities.ts")], { env: { BANK_LEDGER: ledger, BANK_MS: "400" } });
  const given = nodes.client(home);
  const ids = Array.from({ length: 12 }, (_, n) => `o-${n}`);
  const one = await Promise.all(ids.map((id) => given.start("checkout", order(id), { instance: `one-${id}` })));
  const two = await Promise.all(ids.map((id) => given.start("checkout", order(id), { instance: `two-${id}` })));
  const all = await given.start(
    "collect",
    ids.map((id) => order(id)),
    { instance: "nightly" },
  );
  // Some are executing, some wait for those.
  await until(async () => charged().length >= 2);
  await leader.kill();
  const results = await Promise.all([...one, ...two].map((run) => run.result() as Promise<Charged>));
  const collected = (await all.result()) as Charged[];
  for (const [at, id] of ids.entries()) {
    const same = [results[at], results[at + ids.length], collected[at]];
    expect(same).toEqual([collected[at], collected[at], collected[at]]);
    expect(collected[at]?.charge).toBe(`ch_${id}`);
  }
  expect(charged().sort()).toEqual([...ids].sort());
}, 120_000);

test("the key says who executed it, and other arguments are refused", async () => {
  const { by } = (await nodes.client(alive).execute("checkout", order("o-1"), { instance: "late" })) as Charged;
  const server = alive;
  const history = await nodes.ok(["audit", "default:late"], { server });
  expect(history).toContain("claims key/default:charge_card:o-1");
  expect(history).toContain(`executed by ${by}#1, operation`);
  const key = await nodes.ok(["audit", "--key", "default:charge_card:o-1"], { server });
  expect(key).toContain("KeyClaimed");
  expect(key).toContain("kept for 7d");
  const reused = await nodes.run(["run", "checkout", "--input", '{"id":"o-1","cents":501}', "--follow"], { server });
  expect([reused.code, reused.stderr]).toEqual([1, expect.stringContaining("that key was used with other arguments")]);
  const unknown = await nodes.run(["audit", "--key", "default:charge_card:none"], { server });
  expect(unknown.stderr).toContain("no activity ever claimed it");
}, 60_000);
