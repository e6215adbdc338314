import { expect, test } from "bun:test";
import fc from "fast-check";
import { asSessionId, type SessionId } from "#core/base";
import { ReadyQueue, WorkerPool } from "#core/dispatch";
import type { Hello } from "#proto";

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
  const pool = new WorkerPool<string>();
  const [one, two] = [pool.join(asSessionId(1), hello()), pool.join(asSessionId(2), hello({ activities: ["a"], activitySlots: 1 }))];
  const chosen = (name: string, space = "n"): SessionId | undefined => pool.forActivity(space, name)?.id;
  one.tasks.add("x");
  expect([chosen("a"), chosen("b"), chosen("c")]).toEqual([two.id, one.id, undefined]);
  two.tasks.add("y");
  expect(chosen("a")).toBe(one.id);
  one.tasks.add("z");
  expect([chosen("a"), pool.isOffered("n", "a"), pool.isOffered("n", "c")]).toEqual([undefined, true, false]);
  two.tasks.clear();
  two.draining = true;
  expect(chosen("a")).toBeUndefined();
  pool.leave(one);
  expect([pool.isOffered("n", "b"), pool.sessions.size]).toEqual([false, 1]);
});

test("a session serves its own namespace, or all", () => {
  const pool = new WorkerPool<string>();
  pool.join(asSessionId(1), hello({ namespace: "other" }));
  expect([pool.forActivity("n", "a"), pool.forRun("n"), pool.isOffered("n", "a")]).toEqual([undefined, undefined, false]);
  expect(pool.forRun("other")?.id).toBe(asSessionId(1));
});

test("a run goes to the session that holds the fewest, among those that run workflows", () => {
  const pool = new WorkerPool<string>();
  const one = pool.join(asSessionId(1), hello());
  const two = pool.join(asSessionId(2), hello());
  pool.join(asSessionId(3), hello({ modes: [] }));
  one.runs.set(1, "r");
  expect(pool.forRun("n")?.id).toBe(two.id);
  two.draining = true;
  expect(pool.forRun("n")?.id).toBe(one.id);
});
