import { expect, test } from "bun:test";
import { EventKind, RunStatus } from "#proto";
import { openAccount, order, SagaWorld, type Step } from "./saga-fixture.ts";

const ends: readonly number[] = [
  EventKind.runCompleted,
  EventKind.runFailed,
  EventKind.runCancelled,
  EventKind.runTerminated,
  EventKind.runTimedOut,
];

/** A world whose saga is cut when its history has `count` events; undefined = it ends before. */
function cutAt(count: number, cut: (world: SagaWorld) => void, { deadlineMs = 0 } = {}): SagaWorld | undefined {
  const world = new SagaWorld();
  world.isHeld = true;
  world.start({ deadlineMs });
  while (world.kinds().length < count) {
    const [next] = world.executing;
    if (next === undefined) return undefined;
    world.execute(next);
  }
  if (world.state.summary?.status !== RunStatus.running) return undefined;
  cut(world);
  // What was executing goes on for a while, whatever it was told, and only then ends.
  world.advance(300);
  world.isHeld = false;
  world.take([]);
  world.advance(40_000);
  return world;
}

function expectUndone(world: SagaWorld, end: number): void {
  expect(world.notUndone()).toEqual([]);
  const kinds = world.kinds();
  expect(kinds.filter((kind) => ends.includes(kind))).toEqual([end]);
  expect(kinds.at(-1)).toBe(end);
  expect(["release_inventory,refund_card", "refund_card", ""]).toContain(world.undone().join());
  expect(world.state).toMatchObject({ compensation: [], deadLetter: [], pending: [] });
}

const cancel = (world: SagaWorld) => world.take(world.led.command({ kind: "cancel", run: order, reason: "enough" }));

test("a saga that is terminated at any of its events leaves no card charged and unrefunded, newest first, the end last", () => {
  let cutCount = 0;
  for (let count = 1; ; count++) {
    const world = cutAt(count, (at) => at.terminate());
    if (world === undefined) break;
    expectUndone(world, EventKind.runTerminated);
    cutCount++;
  }
  expect(cutCount).toBeGreaterThan(4);
});

test("the same where the node dies at each event of the unwind", () => {
  for (let count = 1; ; count++) {
    const world = cutAt(count, (at) => {
      at.terminate();
      for (let crash = 0; crash < 3; crash++) at.crash();
    });
    if (world === undefined) return;
    expectUndone(world, EventKind.runTerminated);
  }
});

test("an undo waits until what it undoes has stopped, but not for ever", () => {
  const world = new SagaWorld();
  world.isHeld = true;
  world.start();
  const [charging] = world.executing;
  world.terminate();
  world.advance(1000);
  expect(charging?.isCancelled).toBe(true);
  expect(world.executing).toHaveLength(1);
  expect(world.state.summary?.status).toBe(RunStatus.compensating);
  world.advance(30_000);
  expect(world.executing.map(({ task }) => task.name)).toEqual(["charge_card", "refund_card"]);
});

test("deadline, failure and cancellation unwind alike, and the end says what it was", () => {
  const failing = (world: SagaWorld) => {
    for (const name of ["charge_card", "reserve_inventory", "ship_order"]) world.failing.add(name);
  };
  for (let count = 1; ; count++) {
    const cancelled = cutAt(count, cancel);
    if (cancelled === undefined) break;
    expectUndone(cancelled, EventKind.runCancelled);
    expectUndone(cutAt(count, failing) as SagaWorld, EventKind.runFailed);
    expectUndone(cutAt(count, (world) => world.advance(2000), { deadlineMs: 2000 }) as SagaWorld, EventKind.runTimedOut);
  }
});

