/**
 * Channels over three nodes of the compiled executable: every reader has every message once and in order, whoever sends,
 * whichever node is asked and whoever dies; what is large travels as a blob; a flood leaves a short history.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { until } from "../until.ts";
import { Nodes } from "./nodes.ts";

const workflows = `
import { channel, durable } from "@hopskip/runtime";

export const collects = durable(async (name: string) => {
  const seen: unknown[] = [];
  for await (const message of channel(name)) seen.push(message);
  return seen;
});
export const measures = durable(async (name: string) => {
  let bytes = 0;
  let messages = 0;
  for (;;) {
    const read = await channel<string>(name).read();
    for (const message of read.messages) bytes += message.length;
    messages += read.messages.length;
    if (read.closed) return { messages, bytes };
  }
});
export const sends = durable(async ({ name, from, to }: { name: string; from: number; to: number }) => {
  for (let n = from; n < to; n++) await channel(name).send(n);
});
`;

const example = join(import.meta.dir, "../../examples/channels");

let nodes: Nodes;

beforeAll(async () => {
  nodes = new Nodes(3);
  await nodes.form(3);
  await nodes.deploy({ workflows, example });
}, 90_000);
afterAll(() => nodes[Symbol.asyncDispose]());

test("readers have all that runs and clients send, once and in order of each sender, though the leader is killed", async () => {
  const leader = await nodes.leaderOf(1);
  const at = nodes.servers.findIndex((each) => each !== leader);
  const own = nodes.client(nodes.at(at));
  const readers = await Promise.all(["a", "b"].map((name) => own.start("collects", "busy", { instance: `reader-${name}` })));
  const sender = await own.start("sends", { name: "busy", from: 1000, to: 1100 }, { instance: "sender" });
  const channel = own.channels.handle<number>("busy");
  for (let n = 0; n < 100; n++) {
    if (n === 50) await leader.kill();
    await channel.send(n);
  }
  await sender.result();
  await channel.close("done");
  for (const reader of readers) {
    const seen = (await reader.result()) as number[];
    expect(seen.filter((n) => n < 1000)).toEqual(Array.from({ length: 100 }, (_, n) => n));
    expect(seen.filter((n) => n >= 1000)).toEqual(Array.from({ length: 100 }, (_, n) => n + 1000));
  }
  await leader.restart();
  await nodes.whole(3);
  const audited = await nodes.ok(["audit", "default:busy", "--channel"]);
  expect(audited).toContain("MessagesAppended");
  expect(audited).toContain("ChannelClosed");
}, 90_000);

test("large messages, and batches that are large, travel as blobs", async () => {
  const own = nodes.client(nodes.at(0));
  const channel = own.channels.handle<string>("large");
  const sent = [...Array.from({ length: 40 }, (_, i) => "x".repeat(10_000 + i)), "y".repeat(300_000), "z"];
  await channel.sendAll(sent);
  const run = await own.start("measures", "large");
  await channel.close();
  expect(await run.result()).toEqual({ messages: 42, bytes: sent.reduce((sum, one) => sum + one.length, 0) });
  const history = await nodes.ok(["audit", run.id, "-o", "jsonl"]);
  expect(history.length).toBeLessThan(20_000);
  const read: number[] = [];
  for await (const { value } of channel.messages({ untilNow: true })) read.push(value.length);
  expect(read).toEqual(sent.map(({ length }) => length));
}, 60_000);

test("a flood of 100,000 messages leaves less than 20 KB of the reader's history; a reducer leaves less than 2 KB", async () => {
  const own = nodes.client(nodes.at(1));
  const flood = own.channels.handle<string>("flood");
  const run = await own.start("measures", "flood", { instance: "flooded" });
  const batch = Array.from({ length: 1000 }, () => "m".repeat(20));
  for (let i = 0; i < 100; i++) await flood.sendAll(batch);
  await flood.close();
  expect(await run.result()).toEqual({ messages: 100_000, bytes: 2_000_000 });
  const sizeOf = async (id: string) => {
    let bytes = 0;
    for await (const { event } of own.history(id)) for (const one of event) bytes += one.length;
    return bytes;
  };
  expect(await sizeOf("default:flooded")).toBeLessThan(20_000);
  await nodes.ok(["channel", "open", "visits", "--reducer", "sum"]);
  const ones = Array.from({ length: 10_000 }, () => 1);
  const visits = own.channels.handle<number>("visits");
  for (let i = 0; i < 10; i++) await visits.sendAll(ones);
  expect(await own.execute("campaign", { goal: 100_000 }, { instance: "campaign" })).toBe(100_000);
  expect(await sizeOf("default:campaign")).toBeLessThan(2_000);
}, 90_000);

test("hop channel: open, send, show, list, read, close, and what can't be done", async () => {
  const ok = (...args: string[]) => nodes.ok(["channel", ...args]);
  const refused = async (...args: string[]) => {
    const { code, stderr } = await nodes.run(["channel", ...args]);
    return [code, stderr] as const;
  };
  expect(await refused("show", "nobody")).toEqual([4, expect.stringContaining("CHANNEL_NOT_FOUND")]);
  await ok("open", "cli", "--messages", "3", "--note", "for tests");
  expect(await refused("open", "cli")).toEqual([5, expect.stringContaining("CHANNEL_EXISTS")]);
  expect(await ok("send", "cli", "--input", '{"n": 1}', "-o", "ids")).toBe("0\n");
  nodes.project({ "lines.jsonl": '{"n": 2}\n\n{"n": 3}\n' });
  await ok("send", "cli", "--lines", "--input", "@project/lines.jsonl");
  expect(await ok("read", "cli")).toBe('{"n": 1}\n{"n": 2}\n{"n": 3}\n');
  expect(await ok("read", "cli", "--from", "2", "-o", "jsonl")).toBe('{"offset":2,"message":{"n":3}}\n');
  await ok("open", "ids");
  expect(await ok("send", "ids", "--input", "1", "--id", "x", "-o", "ids")).toBe("0\n");
  expect(await ok("send", "ids", "--input", "1", "--id", "x", "-o", "ids")).toBe("0\n");
  expect(await refused("send", "ids", "--input", "2", "--id", "x")).toEqual([5, expect.stringContaining("IDEMPOTENCY_CONFLICT")]);
  expect(await refused("send", "ids")).toEqual([2, expect.stringContaining("no message was given")]);
  expect(await refused("send", "cli", "--input", "4", "--timeout", "2s")).toEqual([
    6,
    expect.stringContaining("3 messages of 24 bytes wait in it"),
  ]);
  await ok("change", "cli", "--messages", "4");
  await ok("send", "cli", "--input", "4");
  const shown = JSON.parse(await ok("show", "cli", "-o", "json")) as Record<string, unknown>;
  expect(shown).toMatchObject({ channel: "default:cli", nextOffset: 4, waiting: 4, messagesMax: 4, note: "for tests", open: true });
  await until(async () => (await ok("list", "-o", "ids")).includes("default:cli\n"), { what: "the channel in the list" });
  await ok("close", "cli", "--reason", "over");
  expect(await refused("send", "cli", "--input", "5")).toEqual([5, expect.stringContaining("CHANNEL_CLOSED")]);
  expect(await ok("show", "cli")).toContain("over");
  expect(await nodes.ok(["workflow", "list", "-o", "ids"])).not.toContain("chan/");
}, 60_000);
