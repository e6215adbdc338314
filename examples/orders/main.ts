/**
 * The main job: a file of orders through a real cluster, with the server killed halfway.
 *
 * Starts a flaky shop, a server and a worker; starts one order saga for each row; kills the server
 * with SIGKILL when half of the orders have ended; starts it again; checks against the shop's own
 * ledger that every order ended exactly once; and proves one order's history.
 *
 * Usage: bun examples/orders/main.ts HOP [--keep] [--verbose]
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { HopClient, WorkflowFailedError } from "#sdk/client";
import { Cluster } from "./cluster.ts";
import type { Order, OrderOutcome } from "./order.ts";
import { Progress } from "./progress.ts";
import { readOrders } from "./read-orders.ts";
import { type Ledger, serveShop } from "./shop-fixture.ts";

const here = import.meta.dir;
const hop = resolve(process.argv[2] ?? "dist/hop");
const keep = process.argv.includes("--keep");
const verbose = process.argv.includes("--verbose");

/** Orders under way at one time: the kill finds them in every state. */
const concurrency = 60;

const say = (text = "") => process.stdout.write(`${text}\n`);

interface Ended {
  readonly order: Order;
  readonly outcome: OrderOutcome | { readonly status: "failed"; readonly reason: string };
}

/** Seeded, so that two runs of the example meet the same trouble. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 4294967296;
  };
}

async function follow(client: HopClient, order: Order, onEnd: (ended: Ended) => void): Promise<void> {
  try {
    const run = await client.start<"order">("order", order as never, { instance: `order-${order.id}` });
    onEnd({ order, outcome: (await run.result()) as OrderOutcome });
  } catch (error) {
    const reason = error instanceof WorkflowFailedError ? error.message : String(error);
    onEnd({ order, outcome: { status: "failed", reason } });
  }
}

async function runOrders(cluster: Cluster, orders: readonly Order[]): Promise<Ended[]> {
  const client = HopClient.connect({ address: cluster.address, identity: "orders-example", retryMs: 60_000 });
  const ended: Ended[] = [];
  const progress = new Progress(orders.length);
  let killed: Promise<void> | undefined;
  const onEnd = (one: Ended) => {
    ended.push(one);
    progress.show(ended.length);
    if (killed === undefined && ended.length * 2 >= orders.length) killed = killAndRestart(cluster, progress, ended.length);
  };
  const left = [...orders];
  const lane = async () => {
    for (let order = left.shift(); order !== undefined; order = left.shift()) await follow(client, order, onEnd);
  };
  await Promise.all(Array.from({ length: concurrency }, lane));
  await killed;
  progress.done();
  client.close();
  return ended;
}

async function killAndRestart(cluster: Cluster, progress: Progress, count: number): Promise<void> {
  progress.note(`${count} orders have ended: killing the server (SIGKILL)`);
  await cluster.killServer();
  progress.note("server is dead; starting it again on the same data");
  const ms = await cluster.startServer();
  progress.note(`server is back after ${ms} ms; the remaining orders go on where they were`);
}

/** What the shop did, held against how the runs ended. Returns what does not fit. */
function audit(ended: readonly Ended[], ledger: Ledger): string[] {
  const problems: string[] = [];
  const seen = new Set<string>();
  for (const { order, outcome } of ended) {
    if (seen.has(order.id)) problems.push(`${order.id} ended twice`);
    seen.add(order.id);
    const did = (path: string) => ledger.effects.has(`${path}-${order.id}`);
    const want = outcome.status === "shipped" ? ["reserve", "charge", "ship", "email"] : ["reserve", "release", "email"];
    for (const path of ["reserve", "charge", "release", "ship", "email"]) {
      if (did(path) !== want.includes(path))
        problems.push(`${order.id} (${outcome.status}): ${path} ${did(path) ? "happened" : "did not happen"}`);
    }
    if (outcome.status === "failed") problems.push(`${order.id} failed: ${outcome.reason}`);
  }
  return problems;
}

async function prove(cluster: Cluster, order: Order, folder: string): Promise<void> {
  const file = join(folder, `order-${order.id}.proof.json`);
  say(`\n$ hop audit default:order-${order.id} --proof ${file}`);
  say(await cluster.hop(["audit", `default:order-${order.id}`, "--proof", file]));
  say(`$ hop audit verify ${file}`);
  say(await cluster.hop(["audit", "verify", file]));
}

async function main(): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), "hopskip-orders-"));
  const { orders, bad } = readOrders(await Bun.file(join(here, "orders.csv")).text());
  say(`orders.csv: ${orders.length} orders, ${bad.length} rows that are not orders:`);
  for (const row of bad) say(`  line ${String(row.line).padStart(3)}  ${row.order.padEnd(8)} ${row.reason}`);
  const shop = serveShop(seeded(7));
  const cluster = new Cluster({ executable: hop, folder, env: { SHOP_URL: shop.url }, verbose });
  try {
    await cluster.startServer();
    await cluster.startWorker(join(here, "activities.ts"));
    await cluster.hop(["deploy", join(here, "workflow.ts")]);
    say(`\nserver ${cluster.address}, data in ${folder}\n`);
    const started = performance.now();
    const ended = await runOrders(cluster, orders);
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    const count = (status: string) => ended.filter((e) => e.outcome.status === status).length;
    const { ledger } = shop;
    say(
      `\n${ended.length} orders ended in ${seconds} s: ${count("shipped")} shipped, ${count("declined")} declined, ${count("failed")} failed`,
    );
    say(`shop: ${ledger.requests} requests, ${ledger.refusals} refused, ${ledger.repeats} repeated, ${ledger.effects.size} effects`);
    const problems = audit(ended, ledger);
    for (const problem of problems) say(`  PROBLEM ${problem}`);
    if (problems.length > 0 || ended.length !== orders.length) return 1;
    say("every order ended exactly once, and the shop's ledger agrees");
    const proven = ended.find((e) => e.outcome.status === "shipped");
    if (proven !== undefined) await prove(cluster, proven.order, folder);
    return 0;
  } finally {
    await cluster.stop();
    await shop.stop();
    if (!keep) rmSync(folder, { recursive: true, force: true });
  }
}

process.exitCode = await main();
