import { expect, test } from "bun:test";
import { now } from "./clock.ts";

test("now() of another process lies between two readings of this one", async () => {
  const before = now();
  const child = Bun.spawn(
    [process.execPath, "-e", `import { now } from ${JSON.stringify(`${import.meta.dir}/clock.ts`)}; console.log(now());`],
    {
      stdout: "pipe",
      stderr: "inherit",
    },
  );
  const told = Number(await child.stdout.text());
  const after = now();
  // The offset is known to a few microseconds; the child takes milliseconds to start and to end.
  expect(told).toBeGreaterThan(before);
  expect(told).toBeLessThan(after);
});

test("now() advances as fast as the process's own clock", () => {
  const shared = now();
  const own = performance.now();
  while (performance.now() - own < 20);
  expect(Math.abs(now() - shared - (performance.now() - own))).toBeLessThan(1);
});
