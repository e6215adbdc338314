/** Requests that wait for a shard to arrive. */
import { expect, test } from "bun:test";
import { Arrivals } from "./arrivals.ts";
import { VirtualTiming } from "./virtual-timing-fixture.ts";

test("each goes on once: when what it waits for is there, after 50 ms, or at the end", () => {
  const timing = new VirtualTiming();
  const arrivals = new Arrivals(timing);
  const went: string[] = [];
  let isHere = false;
  arrivals.wait(
    () => isHere,
    () => void went.push("here"),
  );
  arrivals.look();
  expect(went).toEqual([]);
  isHere = true;
  arrivals.look();
  expect(went).toEqual(["here"]);
  const never = () => false;
  arrivals.wait(never, () => void went.push("late"));
  const stop = arrivals.wait(never, () => void went.push("gone"));
  stop();
  timing.pass(49);
  expect(went).toEqual(["here"]);
  timing.pass(1);
  expect(went).toEqual(["here", "late"]);
  arrivals.wait(never, () => void went.push("closed"));
  arrivals.close();
  timing.pass(100);
  arrivals.look();
  expect(went).toEqual(["here", "late", "closed"]);
});
