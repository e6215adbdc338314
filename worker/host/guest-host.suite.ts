/**
 * Behaviour that every guest host must have, whatever the mode and language.
 *
 * The mode brings a bundle of guest workflows with fixed names (`suiteWorkflows` in suite-run-fixture.ts); the
 * suite brings the deliveries.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type CommandInit, CommandKind, CompensationTrigger } from "#proto";
import type { Delivery } from "./guest-host.ts";
import { brief, briefs, decode, encode, exact, newKey, type SuiteBench, SuiteRun, startMs } from "./suite-run-fixture.ts";

export interface SuiteOptions {
  /** The host ends runs that take too much time or memory; left out: it does. */
  readonly hasLimits?: boolean;
}

export function guestHostSuite(name: string, openBench: () => Promise<SuiteBench>, { hasLimits = true }: SuiteOptions = {}): void {
  describe(name, () => {
    let bench: SuiteBench;
    beforeAll(async () => {
      bench = await openBench();
    }, 60_000);
    afterAll(() => bench.host.close());
    const run = (type: string, options?: { seed?: number }) => new SuiteRun(bench, type, options);

    lifeCases(run, () => bench);
    operationCases(run);
    signalCases(run);
    streamCases(run);
    otherRunCases(run);
    sagaCases(run);
    queryCases(run, () => bench);
    cancelCases(run);
    replayCases(run);
    if (hasLimits) limitCases(run, () => bench);
  });
}

type MakeRun = (type: string, options?: { seed?: number }) => SuiteRun;

function lifeCases(run: MakeRun, bench: () => SuiteBench): void {
  test("a workflow gets its input and completes with its result", async () => {
    for (const value of [null, 0, "", "é€😀", [1, { a: null }], { nested: { deep: [true] } }]) {
      expect(briefs(await run("echo").start(value))).toEqual([["complete", value]]);
    }
  });

  test("no input and no result are no payload", async () => {
    const [command] = await run("echo").start();
    expect(command).toMatchObject({ kind: CommandKind.complete });
    expect(command?.payload?.data ?? new Uint8Array(0)).toHaveLength(0);
  });

  test("an unknown workflow is broken and the run gone", async () => {
    const unknown = run("nowhere");
    const activation = await unknown.activate(unknown.starting());
    expect(activation).toMatchObject({ kind: "broken", message: expect.stringContaining('"nowhere"') });
    expect(bench().host.has(unknown.run.key)).toBe(false);
  });

  test("code that can't be had is lost, and can be had later", async () => {
    const { host } = bench();
    const missing = { ...run("echo").run, key: newKey(), bundle: "00".repeat(32) };
    host.open(missing);
    expect(await host.activate(missing.key, [{ kind: "start", nowMs: 1, input: encode(1) }])).toMatchObject({ kind: "lost" });
    expect(host.has(missing.key)).toBe(false);
  });

  test("a dropped run is lost, and its neighbours go on", async () => {
    const [a, b] = [run("steps"), run("steps")];
    await Promise.all([a.start({ n: 1 }), b.start({ n: 1 })]);
    a.drop();
    expect(await a.activate(a.resolved(1, "x"))).toMatchObject({ kind: "lost" });
    expect(briefs(await b.deliver(b.resolved(1, "y")))).toEqual([["complete", ["y"]]]);
  });

  test("a failure carries type, message, stack and cause", async () => {
    const [command] = await run("fails").start();
    expect(command?.failure).toMatchObject({ type: "TypeError", message: "no such luck", cause: { type: "Error", message: "bad day" } });
    expect(command?.failure?.stack).toContain("no such luck");
  });
}

