/**
 * Streams of runs over three nodes of the compiled executable: each consumer has every chunk once and in order, whichever
 * node it asks and whoever dies, and a run whose consumers have left is told.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import type { RunHandle } from "#sdk/client";
import { until } from "../until.ts";
import { Nodes } from "./nodes.ts";

const workflows = `
import { durable, signal, sleep, yieldChunk } from "@hopskip/runtime";

export const counts = durable(async ({ to, everyMs }: { to: number; everyMs: number }) => {
  for (let n = 1; n <= to; n++) {
    await yieldChunk(n);
    await sleep(everyMs);
  }
  return "counted";
});
export const dumps = durable(async (size: number) => {
  await yieldChunk("x".repeat(size));
  await signal("fail");
  throw new RangeError("no more");
});
`;

const example = join(import.meta.dir, "../../examples/streaming");

let nodes: Nodes;

beforeAll(async () => {
  nodes = new Nodes(3);
  await nodes.form(3);
  await nodes.deploy({ workflows, example });
}, 90_000);
afterAll(() => nodes[Symbol.asyncDispose]());

/** All that one consumer is given. */
async function taken(run: RunHandle): Promise<unknown[]> {
  const values: unknown[] = [];
  for await (const { value } of run.stream()) values.push(value);
  return values;
}

const upTo = (count: number) => Array.from({ length: count }, (_, i) => i + 1);

test("consumers at every node have all chunks once, though the run's leader is killed half-way", async () => {
  const leader = await nodes.leaderOf(1);
  const at = nodes.servers.findIndex((each) => each !== leader);
  const own = nodes.client(nodes.at(at));
  const run = await own.start("counts", { to: 60, everyMs: 50 }, { instance: "killed" });
  const through = nodes.servers.map((server) => taken(nodes.client(server).handle("default:killed")));
  const first = run.stream<number>()[Symbol.asyncIterator]();
  for (let n = 1; n <= 10; n++) expect((await first.next()).value?.value).toBe(n);
  await leader.kill();
  for (let n = 11; n <= 60; n++) expect((await first.next()).value?.value).toBe(n);
  expect((await first.next()).done).toBe(true);
  expect(await Promise.all(through)).toEqual(nodes.servers.map(() => upTo(60)));
  expect(await run.result()).toBe("counted");
  await leader.restart();
  await nodes.whole(3);
}, 90_000);

test("hop stream prints a line each, and goes on from an offset; an ended run's stream is there whole", async () => {
  await nodes.ok(["run", "counts", "--input", '{"to": 5, "everyMs": 1}', "--instance", "shown"]);
  expect(await nodes.ok(["stream", "default:shown"])).toBe("1\n2\n3\n4\n5\n");
  const lines = (await nodes.ok(["stream", "default:shown", "-o", "jsonl"])).trimEnd().split("\n");
  const chunks = lines.map((line) => JSON.parse(line) as { offset: number; chunk: number });
  expect(chunks.map(({ chunk }) => chunk)).toEqual(upTo(5));
  const [, , third] = chunks;
  expect(await nodes.ok(["stream", "default:shown", "--from", `${third?.offset}`], { server: nodes.at(1) })).toBe("3\n4\n5\n");
  expect(await nodes.ok(["stream", "default:shown", "--from", `${(third?.offset ?? 0) + 1}`])).toBe("4\n5\n");
});

test("what a run yields is shown to whoever follows it, and its result is the output", async () => {
  const { code, stdout, stderr } = await nodes.run(["run", "counts", "--input", '{"to": 3, "everyMs": 1}', "--follow"]);
  expect([code, stdout]).toEqual([0, '"counted"\n']);
  expect(stderr.split("\n").filter((line) => /^\d$/.test(line))).toEqual(["1", "2", "3"]);
});

test("a large chunk, a run that fails, and what can't be consumed", async () => {
  const run = await nodes.client(nodes.at(0)).start("dumps", 200_000, { instance: "large" });
  const stream = run.stream<string>();
  expect((await stream.next()).value?.value).toHaveLength(200_000);
  await run.signal("fail");
  expect(await stream.next()).toEqual({ done: true, value: undefined });
  const failed = await nodes.run(["stream", "default:large"]);
  expect([failed.code, failed.stdout.length, failed.stderr]).toEqual([1, 200_003, expect.stringContaining("failed: RangeError: no more")]);
  const nobody = await nodes.run(["stream", "default:nobody"]);
  expect([nobody.code, nobody.stderr]).toEqual([4, expect.stringContaining("there is no such run (RUN_NOT_FOUND)")]);
  const wrong = await nodes.run(["stream", "default:large", "--from", "-1"]);
  expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining("want the offset of a chunk")]);
});

test("a run whose consumers have left is told after ten seconds; one that comes back in time is missed by nobody", async () => {
  const own = nodes.client(nodes.at(0));
  const [left, stays] = await Promise.all([
    own.start("streamProcessing", { tokens: Array(2000).fill("a") }, { instance: "left" }),
    own.start("streamProcessing", { tokens: Array(200).fill("a") }, { instance: "stays" }),
  ]);
  for (const run of [left, stays]) {
    const stream = run.stream();
    await stream.next();
    await stream.return(undefined);
  }
  await until(async () => (await stays.describe()).size > 100, { what: "chunks that nobody takes" });
  expect(await taken(nodes.client(nodes.at(1)).handle("default:stays"))).toHaveLength(200);
  expect(await stays.result()).toBe("done");
  expect(await left.result()).toBe("rerouted");
  const history = await nodes.ok(["audit", "default:left"]);
  expect(history).toContain("StreamDisconnected");
  expect(history).toContain("(nobody is there)");
}, 60_000);
