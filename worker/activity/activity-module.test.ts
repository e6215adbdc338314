import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { activitiesOf, loadActivities } from "./activity-module.ts";
import { withoutExit } from "./exit-guard.ts";

const folder = mkdtempSync(join(tmpdir(), "hop-activities-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function file(name: string, code: string): string {
  const path = join(folder, name);
  writeFileSync(path, code);
  return path;
}

test("loadActivities() takes each exported function by its exported name", async () => {
  const path = file(
    "good.ts",
    `const hidden = (n: number): number => n + 1;
     export async function charge(n: number): Promise<number> { return hidden(n); }
     export const ship = (to: string) => to;
     export { hidden as add };
     export const rate = 5;
     export class CardError extends Error {}
     export default function ignored() {}`,
  );
  const activities = await loadActivities(path);
  expect(Object.keys(activities).sort()).toEqual(["add", "charge", "ship"]);
  expect(await activities.charge?.(1, {} as never)).toBe(2);
});

test("loadActivities() names the file that it could not load, and why", async () => {
  const broken = file("broken.ts", "throw new Error('no database');");
  await expect(loadActivities(broken)).rejects.toThrow(`Cannot load activities from ${broken}: no database`);
  const missing = join(folder, "missing.ts");
  await expect(loadActivities(missing)).rejects.toThrow(`Cannot load activities from ${missing}: `);
  await expect(loadActivities("relative.ts")).rejects.toThrow("want an absolute path");
});

test("loadActivities() gives the place of each mistake in code that can't be read", async () => {
  const one = file("one.ts", "export const a = 1;\nexport const b = ;\n");
  await expect(loadActivities(one)).rejects.toThrow(`Cannot load activities from ${one}: it can't be read\n  ${one}:2:18: Unexpected ;`);
  const more = file("more.ts", "export const a = 1;\nexport const a = 2;\n\n  export const b = 1; const b = 2;\n");
  const failed = (await loadActivities(more).catch((error: unknown) => error)) as Error;
  expect(failed.message.split("\n")).toEqual([
    `Cannot load activities from ${more}: it can't be read`,
    expect.stringMatching(/^ {2}.*\/more\.ts:2:14: .*"a"/),
    expect.stringMatching(/^ {2}.*\/more\.ts:4:29: .*"b"/),
  ]);
  const below = file("below.ts", 'import "./one.ts";\nexport const c = 1;\n');
  await expect(loadActivities(below)).rejects.toThrow(`${one}:2:18: Unexpected ;`);
});

test("an activity that imports exit() can't end the process either", async () => {
  const path = file("ends.ts", 'import { exit } from "node:process";\nexport const ends = async () => exit(3);');
  const { ends } = await loadActivities(path);
  await expect(withoutExit("activity", async () => ends?.(1, {} as never))).rejects.toThrow("may not end the worker's process");
});

test("activitiesOf() leaves out what is no function", () => {
  expect(Object.keys(activitiesOf({ a: () => 1, b: 2, c: class {}, d: null, default: () => 1 }))).toEqual(["a"]);
});
