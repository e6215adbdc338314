import { expect, test } from "bun:test";
import { type MockContext, TestEnvironment } from "#sdk/testing";
import { buildOnce } from "../../worker/host/v8/v8-fixture.ts";

buildOnce();
type Workflows = typeof import("./workflows-fixture.ts");
const workflows = new URL("./workflows-fixture.ts", import.meta.url);
const environment = () =>
  TestEnvironment.create<Workflows>({
    workflows,
    activities: {
      note: (text: string) => text,
      long: async (_: unknown, { sleep }: MockContext) => sleep(3_600_000),
      fails: () => {
        throw new Error("not now");
      },
    },
  });
const notes = (env: TestEnvironment<Workflows>) => env.calls("note").map(({ input }) => input);

test("children run beside their parent, under names of their own, and their ends are told", async () => {
  const env = await environment();
  const parcels = [{ id: "a", ms: 5000 }, { id: "b", fails: true }, { id: "c" }];
  expect(await env.run("order", parcels)).toEqual([
    ["default:wf_run-1_1.1", 1, "a shipped"],
    ["default:wf_run-1_1.2", 1, 'Run "default:wf_run-1_1.2" did not complete: parcel b is lost'],
    ["default:wf_run-1_1.3", 1, "c shipped"],
  ]);
});

test("whatever crashes on the way, parents and children do the same", async () => {
  const env = await environment();
  const report = await env.crashEverywhere((each) =>
    each.run("order", [
      { id: "a", ms: 50 },
      { id: "b", fails: true },
    ]),
  );
  expect(report.coreCrashes).toBeGreaterThan(10);
  expect(report.evictions).toBeGreaterThan(3);
}, 60_000);

const policies = [
  [undefined, "terminated"],
  ["terminate", "terminated"],
  ["cancel", "cancelled"],
  ["abandon", "completed"],
] as const;

test.each(policies)("a parent-close policy of %s: the child is %s", async (parentClosePolicy, status) => {
  for (const how of ["completes", "fails", "waits"] as const) {
    const env = await environment();
    const settings = { instance: "parcel", ...(parentClosePolicy && { parentClosePolicy }) };
    const run = await env.start("parent", { how, settings });
    if (how === "waits") await run.terminate("no stock");
    const child = env.handle("default:parcel");
    const begun = env.now;
    expect([how, (await child.outcome()).status]).toEqual([how, status]);
    if (status !== "completed") expect(env.now - begun).toBeLessThan(5000);
    if (status === "cancelled") {
      const word = { completes: "completed", fails: "failed", waits: "was terminated" }[how];
      expect(notes(env)).toEqual([`p stopped: its parent, generation 1 of default:run-1, ${word}`]);
    }
  }
});

test("a deadline, a cancellation and a start that supersedes are ends like any other", async () => {
  for (const end of ["deadline", "cancel", "supersede"] as const) {
    const env = await environment();
    const input = { how: "waits", settings: { instance: "parcel" } } as const;
    const run = await env.start("parent", input, { instance: "p", deadline: end === "deadline" ? 2000 : 0 });
    if (end === "deadline") await env.advance(3000);
    else if (end === "cancel") await run.cancel();
    else await env.start("idler", undefined, { instance: "p", contention: "supersede", overrideReason: "a newer one" });
    expect([end, (await env.handle("default:parcel").outcome()).status]).toEqual([end, "terminated"]);
  }
});

test("a parent that is started again leaves the child of the generation before alone", async () => {
  const env = await environment();
  const settings = { instance: "parcel", parentClosePolicy: "abandon" } as const;
  await env.run("parent", { how: "completes", settings }, { instance: "p" });
  const attached = { instance: "parcel", contention: "attach" } as const;
  // It attaches to what is there: that is no child of the second.
  await env.run("parent", { how: "completes", settings: attached }, { instance: "p" });
  expect(env.handle("default:parcel").status).toBe("running");
});

test("a cancelled parent goes on at once, or when its child has ended, or leaves it alone", async () => {
  const seen = async (cancellationType: "try-cancel" | "wait-completed" | "abandon") => {
    const env = await environment();
    const run = await env.start("waiter", { cancellationType, parentClosePolicy: "abandon" });
    await run.cancel("not wanted");
    expect((await run.outcome()).status).toBe("cancelled");
    return [env.handle("default:parcel").status, notes(env)];
  };
  expect(await seen("try-cancel")).toEqual(["cancelled", expect.arrayContaining(["waiter cleans up", "p stopped: not wanted"])]);
  expect(await seen("wait-completed")).toEqual(["cancelled", ["p stopped: not wanted", "waiter cleans up"]]);
  expect(await seen("abandon")).toEqual(["running", ["waiter cleans up"]]);
});

test("a handle talks to its run, and is told when that has ended", async () => {
  const env = await environment();
  expect(await env.run("talker")).toEqual(["hello world", "RunClosedError", "RunClosedError"]);
});

test("a child of a type that nothing has is refused, and so is one whose name is taken", async () => {
  const env = await environment();
  expect(await env.run("stranger", "nowhere")).toEqual(["WorkflowNotDeployedError", "WorkflowNotDeployedError"]);
});

test("a scope is cancelled alone, with what is in it, but not what a shield holds", async () => {
  const env = await environment();
  expect(await env.run("race")).toEqual({ first: "a", all: ["a", "another was faster", "another was faster"] });
  expect(notes(env)).toEqual(["b called off", "c called off"]);
  expect(await env.run("nested")).toEqual({
    cancelled: true,
    said: ["outer outer", "inner outer", "sibling sibling", "shielded slept", "within shield slept"],
    isOuter: true,
  });
  expect(await env.run("scoped")).toEqual(["CancelledError", 1]);
});

test("scopes are the same whatever crashes", async () => {
  const env = await environment();
  await env.crashEverywhere((each) => each.run("race"));
  // What runs tell each other is told again after a crash of Core, a little later.
  await env.crashEverywhere((each) => each.run("scoped"), { core: false });
}, 60_000);

const places = ["running", "backing off", "sleeping", "waiting", "other run", "child"] as const;

test.each(places)(
  "cancelled while %s, a run cleans up and ends at once, whatever crashes",
  async (where) => {
    const env = await environment();
    await env.crashEverywhere(async (each) => {
      await each.start("idler", undefined, { instance: "idler" });
      const run = await each.start("busy", where);
      await each.advance(1000);
      const begun = each.now;
      await run.cancel("enough");
      const { status } = await run.outcome();
      expect([where, status, each.now - begun < 5000]).toEqual([where, "cancelled", true]);
      expect(each.calls("note").map(({ input }) => input)).toContain(`${where}: cleaned up`);
    });
  },
  60_000,
);

test("cancelled in the queue, a start leaves it", async () => {
  const env = await environment();
  await env.start("idler", undefined, { instance: "one" });
  const queued = await env.start("busy", "sleeping", { instance: "one", contention: "queue" });
  await queued.cancel("enough");
  expect((await queued.outcome()).status).toBe("cancelled");
});
