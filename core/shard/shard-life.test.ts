import { expect, test } from "bun:test";
import { asIndex, asShardId, type Effect, InvariantError, keyMax, runPartition, type TaskEffect } from "#core/base";
import { SessionCapacity } from "#core/dispatch";
import { bornHeader, decodeHeader, digestOf, encodeHeader } from "#core/shard";
import { CommandKind, decodeEvent, decodeRecord, EventKind, encodeRecord, fromBytes, toBytes } from "#proto";
import { bunHasher } from "../../tests/hashers.ts";
import { lead, makeShard, RecordLog, StateTable, soleShard } from "../../tests/shard-maker.ts";
import { birthOf, done, epochMs, half, Led, left, left2, refusal, right, right2, right3, second, session, split } from "./led-fixture.ts";

test("a machine decides only when it leads, and follows only when it does not", () => {
  const led = new Led();
  expect(() => led.start(left)).toThrow(InvariantError);
  led.lead(3);
  expect([led.log.records.length, led.change(), led.machine.header().epoch]).toEqual([1, { kind: "led", value: { node: 1, epoch: 3 } }, 3]);
  expect(() => led.machine.recover(2, new Uint8Array())).toThrow(InvariantError);
  expect(() => led.lead(4)).toThrow(InvariantError);
  led.machine.skip(2);
  expect(() => led.machine.skip(4)).toThrow("Cannot take entry 4 of shard 1: want 3");
  const follower = makeShard({ log: new RecordLog() });
  follower.recover(1, led.log.record(1));
  expect(() => follower.recover(3, led.log.record(1))).toThrow("Cannot take entry 3 of shard 1: want 2");
  expect(() => lead(follower, { nowMs: epochMs, epoch: 2 })).toThrow("epoch is 2, want 3 or later");
});

test("a record is written in the term of its leader", () => {
  const log = new RecordLog();
  const machine = makeShard({ log });
  lead(machine, { nowMs: epochMs, term: 7 });
  expect(log.terms).toEqual([7]);
});

test("a new leader's events are above everything in its log, however its clock stands", () => {
  const table = new StateTable();
  const led = new Led({ table }).lead();
  led.start(left);
  table.checkpoint(soleShard, led.machine);
  const next = new Led({ table, log: led.log });
  next.nowMs = epochMs - 60_000;
  next.lead(2).command({ kind: "signal", run: left, name: "s", payload: undefined, id: "" });
  const [before, after] = [2, 4].map((index) =>
    fromBytes(decodeEvent, fromBytes(decodeRecord, led.log.record(index)).event[0] as Uint8Array),
  );
  expect((after?.timeMs ?? 0) > (before?.timeMs ?? 0)).toBe(true);
});

test("an attempt's time counts from the event that scheduled it, also where that is the first of its leader", () => {
  const table = new StateTable();
  const before = new Led({ table }).lead();
  before.start(left);
  table.checkpoint(soleShard, before.machine);
  const led = new Led({ table, log: before.log }).lead(2);
  const options = { startToCloseMs: 100, retry: { attemptsMax: 1 } };
  led.answer(led.join(new SessionCapacity(10)), { kind: CommandKind.activity, op: 1, name: "a", options });
  const timeOf = (kind: number) =>
    led.log.records
      .flatMap((record) => fromBytes(decodeRecord, record).event)
      .map((event) => fromBytes(decodeEvent, event))
      .find((event) => event.kind === kind)?.timeMs;
  // Whoever led before may have used up its millisecond.
  expect(timeOf(EventKind.activityScheduled)).toBe(epochMs + 2);
  led.advance(101);
  expect(timeOf(EventKind.activityFailed)).toBeUndefined();
  led.advance(1);
  expect(timeOf(EventKind.activityFailed)).toBe(epochMs + 102);
});

