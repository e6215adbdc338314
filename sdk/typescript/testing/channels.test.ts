import { expect, test } from "bun:test";
import { buildOnce } from "../../../worker/host/v8/v8-fixture.ts";
import { TestEnvironment } from "./index.ts";

buildOnce();
type Workflows = typeof import("./channels-fixture.ts");
const environment = () =>
  TestEnvironment.create<Workflows>({
    workflows: new URL("./channels-fixture.ts", import.meta.url),
    activities: { double: (n: number) => n * 2 },
  });

test("a reader is given what was sent before it came and what comes, in order, until the channel is closed", async () => {
  const env = await environment();
  const numbers = env.channel<number>("numbers");
  expect(await numbers.send(1)).toBe(0);
  const run = await env.start("reader", { name: "numbers" });
  expect(await numbers.sendAll([2, 3])).toBe(1);
  await numbers.close("enough");
  expect(await run.result()).toEqual([
    { offset: 0, messages: [1], missed: 0 },
    { offset: 1, messages: [2, 3], missed: 0 },
  ]);
  await expect(numbers.send(4)).rejects.toThrow("it is closed");
});

test("two readers each have all, and what both have is kept no more", async () => {
  const env = await environment();
  const numbers = env.channel<number>("numbers");
  await numbers.open({ messagesMax: 2 });
  const a = await env.start("reader", { name: "numbers" });
  const b = await env.start("reader", { name: "numbers" });
  for (let n = 1; n <= 6; n++) await numbers.send(n);
  await numbers.close();
  const flat = (batches: { messages: number[] }[]) => batches.flatMap(({ messages }) => messages);
  expect([flat(await a.result()), flat(await b.result())]).toEqual([
    [1, 2, 3, 4, 5, 6],
    [1, 2, 3, 4, 5, 6],
  ]);
});

test("a full channel refuses senders, and says for how long", async () => {
  const env = await environment();
  const numbers = env.channel<number>("numbers");
  await numbers.open({ messagesMax: 2 });
  await numbers.sendAll([1, 2]);
  await expect(numbers.send(3)).rejects.toMatchObject({ reason: "BUFFER_FULL", retryAfterMs: 200 });
});

test("a run that sends to a full channel waits, and is not refused", async () => {
  const env = await environment();
  const numbers = env.channel<number>("numbers");
  await numbers.open({ messagesMax: 2 });
  await numbers.sendAll([1, 2]);
  const sender = await env.start("sender", { name: "numbers", values: [3, 4] });
  await env.advance("1m");
  expect(sender.status).toBe("running");
  const reader = await env.start("reader", { name: "numbers" });
  expect(await sender.result()).toEqual([]);
  await numbers.close();
  expect((await reader.result()).flatMap(({ messages }) => messages)).toEqual([1, 2, 3, 4]);
});

test("what a loop did not use when it was left, the next read is given first", async () => {
  const env = await environment();
  const numbers = env.channel<number>("numbers");
  await numbers.sendAll([1, 2, 3, 4, 5, 6]);
  await numbers.close();
  expect(await env.run("leaver", "numbers")).toEqual([1, 2, 3, 4, 5, 6]);
});

test("a read that is over its time takes nothing from the next one", async () => {
  const env = await environment();
  const run = await env.start("patient", "late");
  await env.advance("2s");
  await env.channel("late").send(7);
  expect(await run.result()).toEqual({ late: [7], offset: 0 });
});

test("reducers: each read is given what came since the one before", async () => {
  const env = await environment();
  const cases: [Parameters<ReturnType<typeof env.channel>["open"]>[0], unknown[], unknown[], unknown[]][] = [
    [
      { reducer: "sum" },
      [1, 2.5],
      [-3],
      [
        [2, 3.5],
        [1, -3],
      ],
    ],
    [
      { reducer: "count" },
      ["a", "b"],
      ["c"],
      [
        [2, 2],
        [1, 1],
      ],
    ],
    [
      { reducer: "min" },
      [4, 2],
      [3],
      [
        [2, 2],
        [1, 3],
      ],
    ],
    [
      { reducer: "max" },
      [4, 2],
      [3],
      [
        [2, 4],
        [1, 3],
      ],
    ],
    [
      { reducer: "union" },
      ["b", "a", "b"],
      [{ x: 1 }],
      [
        [3, ["a", "b"]],
        [1, [{ x: 1 }]],
      ],
    ],
    [
      { reducer: "last" },
      [1, { a: 2 }],
      [3],
      [
        [2, { a: 2 }],
        [1, 3],
      ],
    ],
  ];
  for (const [options, before, after, want] of cases) {
    const name = `by-${options?.reducer}`;
    const channel = env.channel(name);
    await channel.open(options);
    await channel.sendAll(before);
    const run = await env.start("counter", { name, reads: 2 });
    await channel.sendAll(after);
    expect(await run.result()).toEqual(want);
  }
});

