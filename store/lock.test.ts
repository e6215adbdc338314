import { afterAll, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { HopError } from "#core/base";
import { FolderLock } from "./lock.ts";

const root = fs.mkdtempSync(join(tmpdir(), "hop-lock-"));
afterAll(() => fs.rmSync(root, { recursive: true }));

test("a second opening of a folder is refused, and names folder and process", () => {
  const dir = join(root, "a");
  const lock = FolderLock.acquire(dir);
  expect(() => FolderLock.acquire(dir)).toThrow(`Cannot open data folder ${dir}: process ${process.pid} uses it`);
  lock.release();
  FolderLock.acquire(dir).release();
});

test("a process killed with -9 leaves no lock", async () => {
  const dir = join(root, "b");
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "lock-fixture.ts"), dir], { stdout: "pipe" });
  for await (const _ of child.stdout) break;
  expect(() => FolderLock.acquire(dir)).toThrow(`process ${child.pid} uses it`);
  child.kill("SIGKILL");
  await child.exited;
  FolderLock.acquire(dir).release();
});

test("an opening that fails or is cancelled leaves no lock", async () => {
  const dir = join(root, "c");
  const refusal = new HopError("BAD_REQUEST", "Cancelled");
  await expect(FolderLock.hold(dir, () => Promise.reject(refusal))).rejects.toBe(refusal);
  await Promise.resolve();
  const lock = await FolderLock.hold(dir, async (held) => held);
  expect(() => FolderLock.acquire(dir)).toThrow(HopError);
  lock.release();
});

test("a child process does not inherit the lock", async () => {
  const dir = join(root, "d");
  const lock = FolderLock.acquire(dir);
  const child = Bun.spawn(["sleep", "60"]);
  lock.release();
  // The kernel lets the child run a moment before it closes what a new program does not get.
  let isFree = false;
  while (!isFree)
    isFree = await FolderLock.hold(dir, async (held) => held.release()).then(
      () => true,
      () => false,
    );
  expect(child.exitCode).toBeNull();
  child.kill("SIGKILL");
  await child.exited;
});