test("what is for another shard's keys is refused by name, and appends nothing", () => {
  const led = new Led().lead();
  led.join(new SessionCapacity(10));
  const task = led.busy(right) as TaskEffect;
  split(led);
  const before = led.log.lastIndex;
  const refused = refusal(led.start(right2));
  expect(refused?.rejection).toMatchObject({ reject: "STALE_EPOCH", retryAfterMs: 10 });
  expect(refused?.rejection.message).toContain("Shard 1 does not hold run/n:");
  expect(refused?.rejection.message).toContain("0x0000000000000000–0x7fffffffffffffff");
  for (const kind of ["cancel", "terminate"] as const) expect(refusal(led.command({ kind, run: right, reason: "" }))).toBeDefined();
  expect(refusal(led.command({ kind: "query", run: right, name: "q", input: undefined }))?.rejection.reject).toBe("STALE_EPOCH");
  led.done(task);
  led.step({ kind: "heartbeat", session, message: { token: task.token, details: undefined } });
  led.advance(100_000);
  expect([led.log.lastIndex, refusal(led.start(left))]).toEqual([before, undefined]);
  expect(led.machine.describe(runPartition(right))).toBeUndefined();
});

test("a split that makes no sense is refused, and changes nothing", () => {
  const led = new Led().lead();
  const before = led.log.lastIndex;
  for (const [at, child] of [
    [0, 2],
    [keyMax + 1, 2],
    [0.5, 2],
    [half, 1],
    [half, 0],
  ] as const)
    expect(led.machine.split({ at, child }, led.nowMs)).toMatchObject({ reject: "BAD_REQUEST" });
  split(led);
  expect(led.machine.split({ at: half, child: 3 }, led.nowMs)).toMatchObject({ reject: "BAD_REQUEST" });
  const none = { shard: 3, through: 1, last: half - 1, ancestor: [], clockMs: 0 };
  expect(led.machine.absorb(none, led.nowMs)).toMatchObject({ reject: "BAD_REQUEST" });
  expect(led.machine.thaw(led.nowMs)).toMatchObject({ reject: "BAD_REQUEST" });
  expect(led.log.lastIndex).toBe(asIndex(before + 1));
});

test("who waits for a run that leaves is sent on, and told that a start was taken", () => {
  const led = new Led().lead();
  const capacity = new SessionCapacity(1);
  led.join(capacity);
  led.start(right, true);
  led.busy(right2);
  led.busy(right3);
  led.command({ kind: "await-result", run: right2 });
  led.answer(led.start(left));
  expect([led.machine.figures().readyTasks, capacity.runCount]).toEqual([1, 4]);
  const effects = split(led);
  const replies = effects.filter((each) => each.kind === "reply");
  const after = { until: "committed", index: led.log.lastIndex };
  expect(replies).toMatchObject([
    {
      request: 1,
      after,
      reply: { kind: "rejected", rejection: { reject: "STALE_EPOCH" }, started: { run: right, generation: 1, attached: false } },
    },
    { request: 4, after, reply: { kind: "rejected", rejection: { reject: "STALE_EPOCH" } } },
  ]);
  expect(replies[1]).not.toHaveProperty("reply.started");
  expect(effects.filter(({ kind }) => kind === "drop")).toHaveLength(3);
  const { residentRuns, readyTasks } = led.machine.figures();
  expect([residentRuns, readyTasks, capacity.runCount]).toEqual([1, 0, 1]);
  // Their queries, too.
  expect(birthOf(led)).toEqual({ range: { first: half, last: keyMax }, ancestors: [1], clockMs: led.machine.clockMs });
});

/** A shard whose child owns a run with a task under way. */
function splitWithTask() {
  const table = new StateTable();
  const led = new Led({ table }).lead();
  const capacity = new SessionCapacity(2);
  led.join(capacity);
  const task = led.busy(right) as TaskEffect;
  split(led);
  return { table, led, capacity, task };
}