function sagaCases(run: MakeRun): void {
  test("compensations are registered in order with what they undo, and taken back once", async () => {
    for (const fails of [false, true]) {
      const saga = run("saga");
      expect(briefs(await saga.start({ fails }))).toEqual([
        ["compensate", 1, "free_lease", "o-1", CompensationTrigger.always, 0],
        ["compensate", 2, "refund", "o-1", CompensationTrigger.onFailure, 3],
        ["activity", 3, "charge", "o-1"],
      ]);
      expect(saga.commands[1]?.options?.idempotencyKey).toBe("mine");
      const end = fails ? ["fail", "TypeError", "no such luck"] : ["complete", [true, false]];
      expect(briefs(await saga.deliver(saga.resolved(3)))).toEqual([["withdraw-compensation", 1], end]);
      for (const size of [1, 2]) expect(exact(await saga.replay(size))).toBe(exact(saga.commands));
    }
  });

  test("a saga that is cancelled takes nothing back that it registered", async () => {
    const saga = run("saga");
    await saga.start({ fails: false });
    expect(briefs(await saga.deliver(saga.cancelled()))).toEqual([["cancel-op", 3], ["cancelled"]]);
  });
}

function operationCases(run: MakeRun): void {
  test("activities are numbered from 1 and resume one after the other", async () => {
    const steps = run("steps");
    expect(briefs(await steps.start({ n: 2 }))).toEqual([["activity", 1, "step", { i: 0 }]]);
    expect(briefs(await steps.deliver(steps.resolved(1, "a")))).toEqual([["activity", 2, "step", { i: 1 }]]);
    expect(briefs(await steps.deliver(steps.resolved(2, "b")))).toEqual([["complete", ["a", "b"]]]);
  });

  test("an activity's failure passes through, with the activity's error as cause", async () => {
    const relays = run("relays");
    await relays.start();
    const [command] = await relays.deliver(relays.rejected(1, "CardDeclined", "no money"));
    expect(command?.failure).toMatchObject({
      type: "ActivityError",
      message: 'Activity "step" failed: no money',
      cause: { type: "CardDeclined", message: "no money" },
    });
  });

  test("an answer to an operation that is not open is passed over", async () => {
    const steps = run("steps");
    await steps.start({ n: 1 });
    expect(await steps.deliver(steps.resolved(9, "x"))).toEqual([]);
    expect(await steps.deliver(steps.rejected(2))).toEqual([]);
    expect(briefs(await steps.deliver(steps.resolved(1, "y")))).toEqual([["complete", ["y"]]]);
  });

  test("time is that of the delivery, randomness that of the seed", async () => {
    const results = await Promise.all(
      [1, 1, 2].map(async (seed) => {
        const clock = run("clock", { seed });
        await clock.start();
        const [command] = await clock.deliver({ kind: "resolve", nowMs: startMs + 5000, op: 1, value: encode(undefined) });
        return decode(command?.payload?.data) as [number, number, number, number, string];
      }),
    );
    const [first, second, third] = results as [(typeof results)[0], (typeof results)[0], (typeof results)[0]];
    expect(first.slice(0, 2)).toEqual([startMs + 1, startMs + 5000]);
    expect(second).toEqual(first);
    expect(third.slice(2)).not.toEqual(first.slice(2));
    expect(first[4]).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    for (const random of first.slice(2, 4) as number[]) expect(random >= 0 && random < 1).toBe(true);
  });

  test("a payload of 1 MB travels both ways", async () => {
    const text = "0123456789abcdé€".repeat(1 << 16);
    const steps = run("steps");
    await steps.start({ n: 1 });
    expect(briefs(await steps.deliver(steps.resolved(1, text)))).toEqual([["complete", [text]]]);
  });

  test("many runs at once do not mix", async () => {
    const runs = Array.from({ length: 200 }, () => run("steps"));
    await Promise.all(runs.map((steps) => steps.start({ n: 1 })));
    const ends = await Promise.all(runs.map((steps, i) => steps.deliver(steps.resolved(1, i))));
    expect(ends.map(briefs)).toEqual(runs.map((_steps, i) => [["complete", [i]]]));
  });
}

