import { afterAll, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beginStaging, dropStaging, finishStaging, keepStaging } from "./staging.ts";

const root = fs.mkdtempSync(join(tmpdir(), "hop-staging-"));
afterAll(() => fs.rmSync(root, { recursive: true, force: true }));

/** A data folder that a node holds. */
function dataDir(): string {
  const dir = fs.mkdtempSync(join(root, "d-"));
  fs.writeFileSync(join(dir, "LOCK"), "own");
  return dir;
}

function build(dir: string): void {
  fs.mkdirSync(join(dir, "log"));
  fs.writeFileSync(join(dir, "log", "1"), "records");
  fs.writeFileSync(join(dir, "LOCK"), "of the builder");
  fs.writeFileSync(join(dir, "node.json"), "identity");
}

const names = (dir: string) => fs.readdirSync(dir).sort();
const text = (...path: string[]) => fs.readFileSync(join(...path), "utf8");

function expectKept(dir: string): void {
  expect(names(dir)).toEqual(["LOCK", "log", "node.json"]);
  expect([text(dir, "LOCK"), text(dir, "log", "1"), text(dir, "node.json")]).toEqual(["own", "records", "identity"]);
}

test("what was built becomes the folder's, and its own lock stays", () => {
  const dir = dataDir();
  build(beginStaging(dir));
  keepStaging(dir);
  expectKept(dir);
});

test("what did not become whole goes, whoever finds it", () => {
  const dir = dataDir();
  build(beginStaging(dir));
  expect(names(beginStaging(dir))).toEqual([]);
  dropStaging(dir);
  expect(names(dir)).toEqual(["LOCK"]);
  build(beginStaging(dir));
  finishStaging(dir);
  expect(names(dir)).toEqual(["LOCK"]);
});

test("a crash between any two of its renames is gone on from", () => {
  for (const moved of [[], ["log"], ["log", "node.json"]]) {
    const dir = dataDir();
    const from = beginStaging(dir);
    build(from);
    fs.renameSync(from, join(dir, "restored"));
    for (const name of moved) fs.renameSync(join(dir, "restored", name), join(dir, name));
    finishStaging(dir);
    expectKept(dir);
    finishStaging(dir);
    expectKept(dir);
  }
});