test("what can't be reduced is refused, to clients and to runs", async () => {
  const env = await environment();
  const total = env.channel("total");
  await total.open({ reducer: "sum" });
  await expect(total.send("seven")).rejects.toMatchObject({ reason: "BAD_REQUEST" });
  expect(await env.run("sender", { name: "total", values: [1, "two", 3] })).toEqual(["BadRequestError"]);
  await total.close();
  expect(await env.run("sender", { name: "total", values: [1] })).toEqual(["ChannelClosedError"]);
});

test("messages whose time is over are dropped, and the reader is told how many it missed", async () => {
  const env = await environment();
  const short = env.channel<number>("short");
  await short.open({ expireMs: 60_000 });
  const run = await env.start("reader", { name: "short", max: 1 });
  await run.pause();
  await short.sendAll([1, 2, 3]);
  await env.advance("2m");
  await short.send(4);
  await run.unpause();
  await short.close();
  // The first was on its way when the others were dropped.
  expect(await run.result()).toEqual([
    { offset: 0, messages: [1], missed: 0 },
    { offset: 3, messages: [4], missed: 2 },
  ]);
});

test("what is read in the wrong way is refused, and there for who reads it in the right one", async () => {
  const env = await environment();
  await env.channel("sum").open({ reducer: "sum" });
  await env.channel("sum").sendAll([1, 2]);
  await env.channel("kept").sendAll([1, 2]);
  const want = { refused: ["ChannelReadError", "ChannelReadError"], range: "RangeError" };
  expect(await env.run("confused", { name: "sum", reduces: true })).toEqual({ ...want, right: 3 });
  expect(await env.run("confused", { name: "kept", reduces: false })).toEqual({ ...want, right: [1, 2] });
});

test("one sending is no larger than what may wait", async () => {
  const env = await environment();
  const numbers = env.channel<number>("numbers");
  await numbers.open({ messagesMax: 2 });
  await expect(numbers.sendAll([1, 2, 3])).rejects.toMatchObject({ reason: "BAD_REQUEST" });
  expect(await numbers.sendAll([1, 2])).toBe(0);
});

test("one run reads a channel once at a time", async () => {
  const env = await environment();
  const run = await env.start("greedy", "numbers");
  await env.channel("numbers").send(1);
  expect(await run.result()).toEqual(["ChannelBusyError", [1]]);
});

test("a crash anywhere changes neither what is read nor the history, where one sends before the other reads", async () => {
  const env = await environment();
  const report = await env.crashEverywhere(async (fresh) => {
    const numbers = fresh.channel<number>("numbers");
    const sender = await fresh.start("sender", { name: "numbers", values: [1, 2, 3] });
    await sender.result();
    await numbers.close();
    return fresh.run("worker", "numbers");
  });
  expect(report.coreCrashes).toBeGreaterThan(15);
}, 120_000);

test("a crash anywhere, while others send: each message is read once, and the history replays", async () => {
  const env = await environment();
  const scenario = async (fresh: typeof env) => {
    const numbers = fresh.channel<number>("numbers");
    const run = await fresh.start("worker", "numbers");
    const senders = await Promise.all([4, 5].map((n) => fresh.start("sender", { name: "numbers", values: [n, 10 * n] })));
    for (const sender of senders) await sender.result();
    await numbers.close();
    expect(await run.result()).toBe(198);
    await fresh.replay(run.history());
    return fresh.progress.records;
  };
  const records = await scenario(env.fresh());
  for (let record = 2; record <= records; record++) await scenario(env.fresh({ records: [record] }));
  expect(records).toBeGreaterThan(20);
}, 120_000);

test("a flood is few events of the reader's history", async () => {
  const env = await environment();
  const flood = env.channel<number>("flood");
  const run = await env.start("reader", { name: "flood" });
  for (let i = 0; i < 100; i++) {
    await flood.sendAll(Array.from({ length: 100 }, (_, n) => i * 100 + n));
    await env.advance(10);
  }
  await flood.close();
  const batches = await run.result();
  expect(batches.flatMap(({ messages }) => messages)).toEqual(Array.from({ length: 10_000 }, (_, n) => n));
  // About as many as half seconds have passed, in place of a hundred.
  expect(batches.length).toBeLessThan(12);
});
