/** sdk-typescript#1744, sdk-python#1573: nested Promise.all was replayed in another order than it had run live. */
import { expect, test } from "bun:test";
import { Prng } from "#core/base";
import { isTerminal } from "#core/run";
import { programOf, typeOf } from "../../sim/program.ts";
import { VirtualShard } from "./virtual-shard.ts";

const signals = ["s0", "s1", "s2"];

/** Goes on with one thing drawn at random: a result, a signal, or time. */
function nudge(shard: VirtualShard, prng: Prng, run: string): void {
  const draw = prng.below(10);
  const task = shard.tasks[prng.below(Math.max(shard.tasks.length, 1))];
  if (draw < 6 && task !== undefined) shard.complete(task, prng.below(1000));
  else if (draw < 8)
    shard.command({ kind: "signal", run: `default:${run}` as never, name: signals[prng.below(3)] as string, payload: undefined, id: "" });
  else shard.advance(1 + prng.below(5000));
}

const isOver = (shard: VirtualShard, run: string) => shard.events(run).some(({ event }) => isTerminal(event.kind));

test("random trees of steps, killed at random events, replay what they did live and nothing else", () => {
  let crashes = 0;
  let ended = 0;
  for (let program = 0; program < 60; program++) {
    const prng = new Prng(program * 31 + 5);
    const type = typeOf(program);
    const shard = new VirtualShard({ programs: { [type]: programOf(type) } });
    shard.join();
    shard.start("tree", type);
    for (let step = 0; step < 120 && !isOver(shard, "tree"); step++) {
      nudge(shard, prng, "tree");
      if (!prng.chance(0.25)) continue;
      const history = shard.events("tree").map(({ bytes }) => Buffer.from(bytes).toString("hex"));
      if (prng.chance(0.5)) shard.crash();
      else shard.leave();
      shard.join();
      crashes++;
      // The worker built the run anew: every operation agreed with its record, and the past is as it was.
      expect([program, shard.problems]).toEqual([program, []]);
      expect(
        shard
          .events("tree")
          .slice(0, history.length)
          .map(({ bytes }) => Buffer.from(bytes).toString("hex")),
      ).toEqual(history);
    }
    if (isOver(shard, "tree")) ended++;
    expect(shard.events("tree").filter(({ event }) => isTerminal(event.kind)).length).toBeLessThanOrEqual(1);
  }
  expect(crashes).toBeGreaterThan(200);
  expect(ended).toBeGreaterThan(15);
}, 30_000);