test("a completed run drops its undos unrun, without an event, and still runs what is always owed, before its end", () => {
  const plain = new SagaWorld();
  plain.start();
  expect(plain.state.summary?.status).toBe(RunStatus.completed);
  expect(plain.done).toEqual(["charge_card", "reserve_inventory", "ship_order"]);
  expect(plain.kinds()).not.toContain(EventKind.unwindStarted);

  const world = new SagaWorld([{ undo: "release_inventory", always: true }, ...openAccount]);
  world.start({ awaitResult: true });
  expect(world.done.at(-1)).toBe("release_inventory");
  expect(world.kinds().slice(-5)).toEqual([
    EventKind.unwindStarted,
    EventKind.compensationStarted,
    EventKind.compensationCompleted,
    EventKind.unwindEnded,
    EventKind.runCompleted,
  ]);
  expect(world.replies).toMatchObject([
    { kind: "started", outcome: { status: RunStatus.completed, result: { data: new TextEncoder().encode("7") } } },
  ]);
});

test("what is taken back is not executed", () => {
  const steps: Step[] = [
    { undo: "refund_card" },
    { act: "charge_card" },
    { undo: "release_inventory" },
    { take: 1 },
    { act: "ship_order" },
  ];
  const world = new SagaWorld(steps);
  world.failing.add("ship_order");
  world.start();
  expect(world.state.summary?.status).toBe(RunStatus.failed);
  expect(world.undone()).toEqual(["release_inventory"]);
  expect(world.kinds()).toContain(EventKind.compensationWithdrawn);
});

test("what fails for good is a dead letter: the unwind goes on and the outcome stays; it is replayed with the same key", () => {
  const world = new SagaWorld();
  world.failing.add("release_inventory");
  world.isHeld = true;
  world.start({ awaitResult: true });
  world.execute(world.executing[0] as never);
  world.execute(world.executing[0] as never);
  world.terminate();
  world.isHeld = false;
  world.take([]);
  world.advance(1000);
  expect(world.undone()).toEqual(["release_inventory", "refund_card"]);
  expect(world.done.at(-1)).toBe("refund_card");
  expect(world.replies.at(-1)).toMatchObject({ outcome: { status: RunStatus.terminated, failure: { type: "TerminatedError" } } });
  const key = "default:o-1/1/undo/3";
  expect(world.keys).toEqual([`release_inventory ${key}`, `release_inventory ${key}`, "refund_card default:o-1/1/undo/1"]);
  const [letter] = world.state.deadLetter;
  expect(letter).toMatchObject({
    generation: 1,
    op: 3,
    name: "release_inventory",
    attempts: 2,
    replay: 0,
    failure: { message: "no release_inventory" },
  });

  const ask = (kind: "replay-letter" | "drop-letter", number = letter?.letter ?? 0) =>
    world.take(
      world.led.command(
        kind === "replay-letter" ? { kind, run: order, letter: number } : { kind, run: order, letter: number, reason: "by hand" },
      ),
    );
  ask("replay-letter", 3);
  expect(world.replies.at(-1)).toMatchObject({ kind: "rejected", rejection: { reject: "DEAD_LETTER_NOT_FOUND" } });
  // It fails once more, and stays what it was.
  ask("replay-letter");
  world.advance(500);
  expect(world.state.deadLetter).toMatchObject([{ letter: letter?.letter, attempts: 4, replay: 0 }]);
  // Beside another run of the name, over a crash.
  world.failing.clear();
  world.isHeld = true;
  world.start();
  ask("replay-letter");
  const before = world.executing.length;
  ask("replay-letter");
  expect(world.executing).toHaveLength(before);
  world.terminate();
  expect(world.state.deadLetter).toHaveLength(1);
  const replay = world.executing.find(({ task }) => task.name === "release_inventory");
  expect(replay?.isCancelled).toBe(false);
  world.isHeld = false;
  world.take([]);
  world.advance(40_000);
  expect(world.state.deadLetter).toEqual([]);
  expect(world.keys.filter((one) => one === `release_inventory ${key}`)).toHaveLength(5);
  expect(world.kinds().filter((kind) => kind === EventKind.deadLetterReplayed)).toHaveLength(2);
});