test("tasks of runs that leave go on: the child on the same node takes their results", () => {
  const { table, led, capacity, task } = splitWithTask();
  expect([...capacity.tasks.values()].map(({ shard }) => shard)).toEqual([second]);
  table.checkpoint(soleShard, led.machine);
  const child = new Led({ table, shard: second, log: new RecordLog(1), birth: birthOf(led) }).lead(2);
  child.join(capacity);
  expect(child.advance(5000).filter(({ kind }) => kind === "task")).toEqual([]);
  child.done(task);
  const [pending] = child.machine.describe(runPartition(right))?.pending ?? [];
  expect([pending, capacity.tasks.size, led.log.lastIndex]).toEqual([undefined, 0, asIndex(4)]);
  // A child that is led elsewhere leaves the slot to others.
  const other = led.busy(left) as TaskEffect;
  expect([other.session, capacity.tasks.size]).toEqual([session, 1]);
});

test("a task whose shard stepped down after a split may never have been sent: the child on the same node offers it again", () => {
  const { table, led, capacity, task } = splitWithTask();
  table.checkpoint(soleShard, led.machine);
  // What waited for its commit was dropped with the lead.
  led.machine.stepDown();
  expect(capacity.tasks.size).toBe(0);
  const child = new Led({ table, shard: second, log: new RecordLog(1), birth: birthOf(led) }).lead(2);
  child.join(capacity);
  const offered = child.advance(5000).filter(({ kind }) => kind === "task") as TaskEffect[];
  expect(offered.map(({ token: { op, delivery } }) => [op, delivery])).toEqual([[task.token.op, task.token.delivery + 1]]);
});

test("the child's first event names the parent's record, alone among others that do not", () => {
  const table = new StateTable();
  const led = new Led({ table }).lead();
  led.join(new SessionCapacity(9));
  const sleep = { kind: CommandKind.timer, op: 1, durationMs: 100 };
  for (const run of [right, right2]) led.answer(led.start(run), sleep);
  split(led);
  table.checkpoint(soleShard, led.machine);
  const child = new Led({ table, shard: second, log: new RecordLog(1), birth: birthOf(led) }).lead(2);
  child.command({ kind: "signal", run: right, name: "s", payload: undefined, id: "" });
  child.advance(1000);
  const [own, both] = [3, 4].map((index) => fromBytes(decodeRecord, child.log.record(index)));
  expect([own?.previous, own?.previousShard]).toEqual([[3], [1]]);
  expect(both?.event).toHaveLength(2);
  expect(new Map(both?.previous.map((previous, i) => [previous, both.previousShard[i] as number]))).toEqual(
    new Map([
      [3, 0],
      [5, 1],
    ]),
  );
});

test("a frozen shard decides nothing, and goes on after a thaw with what was said meanwhile", () => {
  const led = new Led().lead();
  const capacity = new SessionCapacity(10);
  led.join(capacity);
  const task = led.busy(left) as TaskEffect;
  led.answer(led.start(left2), { kind: CommandKind.timer, op: 1, durationMs: 100 });
  // It has seen everything and asked for nothing: a leader would record that before it lets go of it.
  led.answer(led.start(right3));
  const activation = led.start(right);
  led.machine.capture(9);
  led.machine.saved();
  done(led.machine.freeze({ into: asShardId(7) }, led.nowMs));
  const frozenAt = led.log.lastIndex;
  expect(led.machine.header()).toMatchObject({ frozenInto: 7, frozenIndex: frozenAt });
  expect(refusal(led.start(right2))?.rejection.message).toContain("about to become part of shard 7");
  led.done(task);
  led.answer(activation, { kind: CommandKind.complete });
  led.step({ kind: "worker-gone", session });
  led.nowMs += 50_000;
  expect(led.step({ kind: "tick" })).toEqual([]);
  expect(led.machine.evictIdle(led.nowMs)).toEqual([]);
  for (const change of [led.machine.freeze({ into: asShardId(7) }, led.nowMs), led.machine.split({ at: half, child: 2 }, led.nowMs)])
    expect(change).toMatchObject({ reject: "SHARD_BUSY" });
  expect(led.log.lastIndex).toBe(frozenAt);
  const kinds = (from: number) =>
    led.log.records
      .slice(from)
      .flatMap((body) => fromBytes(decodeRecord, body).event.map((bytes) => fromBytes(decodeEvent, bytes).partition));
  done(led.machine.thaw(led.nowMs));
  expect(kinds(frozenAt)).toEqual([left, right, left2].map(runPartition));
  expect(refusal(led.start(right2))).toBeUndefined();
  const follower = makeShard({ log: new RecordLog() });
  led.log.feed(follower);
  expect(follower.header()).toEqual(led.machine.header());
  expect(new Map(follower.states())).toEqual(new Map(led.machine.states()));
});

