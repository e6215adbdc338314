import { describe, expect, test } from "bun:test";
import { Net, outside, whyNoNet } from "./net.ts";

const reason = whyNoNet();
if (reason !== undefined) console.error(`tests/chaos/cluster: skipped: ${reason}`);

/** Milliseconds until a machine learns that nothing listens on another one; undefined = it hears nothing for a second. */
async function knock(net: Net, from: number, to: number): Promise<number | undefined> {
  const enter = from === outside ? [] : net.enter(from);
  const begun = performance.now();
  const child = Bun.spawn([...enter, "timeout", "1", "bash", "-c", `< /dev/tcp/${net.address(to)}/9`], { stderr: "pipe" });
  const answered = (await child.stderr.text()).includes("refused");
  return answered ? performance.now() - begun : undefined;
}

describe.skipIf(reason !== undefined)("a network of machines [needs root and /dev/net/tun]", () => {
  test("every machine reaches every other one; delay, cuts in one direction and healing are in force at once", async () => {
    await using net = await Net.make(3);
    for (const [from, to] of [
      [1, 2],
      [3, 1],
      [outside, 2],
    ] as const)
      expect(await knock(net, from, to)).toBeLessThan(500);
    await net.set(1, 2, { delayMs: 600 });
    expect(await knock(net, 1, 2)).toBeGreaterThanOrEqual(600);
    expect(await knock(net, 1, 3)).toBeLessThan(500);
    await net.mute(3);
    // Its question is not heard, and neither is its answer; others are not concerned.
    expect([await knock(net, 3, 1), await knock(net, 1, 3)]).toEqual([undefined, undefined]);
    expect(await knock(net, outside, 3)).toBeLessThan(500);
    await net.heal();
    expect(await knock(net, 3, 1)).toBeLessThan(500);
    await net.isolate(2);
    expect(await knock(net, 2, 3)).toBeUndefined();
  }, 20_000);
});