function signalCases(run: MakeRun): void {
  test("a waiting workflow takes the signal, and each wait is a command", async () => {
    const waiter = run("waiter");
    expect(briefs(await waiter.start({ n: 2 }))).toEqual([["await-signal", 1, "go"]]);
    expect(briefs(await waiter.deliver(waiter.signalled("go", "a")))).toEqual([["await-signal", 2, "go"]]);
    expect(briefs(await waiter.deliver(waiter.signalled("go", "b")))).toEqual([["complete", ["a", "b"]]]);
  });

  test("signals are buffered in order, also those before the wait", async () => {
    const waiter = run("waiter");
    const burst = ["a", "b", "c"].map((value) => waiter.signalled("go", value));
    const commands = await waiter.deliver(waiter.starting({ n: 3 }), waiter.signalled("other", 1), ...burst);
    expect(briefs(commands)).toEqual([
      ["await-signal", 1, "go"],
      ["await-signal", 2, "go"],
      ["await-signal", 3, "go"],
      ["complete", ["a", "b", "c"]],
    ]);
  });

  test("a wait with a time limit: the signal first, or the time", async () => {
    const early = run("timed");
    expect(briefs(await early.start(500))).toEqual([
      ["await-signal", 1, "go"],
      ["timer", 2, 500],
    ]);
    expect(briefs(await early.deliver(early.signalled("go", "here")))).toEqual([
      ["cancel-op", 2],
      ["complete", "here"],
    ]);
    const late = run("timed");
    await late.start(500);
    expect(briefs(await late.deliver(late.resolved(2)))).toEqual([
      ["cancel-op", 1],
      ["complete", "timeout"],
    ]);
  });
}

function streamCases(run: MakeRun): void {
  test("a chunk is yielded once the one before is, and what nobody takes is told as that", async () => {
    const streams = run("streams");
    expect(briefs(await streams.start())).toEqual([["yield-chunk", 1, 1]]);
    expect(briefs(await streams.deliver(streams.resolved(1)))).toEqual([["yield-chunk", 2, 2]]);
    const told = { name: "StreamDisconnectedError", message: "nobody is there" };
    expect(briefs(await streams.deliver(streams.rejected(2, told.name, told.message)))).toEqual([["complete", told]]);
  });

  test("a run that is cancelled yields no more", async () => {
    const streams = run("streams");
    await streams.start();
    expect(briefs(await streams.deliver(streams.cancelled("enough")))).toEqual([["cancel-op", 1], ["cancelled"]]);
  });
}

function otherRunCases(run: MakeRun): void {
  test("another run is signalled and its result awaited, by its address or its name in the own namespace", async () => {
    for (const [to, full] of [
      ["shop:o-1", "shop:o-1"],
      ["o 1", "suite:o 1"],
      ["shop:a:b", "shop:a:b"],
    ] as const) {
      const talks = run("talks");
      expect(briefs(await talks.start({ to }))).toEqual([["send-signal", 1, full, "go", { n: 1 }]]);
      expect(briefs(await talks.deliver(talks.resolved(1)))).toEqual([["await-result", 2, full]]);
      expect(briefs(await talks.deliver(talks.resolved(2, { total: 5 })))).toEqual([["complete", { total: 5 }]]);
    }
  });

  test("another run's failure, and that it can't be signalled, are a RunError", async () => {
    const deaf = run("talks");
    await deaf.start({ to: "shop:o-1" });
    const refused = deaf.rejected(1, "RunClosedError", "Cannot signal shop:o-1: it has ended");
    const told = { name: "RunError", run: "shop:o-1", type: "RunClosedError", message: "Cannot signal shop:o-1: it has ended" };
    expect(briefs(await deaf.deliver(refused))).toEqual([["complete", told]]);
    const failing = run("talks");
    await failing.start({ to: "shop:o-1" });
    await failing.deliver(failing.resolved(1));
    const failure = { type: "CardDeclined", message: "no money", details: { data: encode({ code: 7 }) } };
    const [command] = await failing.deliver({ kind: "reject", nowMs: failing.at(), op: 2, failure });
    expect(decode(command?.payload?.data)).toEqual({
      name: "RunError",
      run: "shop:o-1",
      type: "CardDeclined",
      message: 'Run "shop:o-1" did not complete: no money',
      details: { code: 7 },
    });
  });

  test("a wait for another run is interrupted by a cancellation, and replays", async () => {
    const talks = run("talks");
    await talks.start({ to: "shop:o-1" });
    await talks.deliver(talks.resolved(1));
    expect(briefs(await talks.deliver(talks.cancelled("enough")))).toEqual([["cancel-op", 2], ["cancelled"]]);
    for (const size of [1, 2, 99]) expect(exact(await talks.replay(size))).toBe(exact(talks.commands));
  });

  test("what can't be an address, and the own result, are refused at the call", async () => {
    for (const to of ["", "no space:o", ":o", "shop:", "shop:\u0007"]) {
      const [command] = await run("talks").start({ to });
      expect([to, command?.failure]).toMatchObject([to, { type: "TypeError", message: expect.stringContaining("of a run") }]);
    }
    const own = run("talks");
    await own.start({ to: own.run.run });
    const [command] = await own.deliver(own.resolved(1));
    expect(command?.failure).toMatchObject({ type: "TypeError", message: expect.stringContaining("can't wait for its own result") });
  });
}