test("a new leader of a frozen shard keeps it frozen", () => {
  const led = new Led().lead();
  led.start(left);
  done(led.machine.freeze({ into: asShardId(7) }, led.nowMs));
  const next = new Led({ log: led.log }).lead(2);
  expect(refusal(next.start(right))?.rejection.reject).toBe("STALE_EPOCH");
  next.join(new SessionCapacity(1));
  expect(done(next.machine.thaw(next.nowMs)).filter(({ kind }) => kind === "replay")).toHaveLength(1);
});

/** Shard 2 of the right half, led beside shard 1, with one node's states. */
function halves() {
  const table = new StateTable();
  const led = new Led({ table }).lead();
  const capacity = new SessionCapacity(4);
  led.join(capacity);
  const tasks = [right, right2].map((run) => led.busy(run) as TaskEffect);
  split(led);
  table.checkpoint(soleShard, led.machine);
  const child = new Led({ table, shard: second, log: new RecordLog(1), birth: birthOf(led) }).lead(2);
  child.join(capacity);
  return { table, led, child, capacity, tasks: tasks as [TaskEffect, TaskEffect] };
}

test("a shard that absorbs its neighbour goes on with what was under way there", () => {
  const { table, led, child, capacity, tasks } = halves();
  child.command({ kind: "signal", run: right, name: "s", payload: undefined, id: "" });
  done(child.machine.freeze({ into: soleShard }, child.nowMs));
  child.done(tasks[0]);
  table.checkpoint(second, child.machine);
  const effects = done(led.machine.absorb(child.machine.absorption(), led.nowMs));
  expect(led.machine.header()).toMatchObject({
    first: 0,
    last: keyMax,
    ancestor: [1, 2],
    joined: [{ first: half, last: keyMax, index: led.log.lastIndex }],
  });
  // What has nothing to be told stays where it is until something happens.
  expect(effects.filter((each) => each.kind === "replay").map(({ partition }) => partition)).toEqual([runPartition(right)]);
  expect([...capacity.tasks.values()].map(({ shard }) => shard)).toEqual([soleShard, soleShard]);
  expect(led.advance(5000).filter(({ kind }) => kind === "task")).toEqual([]);
  for (const input of child.machine.takeStalled()) if (input.kind === "task-done") led.step(input);
  child.machine.stepDown();
  led.done(tasks[1]);
  expect([...capacity.tasks.keys()]).toEqual([]);
  for (const run of [right, right2]) expect(led.machine.describe(runPartition(run))?.pending).toEqual([]);
  expect(led.machine.historyEnd(runPartition(right))).toMatchObject({ lastShard: 1 });
});

