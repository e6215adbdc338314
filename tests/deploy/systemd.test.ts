/** The systemd units: as systemd reads them, and their command carried out as systemd would. */
import { afterAll, expect, test } from "bun:test";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { exit } from "../../cmd/failure.ts";
import { Cluster, executable } from "../cluster/harness.ts";
import { root } from "../sources.ts";
import { environmentOf, expanded, unitSettings } from "./deploy-files.ts";

const hasSystemd = Bun.which("systemd-analyze") !== null;
const folder = mkdtempSync(join(tmpdir(), "hop-units-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** Copies of the units whose program is there, under the names by which they are started. */
function installed(): string[] {
  return ["hop-server.service", "hop-worker@shop.service"].map((name) => {
    const source = join(root, "deploy/systemd", name.replace("@shop", "@"));
    const text = readFileSync(source, "utf8").replaceAll("/usr/local/bin/hop", executable);
    if (name.includes("@")) copyFileSync(source, join(folder, "hop-worker@.service"));
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  });
}

/** Settings that systemd knows from this version on: before it says so, and leaves them out. */
const since254 = /Unknown key(?: name)? 'Restart(?:Steps|MaxDelaySec)' in section .Service., ignoring/;

test.skipIf(!hasSystemd)("systemd finds nothing wrong with the units [needs systemd-analyze: apt install systemd]", () => {
  for (const unit of installed()) {
    const { exitCode, stderr } = Bun.spawnSync(["systemd-analyze", "verify", "--recursive-errors=no", unit]);
    const said = stderr.toString().split("\n");
    expect(said.filter((line) => line !== "" && !since254.test(line))).toEqual([]);
    // What an older one leaves out makes it end with 1.
    if (!said.some((line) => since254.test(line))) expect(exitCode).toBe(0);
  }
});

test.skipIf(!hasSystemd)(
  "what a unit may do is little: an exposure of 2 of 10 at most [needs systemd-analyze: apt install systemd]",
  () => {
    for (const unit of installed()) {
      const { exitCode, stdout } = Bun.spawnSync(["systemd-analyze", "security", "--offline=true", "--threshold=20", unit]);
      expect(stdout.toString()).toMatch(/Overall exposure level for \S+: [01]\.\d/);
      expect(exitCode).toBe(0);
    }
  },
);

test("only what a restart may cure is restarted", async () => {
  const { ok, failed, unavailable, interrupted } = exit;
  const curable: number[] = [ok, failed, unavailable, interrupted];
  const others = Object.values(exit).filter((code) => !curable.includes(code));
  for (const unit of ["hop-server.service", "hop-worker@.service"])
    expect(await unitSettings(unit, "RestartPreventExitStatus")).toEqual([others.join(" ")]);
});

/** The server's command as the unit gives it, with ports that are free. */
async function command(data: string, changes: Readonly<Record<string, string>>): Promise<string[]> {
  const env = new Map([...(await environmentOf("server.env", { commented: false })), ...Object.entries(changes)]);
  env.set("STATE_DIRECTORY", data);
  const [start = ""] = await unitSettings("hop-server.service", "ExecStart");
  const [program, ...args] = expanded(start, env);
  expect(program).toBe("/usr/local/bin/hop");
  return args;
}

const freePorts = { LISTEN: "--listen 127.0.0.1:0", HTTP: "--http 127.0.0.1:0" };

test("the unit's command serves, and SIGTERM ends it with 0 before systemd would kill it", async () => {
  await using hop = new Cluster();
  const server = hop.launch([...(await command(join(hop.folder, "state"), freePorts)), "--ready-line"]);
  const [, http] = await server.line(/^ready grpc=\S+ http=(\S+)/m);
  expect((await fetch(`http://${http}/readyz`)).status).toBe(200);
  const [limit = ""] = await unitSettings("hop-server.service", "TimeoutStopSec");
  const startedMs = performance.now();
  process.kill(server.pid, "SIGTERM");
  expect(await server.exited).toBe(exit.ok);
  expect(performance.now() - startedMs).toBeLessThan(Number.parseInt(limit, 10) * 1000);
});

test("options that contradict each other end it with a code that is not restarted", async () => {
  await using hop = new Cluster();
  const args = await command(join(hop.folder, "state"), { ...freePorts, SEED: "--seed 10.0.0.1", BOOTSTRAP: "--bootstrap" });
  const { code, stderr } = await hop.run(args);
  expect(stderr).toContain("Cannot start with both --bootstrap and --seed");
  const [prevented = ""] = await unitSettings("hop-server.service", "RestartPreventExitStatus");
  expect(prevented.split(" ")).toContain(String(code));
});

test("a port that is taken ends it with a code that is restarted", async () => {
  await using hop = new Cluster();
  const server = hop.launch([...(await command(join(hop.folder, "one"), freePorts)), "--ready-line"]);
  const [, grpc] = await server.line(/^ready grpc=(\S+)/m);
  const { code } = await hop.run(await command(join(hop.folder, "two"), { ...freePorts, LISTEN: `--listen ${grpc}` }));
  const [prevented = ""] = await unitSettings("hop-server.service", "RestartPreventExitStatus");
  expect(code).toBe(exit.unavailable);
  expect(prevented.split(" ")).not.toContain(String(code));
});
