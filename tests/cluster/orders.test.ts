import { expect, test } from "bun:test";
import { fileURLToPath } from "node:url";
import { executable } from "#tests/cluster";

const main = fileURLToPath(new URL("../../examples/orders/main.ts", import.meta.url));

test("the orders example kills the server, and every order ends exactly once with a proof that holds", async () => {
  const child = Bun.spawn([process.execPath, main, executable], { stdin: "ignore", stdout: "pipe", stderr: "pipe" });
  const [out, err, code] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text(), child.exited]);
  expect(code, out + err).toBe(0);
  expect(out).toContain("killing the server (SIGKILL)");
  expect(out).toMatch(/291 orders ended in [\d.]+ s: 280 shipped, 11 declined, 0 failed/);
  expect(out).toContain("every order ended exactly once, and the shop's ledger agrees");
  expect(out).toContain("✓ root: the proof stands on the root");
}, 120_000);
