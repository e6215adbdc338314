import { describe, expect, test } from "bun:test";
import { buildOnce } from "../../../worker/host/v8/v8-fixture.ts";
import { type EnvironmentOptions, InstanceLiveError, type MockContext, TestEnvironment } from "./index.ts";

buildOnce();
type Workflows = typeof import("./workflows-fixture.ts");
const workflows = new URL("./workflows-fixture.ts", import.meta.url);
const environment = (options: Omit<EnvironmentOptions, "workflows"> = {}) => TestEnvironment.create<Workflows>({ workflows, ...options });

const day = 86_400_000;
const work = async ({ takes }: { takes: number }, { sleep }: MockContext) => {
  await sleep(takes);
  return `${takes}`;
};
const mocks = {
  charge: () => ({ id: "ch_1" }),
  ship: async () => "shipped",
  work,
  send_email: ({ at }: { at: number }) => `sent at ${at}`,
};

describe("time", () => {
  test("fourteen days pass by themselves, and are what the workflow sees", async () => {
    const env = await environment({ activities: mocks, startAt: "2026-02-03T00:00:00Z" });
    const begun = env.now;
    const sent = await env.run("trialReminder", { email: "ada@example.com" });
    const took = env.now - begun;
    expect(took).toBeGreaterThanOrEqual(14 * day);
    expect(took).toBeLessThan(14 * day + 100);
    expect(Number(sent.replace("sent at ", ""))).toBeGreaterThanOrEqual(begun + 14 * day);
  });

  test("passes as far as is asked for, and what is due happens meanwhile", async () => {
    const env = await environment({ activities: mocks });
    const run = await env.start("trialReminder", { email: "ada@example.com" });
    await env.advance("13d");
    expect([env.calls("send_email").length, run.status]).toEqual([0, "running"]);
    await env.advance("1d1s");
    expect([env.calls("send_email").length, run.status]).toEqual([1, "completed"]);
  });

  test("naps of activities and timers race", async () => {
    const env = await environment({ activities: mocks });
    expect(await env.run("tree")).toEqual({
      first: "fast",
      all: ["10", "third", "20"],
      seen: ["fast", "slow", "third"],
      random: expect.any(Number),
    });
  });
});