test("a lease that was logged before a run left and came back is not counted a second time", () => {
  const { table, led, child, tasks } = halves();
  // A new generation in the child: the same operation and attempt mean another task there.
  child.command({ kind: "terminate", run: right, reason: "" });
  const started = child.answer(child.start(right), { kind: CommandKind.activity, op: 1, name: "a" });
  const task = started.find((each) => each.kind === "task") as TaskEffect;
  expect([task.token.generation, task.token.delivery, tasks[0].token.delivery]).toEqual([2, 1, 1]);
  done(child.machine.freeze({ into: soleShard }, child.nowMs));
  table.checkpoint(second, child.machine);
  done(led.machine.absorb(child.machine.absorption(), led.nowMs));
  table.checkpoint(soleShard, led.machine);
  // Read again from the first record, as after a restart with a low mark: among them is a lease of generation 1.
  const saved = table.shards.get(soleShard);
  if (saved === undefined) throw new Error("Nothing was saved");
  const lease = { partition: runPartition(right), op: 1, attempt: 1, delivery: 3 };
  const machine = makeShard({ log: new RecordLog(), states: table, saved: { ...saved, appliedIndex: 0 } });
  const before = new Map(led.machine.states());
  for (let index = 1; index <= led.log.lastIndex; index++) {
    const body =
      index === 3
        ? toBytes(encodeRecord, { ...fromBytes(decodeRecord, led.log.record(3)), change: undefined, lease: [lease] })
        : led.log.record(index);
    machine.recover(index, body);
  }
  machine.describe(runPartition(right));
  const state = [...machine.states()].find(([partition]) => partition === runPartition(right));
  expect(state?.[1]).toEqual(before.get(runPartition(right)) as Uint8Array);
});

test("two splits in a row: the second is not taken for saved when the first is", () => {
  const table = new StateTable();
  const led = new Led({ table }).lead();
  for (const run of [left, left2, right, right2]) led.start(run);
  split(led);
  expect(led.machine.departed()).toBe(false);
  const taken = led.machine.capture(2);
  expect(decodeHeader(taken.header).last).toBe(half - 1);
  done(led.machine.split({ at: 1, child: 3 }, led.nowMs));
  table.save(soleShard, taken, led.machine.clockMs);
  led.machine.saved();
  expect(led.machine.departed()).toBe(false);
  const part = led.machine.capture(1);
  expect([decodeHeader(part.header).last, part.appliedIndex < led.log.lastIndex - 1]).toEqual([half - 1, true]);
  led.machine.putBack(part);
  table.checkpoint(soleShard, led.machine);
  expect([led.machine.departed(), table.rows.size]).toEqual([true, 4]);
});

test("a checkpoint without news claims no less than the one before", () => {
  const table = new StateTable();
  const led = new Led({ table }).lead();
  led.start(left);
  split(led);
  table.checkpoint(soleShard, led.machine);
  const again = new Led({ table, log: led.log });
  expect(again.machine.capture(9)).toMatchObject({ appliedIndex: 3, headerIndex: 3 });
  // The log is read from before the header: it stays the header of its own index.
  const saved = table.shards.get(soleShard);
  if (saved === undefined) throw new Error("Nothing was saved");
  const early = makeShard({ log: new RecordLog(), states: table, saved: { ...saved, appliedIndex: 1 } });
  early.recover(2, led.log.record(2));
  expect(early.capture(9)).toMatchObject({ appliedIndex: 2, headerIndex: 3 });
  expect(early.takeChanges()).toEqual([]);
});

test("a token of a later leader is not this one's to take, one of an earlier is", () => {
  const led = new Led().lead(5);
  led.join(new SessionCapacity(10));
  const task = led.busy(left) as TaskEffect;
  expect(task.token.epoch).toBe(5);
  const before = led.log.lastIndex;
  led.done(task, 6);
  expect(led.log.lastIndex).toBe(before);
  led.done(task, 4);
  expect(led.log.lastIndex).toBe(asIndex(before + 1));
});

