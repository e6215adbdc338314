/** inngest#2531: after a restart a run showed "running" for ever, and cancelling it said that it had ended. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { CaseServer } from "./case-fixture.ts";

let at: CaseServer;
beforeAll(async () => {
  at = await CaseServer.up();
});
afterAll(() => at[Symbol.asyncDispose]());

const list = () => at.ok(["workflow", "list", "--all", "-o", "json"]);

function forget(...names: string[]): void {
  for (const file of readdirSync(at.server.data)) if (names.some((name) => file.startsWith(name))) rmSync(join(at.server.data, file));
}

test("killed at any time, the list of runs is the one that the log gives, and agrees with each run", async () => {
  const runs = Array.from({ length: 30 }, (_, i) => i);
  for (let round = 0; round < 3; round++) {
    await Promise.all(
      runs.map(async (i) => {
        const handle = await at.client.start("collect", undefined, { instance: `r${round}-${i}` });
        if (i % 3 === 0) await handle.signal("item", { stop: true });
        if (i % 3 === 1) await handle.cancel("enough");
        if (i % 3 === 0) await handle.result();
      }),
    );
    // With whatever the projection has taken in by now.
    await at.server.kill();
    await at.again();
    const shown = await list();
    await at.server.kill();
    forget("visibility.db");
    await at.again();
    expect(await list()).toBe(shown);
    await at.server.kill();
    forget("visibility.db", "checkpoint.db");
    await at.again();
    expect(await list()).toBe(shown);
  }
  const rows = JSON.parse(await list()) as { run: string; status: string }[];
  expect(rows).toHaveLength(90);
  for (const { run, status } of rows) {
    const cancelled = await at.client.cancel(run, "again").then(
      () => "taken",
      (error: { reason?: string }) => error.reason,
    );
    expect([run, status, cancelled]).toEqual([run, status, status === "running" ? "taken" : "RUN_CLOSED"]);
  }
}, 90_000);
