import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { exitCodeOf } from "../failure.ts";
import { ActivityFiles } from "./activities.ts";
import { activityFilesBeside, existingFiles, findWorkflowFiles } from "./sources.ts";
import { watchSources } from "./watch.ts";

let dir = "";
beforeEach(async () => {
  dir = await realpath(await mkdtemp(join(tmpdir(), "hop-project-")));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const put = async (name: string, text: string) => {
  await mkdir(join(dir, name, ".."), { recursive: true });
  await writeFile(join(dir, name), text);
};
const workflow = 'import { durable } from "@hopskip/runtime";\nexport const hello = durable(async () => 1);\n';

describe("workflow files", () => {
  test("are those that export durable workflows, in the folder and in workflows/", async () => {
    for (const name of ["hello.ts", "hello.test.ts", "hello.d.ts", "activities.ts", "workflows/b.ts", "lib/c.ts", "node_modules/d.ts"])
      await put(name, workflow);
    await put("other.ts", 'import { sleep } from "@hopskip/runtime";\nexport const f = () => sleep(1);\n');
    await put("plain.ts", "export const durable = (x: number) => x;\n");
    expect(findWorkflowFiles(dir)).toEqual([join(dir, "hello.ts"), join(dir, "workflows/b.ts")]);
  });

  test("that are named must be files", async () => {
    expect(() => existingFiles([join(dir, "none.ts")], "workflow file")).toThrow("there is no such file");
    expect(() => existingFiles([dir], "workflow file")).toThrow("it is no file");
  });

  test("have their activities beside them", async () => {
    await put("sub/activities.ts", "export const a = () => 1;\n");
    expect(activityFilesBeside([join(dir, "sub/flow.ts")], dir)).toEqual([join(dir, "sub/activities.ts")]);
  });
});

describe("activities", () => {
  test("are the exported functions, and may use the SDK with nothing installed", async () => {
    await put(
      "activities.ts",
      'import { ActivityFailure } from "@hopskip/runtime";\nexport class Own extends Error {}\nexport const limit = 3;\nexport const charge = () => new ActivityFailure("Declined", "no").name;\n',
    );
    const files = await ActivityFiles.load([join(dir, "activities.ts")]);
    expect(files.names).toEqual(["charge"]);
    expect(files.activities.charge?.(undefined, undefined as never)).toBe("Declined");
  });

  test("reload with what they import, in place, and say whether names changed", async () => {
    await put("price.ts", "export const price = 1;\n");
    await put("activities.ts", 'import { price } from "./price.ts";\nexport const charge = () => price;\n');
    const files = await ActivityFiles.load([join(dir, "activities.ts")]);
    const { activities } = files;
    const charge = () => activities.charge?.(undefined, undefined as never);
    expect(charge()).toBe(1);
    await put("price.ts", "export const price = 2;\n");
    expect(await files.reload([dir])).toBe(false);
    expect(charge()).toBe(2);
    await put("activities.ts", "export const refund = () => 3;\n");
    expect(await files.reload([dir])).toBe(true);
    expect(Object.keys(activities)).toEqual(["refund"]);
  });

  test("stay as they are when the new code can't be loaded", async () => {
    await put("activities.ts", "export const charge = () => 1;\n");
    const files = await ActivityFiles.load([join(dir, "activities.ts")]);
    await put("activities.ts", "export const charge = (;\n");
    await expect(files.reload([dir])).rejects.toThrow("Cannot load activities");
    expect(files.activities.charge?.(undefined, undefined as never)).toBe(1);
  });

  test("of one name in two files are refused", async () => {
    await put("a.ts", "export const charge = () => 1;\n");
    await put("b.ts", "export const charge = () => 2;\n");
    const error = await ActivityFiles.load([join(dir, "a.ts"), join(dir, "b.ts")]).catch((caught: unknown) => caught);
    expect((error as Error).message).toContain("charge is exported by");
    expect(exitCodeOf(error)).toBe(1);
  });
});

test("a change to a source below a folder is told once, data and packages never", async () => {
  await mkdir(join(dir, "sub"));
  await mkdir(join(dir, ".hop"));
  let count = 0;
  let tell = Promise.withResolvers<void>();
  const watching = watchSources([dir, join(dir, "sub")], () => {
    count += 1;
    tell.resolve();
  });
  try {
    await put(".hop/data.json", "{}");
    await put("notes.md", "x");
    await put("sub/a.ts", "1");
    await put("b.ts", "2");
    await tell.promise;
    expect(count).toBe(1);
    tell = Promise.withResolvers();
    await put("sub/a.ts", "3");
    await tell.promise;
    expect(count).toBe(2);
  } finally {
    watching.close();
  }
});
