import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { runtimeTypes, typesFile } from "../../scripts/gen-runtime-types.ts";
import { exitCodeOf } from "../failure.ts";
import { Output, type OutputOptions } from "../output.ts";
import { bufferSink } from "../sink-fixture.ts";
import { init } from "./init.ts";

let dir = "";
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "hop-init-"));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

async function made(name: string, form: Partial<OutputOptions> = {}): Promise<string> {
  const out = bufferSink();
  const output = new Output({ out, err: bufferSink(), env: {}, ...form });
  await init({ output, interrupt: new AbortController().signal, env: {} }, {}, join(dir, name));
  return out.text();
}

const tsc = fileURLToPath(new URL("../../node_modules/.bin/tsc", import.meta.url));

test("the new project type-checks as it is, strictly, with nothing installed", async () => {
  const said = await made("fresh");
  expect(said).toContain("hop dev");
  expect(said).toContain(`hop run hello --input '"Ada"' --follow`);
  const { exitCode, stdout } = Bun.spawnSync([tsc, "-p", join(dir, "fresh")]);
  expect({ exitCode, out: stdout.toString() }).toEqual({ exitCode: 0, out: "" });
});

test("its types are those of the runtime, mistakes included", async () => {
  await made("wrong");
  const file = join(dir, "wrong", "hello.ts");
  await writeFile(file, (await readFile(file, "utf8")).replace("await greet(name)", "await greet(7)"));
  const { exitCode, stdout } = Bun.spawnSync([tsc, "-p", join(dir, "wrong")]);
  expect(exitCode).not.toBe(0);
  expect(stdout.toString()).toContain("hello.ts(15,");
});

test("the embedded types are up to date with the runtime's sources", async () => {
  expect(await readFile(typesFile, "utf8")).toBe(runtimeTypes());
});

test("what exists is not written over", async () => {
  await made("twice");
  await writeFile(join(dir, "twice", "hello.ts"), "mine");
  await rm(join(dir, "twice", "README.md"));
  const error = await made("twice").catch((caught: unknown) => caught);
  expect((error as Error).message).toContain("it already has hello.ts, activities.ts");
  expect(exitCodeOf(error)).toBe(5);
  expect(await readFile(join(dir, "twice", "hello.ts"), "utf8")).toBe("mine");
  expect(await readdir(join(dir, "twice"))).not.toContain("README.md");
});

test("a folder's name becomes a package name", async () => {
  await made("My Shop 日本");
  expect(JSON.parse(await readFile(join(dir, "My Shop 日本", "package.json"), "utf8")).name).toBe("my-shop");
});

test("programs get the folder and its files as JSON", async () => {
  expect(JSON.parse(await made("json", { format: "json" }))).toMatchObject({
    folder: join(dir, "json"),
    files: expect.arrayContaining(["hello.ts"]),
  });
});