test("a new leader learns from a heartbeat who executes a task, and does not offer it again", () => {
  const led = new Led().lead();
  led.join(new SessionCapacity(10));
  const { token } = led.busy(left) as TaskEffect;
  const next = new Led({ log: led.log }).lead(2);
  const capacity = new SessionCapacity(10);
  next.join(capacity);
  next.step({ kind: "heartbeat", session, message: { token, details: undefined } });
  expect(next.advance(5000).filter(({ kind }) => kind === "task")).toEqual([]);
  expect([...capacity.tasks.values()].map((held) => held.token.epoch)).toEqual([1]);
  // Nobody says so of this one.
  const third = new Led({ log: led.log }).lead(3);
  third.join(new SessionCapacity(10));
  expect(third.advance(5000).filter(({ kind }) => kind === "task")).toMatchObject([{ token: { delivery: 2, epoch: 3 } }]);
});

test("shards of a node share a worker's slots, and each that waits gets its turn", () => {
  const { led, child, capacity, tasks } = halves();
  capacity.activitySlots = 2;
  expect([led.busy(left), led.busy(left2), child.busy(right3)]).toEqual([undefined, undefined, undefined]);
  const shards = new Map([
    [soleShard, led],
    [second, child],
  ]);
  const served = (effects: readonly Effect[]) => effects.filter((each) => each.kind === "task").map(({ token }) => token.run);
  const turns = (effects: readonly Effect[]) => {
    const runs = served(effects);
    for (let next = capacity.owed(); next !== undefined; next = capacity.owed())
      runs.push(...served(shards.get(next)?.step({ kind: "capacity-freed", session }) ?? []));
    return runs;
  };
  expect([...turns(child.done(tasks[0])), ...turns(child.done(tasks[1]))]).toEqual([left, right3]);
  expect(capacity.tasks.size).toBe(2);
});

test("a leader that steps down leaves nothing at its workers", () => {
  const { led, child, capacity } = halves();
  led.busy(left);
  child.command({ kind: "signal", run: right, name: "s", payload: undefined, id: "" });
  const dropped = led.machine.stepDown();
  expect(dropped.filter(({ kind }) => kind === "drop")).toHaveLength(1);
  expect([...capacity.tasks.values()].map(({ shard }) => shard)).toEqual([second, second]);
  expect(child.machine.stepDown().filter(({ kind }) => kind === "drop")).toHaveLength(1);
  expect([capacity.runCount, capacity.tasks.size]).toEqual([0, 0]);
  expect(() => led.start(left)).toThrow(InvariantError);
});

test("a follower appends nothing and keeps nothing in memory that is saved", () => {
  const led = new Led().lead();
  led.join(new SessionCapacity(10));
  for (const run of [left, right, right2]) led.busy(run);
  const table = new StateTable();
  const follower = makeShard({ log: new RecordLog(), states: table, idleMs: 1000, residentKept: 100 });
  led.log.feed(follower);
  expect(follower.evictIdle(epochMs)).toEqual([]);
  expect(follower.figures().residentRuns).toBe(3);
  table.checkpoint(soleShard, follower);
  expect([follower.evictIdle(epochMs + 5000), follower.figures().residentRuns]).toEqual([[], 0]);
  led.advance(10);
  led.command({ kind: "signal", run: right, name: "s", payload: undefined, id: "" });
  led.log.feed(follower, follower.lastIndex + 1);
  for (const run of [left, right, right2]) follower.describe(runPartition(run));
  expect(digestOf(follower.states(), bunHasher)).toEqual(digestOf([...led.machine.states()].reverse(), bunHasher));
  expect(digestOf(follower.states(), bunHasher)).not.toEqual(digestOf([...led.machine.states()].slice(1), bunHasher));
});

test("a header comes back from its bytes, and one of another format is refused", () => {
  const header = { ...bornHeader({ range: { first: 3, last: half }, ancestors: [4, 2, 4], clockMs: 0 }), epoch: 9, leader: 2 };
  expect(header.ancestor).toEqual([2, 4]);
  expect(decodeHeader(encodeHeader(header))).toEqual(header);
  expect(() => decodeHeader(encodeHeader({ ...header, format: 9 }))).toThrow("format is 9, want 1");
});