function queryCases(run: MakeRun, bench: () => SuiteBench): void {
  test("a query reads the state of the moment", async () => {
    const cart = run("cart");
    await cart.start();
    expect(await cart.query("count")).toEqual({ kind: "ok", value: encode(0) });
    await cart.deliver(cart.signalled("add", "pen"), cart.signalled("add", "ink"));
    expect(await cart.query("count")).toMatchObject({ kind: "ok", value: encode(2) });
    expect(await cart.query("items", { from: 1 })).toMatchObject({ kind: "ok", value: encode(["ink"]) });
  });

  test("an unknown query names those there are", async () => {
    const cart = run("cart");
    await cart.start();
    expect(await cart.query("price")).toEqual({ kind: "not-found", declared: ["count", "items", "act"] });
  });

  test("a query that acts fails and changes nothing", async () => {
    const cart = run("cart");
    await cart.start();
    expect(await cart.query("act")).toMatchObject({
      kind: "failed",
      failure: { type: "DeterminismError", message: expect.stringContaining("query") },
    });
    expect(bench().host.has(cart.run.key)).toBe(true);
    expect(briefs(await cart.deliver(cart.signalled("add", "pen")))).toEqual([["await-signal", 2, "add"]]);
  });

  test("a query to a run that is not open is lost", async () => {
    expect(await run("cart").query("count")).toMatchObject({ kind: "lost" });
  });
}

function cancelCases(run: MakeRun): void {
  test("cancellation rejects what is awaited, in order, and cleanup runs before the end", async () => {
    const cleanup = run("cleanup");
    expect(briefs(await cleanup.start())).toEqual([
      ["activity", 1, "work", undefined],
      ["timer", 2, 1000],
    ]);
    expect(briefs(await cleanup.deliver(cleanup.cancelled("enough")))).toEqual([
      ["cancel-op", 1],
      ["cancel-op", 2],
      ["activity", 3, "tidy", undefined],
    ]);
    expect(briefs(await cleanup.deliver(cleanup.resolved(1, "late"), cleanup.resolved(3)))).toEqual([["cancelled"]]);
  });

  test("a workflow that catches the cancellation completes", async () => {
    const stubborn = run("stubborn");
    await stubborn.start();
    expect(briefs(await stubborn.deliver(stubborn.cancelled()))).toEqual([
      ["cancel-op", 1],
      ["complete", "went on"],
    ]);
  });

  test("a shield is not interrupted; the cancellation comes after it", async () => {
    const guarded = run("guarded");
    await guarded.start();
    expect(await guarded.deliver(guarded.cancelled())).toEqual([]);
    expect(briefs(await guarded.deliver(guarded.resolved(1)))).toEqual([["activity", 2, "second", undefined]]);
    expect(briefs(await guarded.deliver(guarded.resolved(2)))).toEqual([["cancelled"]]);
  });

  test("a second cancellation changes nothing", async () => {
    const cleanup = run("cleanup");
    await cleanup.start();
    await cleanup.deliver(cleanup.cancelled());
    expect(await cleanup.deliver(cleanup.cancelled())).toEqual([]);
    expect(briefs(await cleanup.deliver(cleanup.resolved(3)))).toEqual([["cancelled"]]);
  });
}