describe("activities", () => {
  test("are plain functions that fail, are retried when that is due, and are counted", async () => {
    const env = await environment({
      activities: {
        ...mocks,
        charge: (_input: unknown, { attempt }: MockContext) => {
          if (attempt < 3) throw new Error("no answer");
          return { id: "ch_3" };
        },
      },
    });
    const run = await env.start("order", { cents: 5 });
    await env.advance("5m");
    await run.signal("approve", true);
    expect(await run.result()).toEqual({ approved: true, shipped: "shipped" });
    const calls = env.calls("charge");
    expect(calls.map(({ attempt, input }) => [attempt, input])).toEqual([1, 2, 3].map((attempt) => [attempt, { cents: 5 }]));
    expect((calls[2]?.atMs ?? 0) - (calls[0]?.atMs ?? 0)).toBeGreaterThanOrEqual(120_000);
    expect(env.calls("ship").map(({ input }) => input)).toEqual([{ payment: "ch_3" }]);
  });

  test("that fail for good fail the run, with the whole chain of causes", async () => {
    const env = await environment({
      activities: {
        ...mocks,
        charge: () => {
          throw new RangeError("declined");
        },
      },
    });
    const error = await env.run("order", { cents: 5 }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({
      name: "WorkflowFailedError",
      status: "failed",
      message: 'Run default:run-1 failed: ActivityError: Activity "charge" failed: declined',
    });
  });

  test("without a mock are named by who waits for them", async () => {
    const env = await environment({ activities: { charge: () => ({ id: "ch_1" }) } });
    const run = await env.start("trialReminder", { email: "ada@example.com" });
    await expect(run.result()).rejects.toThrow(
      'Run default:run-1 will never end: it waits for activity "send_email" (operation 2), for which there is no mock, and nothing else is to happen',
    );
  });

  test("that hang are named, and end when they are cancelled", async () => {
    const reasons: string[] = [];
    const hold = async (_input: unknown, { hang, signal }: MockContext) => {
      signal.addEventListener("abort", () => reasons.push(String(signal.reason)));
      await hang();
    };
    const env = await environment({ activities: { hold, release: () => undefined } });
    const run = await env.start("cleanup");
    await expect(run.result()).rejects.toThrow('it waits for activity "hold" (operation 1), which hangs, and nothing else is to happen');
    await run.cancel("enough");
    expect(await run.outcome()).toMatchObject({ status: "cancelled" });
    expect(env.calls().map(({ activity }) => activity)).toEqual(["hold", "release"]);
    expect(reasons).toEqual(["ActivityCancelledError: Activity hold is cancelled: The workflow withdrew it"]);
  });

  test("that take real time are waited for, up to a limit", async () => {
    const gate = Promise.withResolvers<string>();
    const env = await environment({ activities: { ...mocks, send_email: () => gate.promise }, activityMsMax: 30 });
    const run = await env.start("trialReminder", { email: "ada@example.com" });
    await expect(run.result()).rejects.toThrow(
      'Activity "send_email" has been running for 30 ms of real time: a mock activity takes virtual time by',
    );
    gate.resolve("at last");
    expect(await run.result()).toBe("at last");
  });
});

describe("a run", () => {
  test("is signalled, queried, cancelled and terminated", async () => {
    const env = await environment({ activities: mocks });
    const run = await env.start("order", { cents: 1 }, { instance: "o-1", namespace: "shop" });
    expect([run.id, await run.query<string>("step")]).toEqual(["shop:o-1", "waiting"]);
    await run.signal("approve", false);
    expect([await run.query<string>("step"), await run.result()]).toEqual(["shipping", { approved: false, shipped: "shipped" }]);
    const other = await env.start("order", { cents: 1 });
    await other.terminate("enough");
    expect(await other.outcome()).toMatchObject({ status: "terminated" });
  });

  test("waits for a signal as long as it said, or takes it in time", async () => {
    const env = await environment();
    expect(await env.run("vote")).toBe("too late");
    const run = await env.start("vote");
    const result = run.result();
    await run.signal("vote", "yes");
    expect(await result).toBe("yes");
  });

  test("whose name is taken is refused as the client refuses it", async () => {
    const env = await environment();
    await env.start("parcel", undefined, { instance: "p" });
    const refused = env.start("parcel", undefined, { instance: "p", contention: "reject" });
    expect(await refused.catch((error: unknown) => error)).toBeInstanceOf(InstanceLiveError);
  });

  test("tells and awaits others", async () => {
    const env = await environment();
    await env.start("parcel", undefined, { instance: "p" });
    expect(await env.run("line", "p")).toEqual({ item: "book" });
  });

  test("that waits in the queue of its name begins when that is its turn", async () => {
    const env = await environment();
    const first = await env.start("parcel", undefined, { instance: "p" });
    const second = await env.start("parcel", undefined, { instance: "p", contention: "queue" });
    await second.signal("item", 2);
    await first.signal("item", 1);
    expect([await first.result(), await second.result()]).toEqual([{ item: 1 }, { item: 2 }] as never);
  });

  test("yields chunks to whoever comes, and is told ten seconds after the last consumer has left", async () => {
    const env = await environment({ activities: mocks });
    const run = await env.start("streams", 60);
    await env.advance("20s");
    const consumer = await run.consume();
    await env.advance("20s");
    await consumer.leave();
    expect(await run.result()).toMatch(/^left at 5[0-3]$/);
    const chunks = run.chunks<{ n: number }>();
    expect(chunks.map(({ n }) => n)).toEqual(chunks.map((_, i) => i + 1));
    expect(chunks.length).toBeGreaterThan(48);
    const taken = await env.start("streams", 30);
    await (await taken.consume()).leave();
    await env.advance("5s");
    await taken.consume();
    expect([await taken.result(), taken.chunks().length]).toEqual(["taken", 30]);
  });

  test("that ends by its own error says which, and its log is there", async () => {
    const env = await environment();
    await expect(env.run("fails")).rejects.toThrow("Run default:run-1 failed: RangeError: no such luck");
    expect(env.logs).toMatchObject([{ level: "info", message: "about to fail" }]);
  });

  test("of an unknown type is refused with those there are", async () => {
    const env = await environment();
    await expect(env.start("nowhere" as never)).rejects.toThrow(
      'There is no workflow "nowhere": the workflow files export cleanup, fails, line, naps',
    );
  });
});

describe("replay", () => {
  test("of an own history agrees, from JSON too", async () => {
    const env = await environment({ activities: mocks });
    await env.run("tree");
    const history = env.runs[0]?.history();
    await env.replay(history as never);
    await env.fresh().replay(JSON.parse(JSON.stringify(history)) as never);
    expect(history?.lines().slice(0, 4)).toEqual(["0 runStarted", "1 timerStarted #1", "2 timerStarted #2", "3 activityScheduled #3"]);
  });

  test("of a long history names each operation by its whole number", async () => {
    const env = await environment();
    const run = await env.start("naps", 300);
    expect(await run.result()).toBe(300);
    const lines = run.history().lines();
    expect(lines.slice(300, 302)).toEqual(["300 timerStarted #300", "301 timerFired #1"]);
  });

  test("of another code's history names both operations", async () => {
    const env = await environment({ activities: mocks });
    const run = await env.start("vote");
    const file = JSON.parse(JSON.stringify(run.history())) as { events: string[]; run: string };
    // The same bytes but for the name of the type: what was recorded is now asked of other code.
    const asTree = { ...file, events: file.events.map((event) => renamed(event, "vote", "tree")) };
    await expect(env.replay(asTree as never)).rejects.toThrow(
      'Operation 1 diverged: history (event 1) has a wait for signal "vote", the code asked for a sleep of 5000 ms',
    );
  });

  test("of what is no history says so", async () => {
    const env = await environment();
    await expect(env.replay({ format: "x" } as never)).rejects.toThrow(
      'Cannot read a history: its format is "x", want "hopskip-history/1"',
    );
    await expect(env.replay("./nowhere.json")).rejects.toThrow("Cannot read the history in ./nowhere.json: ENOENT");
  });
});

/** An event's bytes with one name in place of another of the same length; its payload only, as it is in base64 then. */
function renamed(event: string, from: string, to: string): string {
  const bytes = Buffer.from(event, "base64");
  const at = bytes.indexOf(from);
  // Only the start holds the type; the wait for the signal of that name comes later.
  if (at < 0 || bytes.readUInt8(at - 1) !== from.length || !bytes.includes("start-")) return event;
  bytes.write(to, at);
  return bytes.toString("base64");
}

describe("crashes everywhere", () => {
  test("change neither results nor one byte of the histories", async () => {
    const env = await environment({ activities: mocks });
    const report = await env.crashEverywhere(async (each) => {
      const run = await each.start("order", { cents: 5 });
      await run.signal("approve", true);
      return [await run.result(), await each.run("tree")];
    });
    expect(report.coreCrashes).toBeGreaterThan(15);
    expect(report.evictions).toBeGreaterThan(8);
  });

  test("also of streams", async () => {
    const env = await environment({ activities: mocks });
    const report = await env.crashEverywhere(async (each) => {
      const run = await each.start("streams", 4);
      await run.consume();
      return [await run.result(), run.chunks()];
    });
    expect(report.coreCrashes).toBeGreaterThan(5);
  });

  test("also between runs, with time-outs and cancellations", async () => {
    const env = await environment({ activities: { hold: (_: unknown, { hang }: MockContext) => hang(), release: () => 1 } });
    await env.crashEverywhere(async (each) => {
      await each.start("parcel", undefined, { instance: "p" });
      const held = await each.start("cleanup");
      await held.cancel("enough");
      return [await each.run("line", "p"), (await held.outcome()).status, await each.run("vote")];
    });
  });

  test("find what depends on what a mock remembers", async () => {
    let count = 0;
    const env = await environment({ activities: { ...mocks, send_email: () => ++count } });
    await expect(env.crashEverywhere((each) => each.run("trialReminder", { email: "" }))).rejects.toThrow(
      "When it is simply run again, the scenario ends with result 2; without, with result 1",
    );
  });
});
