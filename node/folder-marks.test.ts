import { expect, test } from "bun:test";
import { mkdtempSync, readdirSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { diskIdOf, requireOwnLog } from "./folder-marks.ts";
import { startNode } from "./start.ts";

test("a folder keeps its name", () => {
  const dataDir = mkdtempSync(join(tmpdir(), "hop-marks-"));
  const drawn = diskIdOf(dataDir);
  expect(drawn).toMatch(/^[0-9a-f]{16}$/);
  expect(diskIdOf(dataDir)).toBe(drawn);
  requireOwnLog(dataDir, "a");
  requireOwnLog(dataDir, "a");
  expect(() => requireOwnLog(dataDir, "b")).toThrow("its log is b, want a");
  rmSync(dataDir, { recursive: true });
});

test("a node whose log is gone does not go on under its old number", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "hop-marks-"));
  const config = { dataDir, version: "0.1.0", grpcPort: 0, httpPort: 0 };
  await (await startNode(config)).close();
  await (await startNode(config)).close();
  const log = join(dataDir, "log");
  const kept = join(dataDir, "kept");
  renameSync(log, kept);
  const files = readdirSync(dataDir).sort();
  for (let tries = 0; tries < 2; tries++) {
    await expect(startNode(config)).rejects.toThrow("joins as a new node");
    // What would be needed with the log, should it come back, is where it was.
    expect(readdirSync(dataDir).sort()).toEqual(files);
  }
  const other = mkdtempSync(join(tmpdir(), "hop-marks-"));
  await (await startNode({ ...config, dataDir: other })).close();
  renameSync(join(other, "log"), log);
  await expect(startNode(config)).rejects.toThrow("joins as a new node");
  expect(readdirSync(dataDir).sort()).toEqual([...files, "log"].sort());
  rmSync(log, { recursive: true });
  renameSync(kept, log);
  await (await startNode(config)).close();
  rmSync(other, { recursive: true });
  rmSync(dataDir, { recursive: true });
});
