/** deploy/sizing.sh: its arithmetic, what it refuses, and that docs/SIZING.md shows what it prints. */
import { expect, test } from "bun:test";
import { join } from "node:path";
import { readSource, root } from "../sources.ts";

function size(...values: string[]): { readonly code: number; readonly out: string; readonly err: string } {
  const { exitCode, stdout, stderr } = Bun.spawnSync(["sh", join(root, "deploy/sizing.sh"), ...values]);
  return { code: exitCode, out: stdout.toString(), err: stderr.toString() };
}

/** First number of a line. */
function figure(out: string, line: string): number {
  const found = new RegExp(`^  ${line} +(-?[\\d.]+)`, "m").exec(out);
  if (found === null) throw new Error(`There is no line "${line}" in:\n${out}`);
  return Number(found[1]);
}

test("docs/SIZING.md shows what the script prints when it is given nothing", async () => {
  const { code, out } = size();
  expect(code).toBe(0);
  const plain = (text: string) => text.replace(/[ \t]+$/gm, "");
  expect(plain(await readSource("docs/SIZING.md"))).toContain(`\`\`\`\n${plain(out)}\`\`\``);
});

test("events, bytes and CPU of a run follow from its steps", () => {
  const { out } = size("runs_per_day=86400", "steps=1", "payload=100", "peak=1", "shards=3");
  expect(figure(out, "events/s at the peak")).toBe(4);
  expect(figure(out, "CPU of a run on all nodes together")).toBe(1.6);
  // 0.6 of a core of three nodes, at 1.6 ms a run.
  expect(figure(out, "runs/s that the nodes are good for")).toBe(1125);
  expect(figure(out, "sealed: bytes a run")).toBe(320);
});

test("seals are as many as time asks for, or as many as the log fills", () => {
  expect(figure(size("shards=10", "seal_minutes=5").out, "seals a day")).toBe(2880);
  // 10 million runs of 8 events of 310 bytes are 23,651 MiB of log.
  expect(figure(size("runs_per_day=10000000", "shards=1", "seal_minutes=1440").out, "seals a day")).toBe(370);
});

test("one node without replicas sends nothing to others, and more bytes cost more", () => {
  expect(figure(size("nodes=1", "replicas=1", "shards=1").out, "between zones")).toBe(0);
  expect(figure(size("payload=1000").out, "sealed: bytes a run")).toBeGreaterThan(figure(size().out, "sealed: bytes a run"));
});

test("what is out of proportion is said", () => {
  expect(size("runs_per_day=200000000").out).toMatch(/good for +\d+ TOO FEW/);
  expect(size("kept_days=365").out).toMatch(/LARGE, seal less often/);
  expect(size("nodes=5").out).toContain("FEWER THAN NODES");
});

test("names that are none, and values that are no numbers, are refused", () => {
  expect(size("stepps=3")).toEqual({ code: 2, out: "", err: "sizing.sh: there is no value stepps\n" });
  expect(size("steps=three").code).toBe(2);
  expect(size("steps").err).toContain("want NAME=NUMBER");
});
