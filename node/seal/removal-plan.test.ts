import { expect, test } from "bun:test";
import { asShardId } from "#core/base";
import { RemovalPlan } from "./removal-plan.ts";

const [one, two] = [asShardId(1), asShardId(2)];
const graceMs = 24_000;

function plan() {
  const clock = { ms: 0 };
  const made = new RemovalPlan({ graceMs, timing: { monotonicMs: () => clock.ms } });
  /** A round over all objects: which of them it looks at. */
  const round = (shard: typeof one, through: number, bytes = 10, keys = ["a", "b"]) => {
    made.begin(shard, 7, { sealedThrough: through, savedThrough: through });
    return keys.filter((key) => made.isToLookAt(shard, key, bytes)).join("");
  };
  return { clock, made, round };
}

test("objects are looked at once, and again when more expired and all that tells it is sealed and saved", () => {
  const { clock, made, round } = plan();
  // What was before this one led may not be sealed yet: there is a second turn.
  expect([round(one, 5), round(one, 6), round(one, 7), round(one, 8)]).toEqual(["ab", "", "ab", ""]);
  expect(round(one, 8, 10, ["a", "c"])).toBe("c");
  made.note(one, 20);
  expect([round(one, 19), round(one, 20)]).toEqual(["", ""]);
  // Turns are an hour apart, where the grace is a day.
  clock.ms += graceMs / 24;
  expect([round(one, 20), round(one, 20)]).toEqual(["ab", ""]);
});

test("what expires in a child makes its parent be looked at again", () => {
  const { clock, made, round } = plan();
  for (const shard of [one, two]) for (const through of [5, 9]) round(shard, through);
  clock.ms += graceMs;
  for (const shard of [one, two]) round(shard, 9);
  expect(round(one, 9)).toBe("");
  made.note(two, 12);
  clock.ms += graceMs;
  expect([round(two, 12), round(one, 9)]).toEqual(["ab", "ab"]);
});

test("a round reads so much at most, and the next one goes on", () => {
  const { round } = plan();
  expect([round(one, 5, 16 << 20), round(one, 5, 16 << 20), round(one, 5, 16 << 20)]).toEqual(["a", "b", ""]);
});

test("an object is written again at once for much, for little when the grace is over, and found again where that failed", () => {
  const { clock, made, round } = plan();
  round(one, 5);
  expect([made.isDue(one, "a", 0, true), made.isDue(one, "a", 9, true), made.isDue(one, "b", 1, false)]).toEqual([false, true, false]);
  expect(round(one, 5)).toBe("");
  made.putBack(one, "a");
  expect(round(one, 5)).toBe("a");
  clock.ms += graceMs;
  expect([round(one, 5), made.isDue(one, "b", 1, false)]).toEqual(["b", true]);
  // Who led before counts for nothing.
  made.lookAfter([two]);
  expect(round(one, 5)).toBe("ab");
});