test("an undo that is not done within its time is a dead letter, and so is its replay", () => {
  const world = new SagaWorld([{ undo: "refund_card", withinMs: 5000 }, { act: "charge_card" }]);
  world.failing.add("charge_card");
  world.isHeld = true;
  world.start();
  world.execute(world.executing[0] as never);
  expect(world.executing.map(({ task }) => task.name)).toEqual(["refund_card"]);
  world.advance(4800);
  expect(world.state.deadLetter).toEqual([]);
  world.advance(300);
  const late = { name: "refund_card", failure: { type: "TimeoutError" }, replay: 0 };
  expect(world.state).toMatchObject({ summary: { status: RunStatus.failed }, deadLetter: [{ ...late, attempts: 1 }] });
  expect(world.executing.map(({ isCancelled }) => isCancelled)).toEqual([true]);

  const letter = world.state.deadLetter[0]?.letter ?? 0;
  world.take(world.led.command({ kind: "replay-letter", run: order, letter }));
  world.advance(4800);
  expect(world.state.deadLetter[0]?.replay).toBeGreaterThan(0);
  world.advance(300);
  expect(world.state.deadLetter).toMatchObject([{ ...late, attempts: 2 }]);
});

test("a dead letter outlives crashes, and can be dropped, also while it is replayed", () => {
  const world = new SagaWorld([{ undo: "refund_card", attempts: 1 }, { act: "charge_card" }]);
  world.failing.add("refund_card");
  world.isHeld = true;
  world.start();
  world.terminate();
  world.isHeld = false;
  world.take([]);
  world.crash();
  const [letter] = world.state.deadLetter;
  expect(letter).toMatchObject({ name: "refund_card", replay: 0 });
  world.isHeld = true;
  world.take(world.led.command({ kind: "replay-letter", run: order, letter: letter?.letter ?? 0 }));
  world.crash();
  // Who executed it is lost: it is offered again.
  expect(world.executing.map(({ task }) => task.name)).toEqual(["refund_card"]);
  world.take(world.led.command({ kind: "drop-letter", run: order, letter: letter?.letter ?? 0, reason: "refunded by hand" }));
  expect(world.executing[0]?.isCancelled).toBe(true);
  expect(world.state).toMatchObject({ deadLetter: [], pending: [] });
  const dropped = world.events().at(-1);
  expect(dropped).toMatchObject({ kind: EventKind.deadLetterDropped, body: { reason: "refunded by hand", generation: 1, deadLetters: 0 } });
});

test("who follows begins after the unwind, in the record of the end; a decided end stays as it is", () => {
  const world = new SagaWorld();
  world.isHeld = true;
  world.start({ awaitResult: true });
  world.execute(world.executing[0] as never);
  world.start({ contention: "queue" });
  world.start({ contention: "supersede" });
  expect(world.state.summary).toMatchObject({ generation: 1, status: RunStatus.compensating });
  for (const command of [
    { kind: "terminate", run: order, reason: "again" },
    { kind: "cancel", run: order, reason: "again" },
    { kind: "signal", run: order, name: "s", payload: undefined, id: "" },
  ] as const) {
    world.take(world.led.command(command));
    expect(world.replies.at(-1)).toMatchObject({
      kind: "rejected",
      rejection: { reject: "RUN_CLOSED", message: expect.stringContaining("compensations") },
    });
  }
  world.start({ contention: "supersede" });
  const size = world.kinds().length;
  world.isHeld = false;
  world.take([]);
  world.advance(1000);
  const events = world.events();
  // The one that superseded last goes first; none begins before the end of the one before.
  const starts = events.flatMap(({ kind, body }, seq) => (kind === EventKind.runStarted ? [[seq, body.ticket]] : []));
  expect(starts.map(([, ticket]) => ticket).slice(0, 2)).toEqual([0, size - 2]);
  expect(starts).toHaveLength(4);
  for (const [seq] of starts.slice(1)) expect(ends).toContain(events[(seq as number) - 1]?.kind as number);
  expect(events[(starts[1]?.[0] ?? 0) - 2]?.kind).toBe(EventKind.unwindEnded);
  expect(world.undone().slice(0, 2)).toEqual(["release_inventory", "refund_card"]);
});
