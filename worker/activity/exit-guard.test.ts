import { expect, test } from "bun:test";
import { join } from "node:path";
import { withoutExit } from "./exit-guard.ts";

const refusal = 'An activity may not end the worker\'s process: activity "a" called process.';

test.each([
  ["exit", () => process.exit(3)],
  ["reallyExit", () => (process as unknown as { reallyExit(code: number): void }).reallyExit(3)],
  ["abort", () => process.abort()],
  ["kill", () => process.kill(process.pid, "SIGTERM")],
])("process.%s() throws inside an activity, at once and after a wait", async (name, end) => {
  expect(() => withoutExit('activity "a"', end)).toThrow(`${refusal}${name}()`);
  const afterWait = async () => {
    await Bun.file(import.meta.path).text();
    end();
  };
  await expect(withoutExit('activity "a"', afterWait)).rejects.toThrow(refusal);
  const late = Promise.withResolvers<unknown>();
  withoutExit('activity "a"', () => {
    setTimeout(() => {
      try {
        end();
      } catch (error) {
        late.resolve(error);
      }
    }, 0);
  });
  expect(String(await late.promise)).toContain(refusal);
});

test("an activity may look for a process, and end another one", async () => {
  const other = Bun.spawn(["sleep", "60"]);
  withoutExit("a", () => {
    expect(process.kill(process.pid, 0)).toBe(true);
    process.kill(other.pid, "SIGTERM");
  });
  await other.exited;
  expect(other.signalCode).toBe("SIGTERM");
});

test("the process still ends for what is no activity, also after and beside one", () => {
  const code = `
    const { withoutExit } = await import(${JSON.stringify(join(import.meta.dir, "exit-guard.ts"))});
    await withoutExit("a", async () => { await Bun.file("/dev/null").text(); });
    withoutExit("b", () => { setTimeout(() => {}, 60_000); });
    process.exit(7);`;
  expect(Bun.spawnSync([process.execPath, "-e", code], { stderr: "inherit" }).exitCode).toBe(7);
});
