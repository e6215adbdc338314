/** The saga of the guide, as its example has it, through the compiled executable: whatever ends it, nothing stays charged. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { HopClient } from "#sdk/client";
import { Cli } from "./cli-fixture.ts";
import { Cluster, until } from "./harness.ts";

const example = (file: string) => fileURLToPath(new URL(`../../examples/saga/${file}`, import.meta.url));

let cluster: Cluster;
let cli: Cli;
let client: HopClient;
let ledger: string;
beforeAll(async () => {
  cluster = new Cluster();
  ledger = join(cluster.folder, "ledger.jsonl");
  writeFileSync(join(cluster.folder, "fan.ts"), fan);
  writeFileSync(join(cluster.folder, "fan-activities.ts"), fanActivities);
  const files = [example("activities.ts"), join(cluster.folder, "fan-activities.ts")];
  const server = await cluster.server({ args: ["--worker", "--activities", ...files], env: { SAGA_LEDGER: ledger } });
  cli = new Cli(cluster, server);
  await cli.ok(["deploy", example("workflow.ts")]);
  await cli.ok(["deploy", "fan.ts"]);
  client = HopClient.connect({ address: server.grpc });
}, 60_000);
afterAll(async () => {
  client?.close();
  await cluster[Symbol.asyncDispose]();
});

const fan = `
import { activity, compensate, durable } from "@hopskip/runtime";
export const books = durable(async () => {
  await Promise.all(Array.from({ length: 10 }, async (_, seat) => {
    await activity("book", seat);
    compensate("unbook", seat);
  }));
});
`;
const fanActivities = `
export const book = (seat: number, { signal }: { signal: AbortSignal }) =>
  seat < 4 ? seat : new Promise((_, fail) => signal.addEventListener("abort", () => fail(signal.reason)));
export const unbook = (seat: number) => seat;
`;

/** What the ledger has of an order, in order. */
function linesOf(order: string): string[] {
  if (!existsSync(ledger)) return [];
  const lines = readFileSync(ledger, "utf8")
    .trimEnd()
    .split("\n")
    .filter((line) => line !== "");
  return lines
    .map((line) => JSON.parse(line) as { what: string; id: string })
    .flatMap(({ what, id }) => (id === order || id === `${order}-charge` ? [what] : []));
}

const input = (order: string) => ["--instance", order, "--input", JSON.stringify({ id: order })];
test("a saga that comes to its end undoes nothing, and its history has what it registered before each step", async () => {
  expect(await cli.ok(["run", "openAccount", ...input("done"), "--follow"])).toBe("null\n");
  expect(linesOf("done")).toEqual(["charged", "reserved", "shipped"]);
  expect((await cli.ok(["audit", "default:done"])).match(/Compensation\w+|ActivityScheduled|Unwind\w+/g)).toEqual([
    "CompensationRegistered",
    "ActivityScheduled",
    "CompensationRegistered",
    "ActivityScheduled",
    "ActivityScheduled",
  ]);
}, 30_000);

test("a saga that passes its deadline between charge and shipment is unwound, newest first, each with a key of its own", async () => {
  const { code, stderr } = await cli.run(["run", "openAccount", ...input("late"), "--deadline", "220ms", "--follow"]);
  expect([code, stderr]).toEqual([1, expect.stringContaining("ran out of time")]);
  const lines = linesOf("late").filter((what) => what !== "shipped");
  expect(lines).toEqual(lines.length === 4 ? ["charged", "reserved", "released", "refunded"] : ["charged", "refunded"]);
  const told = await cli.ok(["audit", "default:late"]);
  expect(told).toContain("key default:late/1/undo/1");
  expect(told).toMatch(/UnwindStarted.*to be timed_out with \d compensation/);
  expect(told).toMatch(/UnwindEnded.*\d compensations? executed/);
}, 30_000);

