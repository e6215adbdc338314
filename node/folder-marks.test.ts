import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
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
  rmSync(join(dataDir, "log"), { recursive: true });
  for (let tries = 0; tries < 2; tries++) await expect(startNode(config)).rejects.toThrow("joins as a new node");
  rmSync(dataDir, { recursive: true });
});
