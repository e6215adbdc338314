import { expect, test } from "bun:test";
import fc from "fast-check";
import { asSessionId, asShardId, type RunId, type SessionId } from "#core/base";
import { ReadyQueue, type Session, SessionCapacity, WorkerPool } from "#core/dispatch";
import type { Hello } from "#proto";

const shard = asShardId(1);
const other = asShardId(2);
const third = asShardId(3);
const token = { run: "n:r" as RunId, generation: 1, op: 1, attempt: 1, delivery: 1, epoch: 1 };
const poolOf = () => new WorkerPool<string>(shard);

function join(pool: WorkerPool<string>, id: number, part: Partial<Hello> = {}): Session<string> {
  const said = hello(part);
  return pool.join(asSessionId(id), said, new SessionCapacity(said.activitySlots));
}

const hello = (part: Partial<Hello> = {}): Hello => ({
  workerId: "w",
  namespace: "",
  modes: ["v8"],
  activities: ["a", "b"],
  activitySlots: 2,
  runSlots: 10,
  version: "",
  clusterId: "",
  wantsLocal: false,
  held: [],
  ...part,
});

test("tasks of an activity leave in the order in which they came, each lane for itself", () => {
  const lane = fc.constantFrom("n1", "n2", "n3:x");
  const step = fc.record({ lane, name: fc.constantFrom("a", "b"), isPush: fc.boolean() });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 300 }), (steps) => {
      const queue = new ReadyQueue<string>();
      const naive = new Map<string, number[]>();
      for (const [op, { lane, name, isPush }] of steps.entries()) {
        const kept = naive.get(`${lane} ${name}`) ?? [];
        naive.set(`${lane} ${name}`, kept);
        if (isPush) {
          queue.push(lane, name, { holder: "h", op, attempt: 1, delivery: 1 });
          kept.push(op);
        } else expect(queue.shift(lane, name)?.op).toBe(kept.shift() as number);
        expect(queue.size).toBe([...naive.values()].reduce((sum, all) => sum + all.length, 0));
      }
      const waiting = [...naive].filter(([, all]) => all.length > 0).map(([key]) => key);
      expect(
        queue
          .waiting()
          .map(([space, name]) => `${space} ${name}`)
          .sort(),
      ).toEqual(waiting.sort());
    }),
  );
});

test("a long lane is emptied in order, and gives its memory back", () => {
  const queue = new ReadyQueue<string>();
  for (let op = 0; op < 5000; op++) queue.push("n", "a", { holder: "h", op, attempt: 1, delivery: 1 });
  for (let op = 0; op < 5000; op++) expect(queue.shift("n", "a")?.op).toBe(op);
  expect([queue.size, queue.shift("n", "a"), queue.waiting()]).toEqual([0, undefined, []]);
});

test("an activity goes to the least loaded session that offers it and has a slot", () => {
  const pool = poolOf();
  const [one, two] = [join(pool, 1), join(pool, 2, { activities: ["a"], activitySlots: 1 })];
  const chosen = (name: string, space = "n"): SessionId | undefined => pool.forActivity(space, name)?.id;
  one.capacity.hold("x", shard, token);
  expect([chosen("a"), chosen("b"), chosen("c")]).toEqual([two.id, one.id, undefined]);
  two.capacity.hold("y", other, token);
  expect(chosen("a")).toBe(one.id);
  one.capacity.hold("z", shard, token);
  expect([chosen("a"), pool.isOffered("n", "a"), pool.isOffered("n", "c")]).toEqual([undefined, true, false]);
  two.capacity.release("y");
  two.draining = true;
  expect(chosen("a")).toBeUndefined();
  pool.leave(one);
  expect([pool.isOffered("n", "b"), pool.sessions.size]).toEqual([false, 1]);
});

test("a session serves its own namespace, or all", () => {
  const pool = poolOf();
  join(pool, 1, { namespace: "other" });
  expect([pool.forActivity("n", "a"), pool.forRun("n"), pool.isOffered("n", "a")]).toEqual([undefined, undefined, false]);
  expect(pool.forRun("other")?.id).toBe(asSessionId(1));
});

test("a run goes to the session that holds the fewest, among those that run workflows", () => {
  const pool = poolOf();
  const one = join(pool, 1);
  const two = join(pool, 2);
  join(pool, 3, { modes: [] });
  one.capacity.countRun(other, 1);
  expect(pool.forRun("n")?.id).toBe(two.id);
  two.draining = true;
  expect(pool.forRun("n")?.id).toBe(one.id);
});

test("what was queued for holders that are gone leaves, the rest keeps its order", () => {
  const queue = new ReadyQueue<string>();
  for (let op = 0; op < 100; op++) queue.push("n", op % 2 === 0 ? "a" : "b", { holder: `h${op % 3}`, op, attempt: 1, delivery: 1 });
  for (let i = 0; i < 5; i++) queue.shift("n", "a");
  queue.remove((holder) => holder !== "h0");
  const left: number[] = [];
  for (const name of ["a", "b"])
    for (let task = queue.shift("n", name); task !== undefined; task = queue.shift("n", name)) left.push(task.op);
  const naive = Array.from({ length: 100 }, (_, op) => op).filter((op) => op % 3 === 0);
  expect(left).toEqual([...naive.filter((op) => op % 2 === 0 && op > 8), ...naive.filter((op) => op % 2 === 1)]);
  expect([queue.size, queue.waiting()]).toEqual([0, []]);
});

test("the slots of a stream are one number for all shards, and those that wait take turns", () => {
  const capacity = new SessionCapacity(2);
  const take = (key: string, by = shard) => {
    if (!capacity.hasSlot(by)) return capacity.wait(by);
    capacity.hold(key, by, token);
    capacity.endTurn(by);
  };
  take("1");
  take("2", other);
  for (const each of [shard, other, third]) take("none", each);
  expect([capacity.owed(), capacity.tasks.size]).toEqual([undefined, 2]);
  const served: (number | undefined)[] = [];
  for (let i = 0; i < 5; i++) {
    capacity.release([...capacity.tasks.keys()][0] as string);
    const next = capacity.owed();
    served.push(next);
    // Whoever comes out of turn gets nothing.
    expect([shard, other, third].filter((each) => capacity.hasSlot(each))).toEqual([next as never]);
    take(`again ${i}`, next);
  }
  expect(served).toEqual([shard, other, third, shard, other]);
  capacity.rest(third);
  capacity.activitySlots = 3;
  expect(capacity.owed()).toBe(shard);
});

test("a shard that is led elsewhere holds no slot, waits for none and has no runs", () => {
  const capacity = new SessionCapacity(1);
  capacity.hold("x", shard, token);
  capacity.countRun(shard, 1);
  capacity.countRun(other, 1);
  capacity.wait(shard);
  capacity.wait(other);
  expect(capacity.owed()).toBeUndefined();
  capacity.forget(shard);
  expect([capacity.owed(), capacity.runCount, capacity.tasks.size]).toEqual([other, 1, 0]);
  expect([capacity.nextHandle(), capacity.nextHandle(), capacity.nextTask(), capacity.nextQuery()]).toEqual([1, 2, 1, 1]);
});