test("terminated at any of its events, or superseded, it leaves no card charged and unrefunded", async () => {
  const cuts = Array.from({ length: 9 }, (_, count) => count + 1);
  await Promise.all(
    cuts.map(async (size) => {
      const order = `cut-${size}`;
      const run = await client.start("openAccount", { id: order }, { instance: order });
      for (let seen = 1; seen < size; ) seen = (await client.describe(run.id)).size;
      // A few have come to their end by then.
      if (size % 3 === 0)
        await client.start("openAccount", { id: `${order}-b` }, { instance: order, contention: "supersede", overrideReason: "again" });
      else await client.terminate(run.id, "wedged").catch(() => {});
      await client.outcome(run.id, { generation: 1 }).catch(() => {});
      if (size % 3 === 0) await client.outcome(`default:${order}`);
    }),
  );
  for (const size of cuts) {
    const lines = linesOf(`cut-${size}`);
    if (lines.includes("shipped") && !lines.includes("refunded")) continue;
    expect([size, lines.lastIndexOf("charged") <= lines.lastIndexOf("refunded")]).toEqual([size, true]);
    expect([size, lines.lastIndexOf("reserved") <= lines.lastIndexOf("released")]).toEqual([size, true]);
  }
}, 60_000);

test("a fan-out of ten that is cancelled with four done undoes those four, newest first", async () => {
  const run = await cli.started("books", "--instance", "fan");
  await until(async () => (await client.describe(run)).compensation.length === 4);
  await cli.ok(["workflow", "cancel", run]);
  expect((await client.outcome(run)).status).toBe("cancelled");
  const told = await cli.ok(["audit", run]);
  expect(told.match(/CompensationCompleted/g)).toHaveLength(4);
  expect(told).toMatch(/UnwindEnded.*4 compensations executed/);
}, 30_000);

test("what can't be undone is a dead letter over a kill: listed, shown, replayed, dropped", async () => {
  writeFileSync(join(cluster.folder, "down"), "");
  for (const order of ["dead-1", "dead-2"]) {
    const run = await client.start("openAccount", { id: order }, { instance: order });
    await until(() => linesOf(order).includes("charged"));
    await client.terminate(run.id, "wedged");
    const { code, stderr } = await cli.run(["workflow", "result", run.id]);
    expect([code, stderr]).toEqual([1, expect.stringContaining("was terminated: wedged")]);
  }
  await cli.server.kill();
  await cli.server.restart();
  interface Listed {
    readonly letter: string;
    readonly run: string;
    readonly name: string;
    readonly state: string;
  }
  const list = () => cli.json<Listed[]>(["dlq", "list"]);
  const letters = (await list()).filter(({ name }) => name === "refund_card");
  expect(new Map(letters.map(({ run, state }) => [run, state]))).toEqual(
    new Map([
      ["default:dead-1", "waiting"],
      ["default:dead-2", "waiting"],
    ]),
  );
  const of = (run: string) => letters.find((one) => one.run === `default:${run}`)?.letter ?? "";
  const shown = await cli.ok(["dlq", "show", of("dead-1")]);
  for (const part of ["BankDown: The bank is closed", '"dead-1-charge"', "default:dead-1/1/undo/1"]) expect(shown).toContain(part);

  rmSync(join(cluster.folder, "down"));
  await cli.ok(["dlq", "replay", of("dead-1")]);
  await until(() => linesOf("dead-1").includes("refunded"));
  expect((await cli.run(["dlq", "drop", of("dead-2")])).code).toBe(2);
  await cli.ok(["dlq", "drop", of("dead-2"), "--reason", "refunded by hand"]);
  const gone = await cli.run(["dlq", "replay", of("dead-2")]);
  expect([gone.code, gone.stderr]).toEqual([4, expect.stringContaining("DEAD_LETTER_NOT_FOUND")]);
  await until(async () => (await list()).every(({ name }) => name !== "refund_card"));
  expect(await cli.ok(["audit", "default:dead-1"])).toMatch(/DeadLetterReplayed.*dead letter/);
  expect(await cli.ok(["audit", "default:dead-2"])).toContain("refunded by hand");
  expect(linesOf("dead-2")).not.toContain("refunded");
}, 60_000);