/** A small generator of its own: the suite must draw the same numbers for every mode. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return (state >>> 8) % below;
  };
}

type Tree = number | { readonly [kind: string]: readonly Tree[] };

function randomTree(draw: (below: number) => number, depth: number): Tree {
  if (depth === 0 || draw(4) === 0) return draw(100);
  const kind = ["all", "race", "any", "settled", "seq"][draw(5)]!;
  return { [kind]: Array.from({ length: 1 + draw(4) }, () => randomTree(draw, depth - 1)) };
}

function replayCases(run: MakeRun): void {
  test("trees of all, race, any and allSettled depend on the order of deliveries alone", async () => {
    for (let seed = 1; seed <= 40; seed++) {
      const draw = numbers(seed);
      const tree = run("tree", { seed });
      const open = new Set<number>();
      const note = (commands: readonly CommandInit[]) => {
        for (const { kind, op } of commands) if (kind === CommandKind.activity) open.add(op!);
        return commands.some(({ kind }) => kind === CommandKind.complete || kind === CommandKind.fail);
      };
      let ended = note(await tree.start(randomTree(draw, 4)));
      while (!ended && open.size > 0) {
        const batch: Delivery[] = [];
        for (let n = 1 + draw(3); n > 0 && open.size > 0; n--) {
          const op = [...open][draw(open.size)]!;
          open.delete(op);
          batch.push(draw(5) === 0 ? tree.rejected(op) : tree.resolved(op, op));
        }
        ended = note(await tree.deliver(...batch));
      }
      expect(ended).toBe(true);
      const live = exact(tree.commands);
      for (const size of [1, 3, tree.history.length]) expect(exact(await tree.replay(size))).toBe(live);
      tree.drop();
    }
  });

  test("a replay repeats the commands of a run with signals, timers and a cancellation", async () => {
    const cleanup = run("cleanup");
    await cleanup.start();
    await cleanup.deliver(cleanup.resolved(2));
    await cleanup.deliver(cleanup.cancelled("x"), cleanup.resolved(3));
    const timed = run("timed");
    await timed.start(10);
    await timed.deliver(timed.signalled("go", 1), timed.resolved(2));
    for (const live of [cleanup, timed]) for (const size of [1, 2, 99]) expect(exact(await live.replay(size))).toBe(exact(live.commands));
  });
}

function limitCases(run: MakeRun, bench: () => SuiteBench): void {
  /** A run that outlives what happens to others, by replay when the host lost it. */
  const survives = async (steps: SuiteRun): Promise<void> => {
    let activation = await steps.activate(steps.resolved(1, "x"));
    for (let tries = 0; activation.kind === "lost" && tries < 5; tries++) {
      const { host } = bench();
      const again = { ...steps.run, key: newKey() };
      host.open(again);
      activation = await host.activate(again.key, steps.history);
    }
    expect(activation.kind === "ok" ? brief(activation.commands.at(-1)!) : activation).toEqual(["complete", ["x"]]);
  };

  for (const type of ["spin", "microspin", "hoard"]) {
    test(`${type}: the run gets "limit", its neighbours live on and the host stays usable`, async () => {
      const neighbour = run("steps");
      await neighbour.start({ n: 1 });
      const culprit = run(type);
      expect(await culprit.activate(culprit.starting())).toMatchObject({
        kind: "limit",
        message: expect.stringContaining("limit exceeded"),
      });
      expect(bench().host.has(culprit.run.key)).toBe(false);
      await survives(neighbour);
      expect(briefs(await run("echo").start(1))).toEqual([["complete", 1]]);
    }, 60_000);
  }

  test('explode: whatever dies, the culprit gets "limit" at the latest the second time, and others live on', async () => {
    const neighbour = run("steps");
    await neighbour.start({ n: 1 });
    const kinds: string[] = [];
    for (let tries = 0; tries < 2 && kinds.at(-1) !== "limit"; tries++) {
      const culprit = new SuiteRun(bench(), "explode", { name: "suite:explode" });
      kinds.push((await culprit.activate(culprit.starting())).kind);
    }
    expect(kinds.at(-1)).toBe("limit");
    await survives(neighbour);
    expect(briefs(await run("echo").start(1))).toEqual([["complete", 1]]);
  }, 60_000);
}
