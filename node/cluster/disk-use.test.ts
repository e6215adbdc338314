import { expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bytesBelow } from "./disk-use.ts";

test("bytesBelow() counts files at every depth, and a folder that is not there as none", async () => {
  const folder = mkdtempSync(join(tmpdir(), "hop-disk-"));
  try {
    const empty = await bytesBelow(folder);
    mkdirSync(join(folder, "log", "old"), { recursive: true });
    writeFileSync(join(folder, "a"), new Uint8Array(100_000).fill(1));
    writeFileSync(join(folder, "log", "old", "b"), new Uint8Array(50_000).fill(1));
    expect(empty).toBe(0);
    expect(await bytesBelow(folder)).toBeGreaterThanOrEqual(150_000);
    expect(await bytesBelow(join(folder, "none"))).toBe(0);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
