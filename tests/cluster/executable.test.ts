/** What the compiled executable owes before it does anything: a quick start, and no trust in where it stands. */
import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Cluster, executable } from "./harness.ts";

const { version } = JSON.parse(readFileSync(join(import.meta.dir, "../../package.json"), "utf8")) as { version: string };

/** Processor time of a start that prints the version: ten times what is usual, so a busy machine passes. */
const versionCpuMsMax = 60;

test("hop --version prints the version from an empty folder, in little processor time", async () => {
  await using hop = new Cluster();
  expect(await hop.expectOk(["--version"])).toBe(`hop ${version}\n`);
  const cpuMs = Array.from({ length: 5 }, () => {
    const { resourceUsage } = Bun.spawnSync([executable, "--version"], { cwd: hop.folder });
    return Number(resourceUsage.cpuTime.total) / 1000;
  });
  expect(Math.min(...cpuMs)).toBeLessThan(versionCpuMsMax);
});

test("hop reads no .env and no bunfig.toml of the folder where it is started", async () => {
  await using hop = new Cluster();
  writeFileSync(join(hop.folder, "preload.ts"), 'console.log("preloaded");\n');
  writeFileSync(join(hop.folder, "bunfig.toml"), 'preload = ["./preload.ts"]\n');
  writeFileSync(join(hop.folder, ".env"), "HOP_SERVER=nowhere\n");
  expect(await hop.expectOk(["--version"])).toBe(`hop ${version}\n`);
});

test("an unknown command is a usage error that goes to standard error", async () => {
  await using hop = new Cluster();
  const { code, stdout, stderr } = await hop.run(["no-such-command"]);
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  expect(stderr).toContain("no-such-command");
});
