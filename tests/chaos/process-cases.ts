/** Processes that are killed or stopped at random times under load, restarts, and clocks that jump. */
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Prng } from "#core/base";
import { EventKind } from "#proto";
import { Cluster, type HopProcess, until } from "#tests/cluster";
import { faketimeLibrary } from "./host.ts";
import { finish, Ledger } from "./ledger.ts";
import { provenHistory, provePromises } from "./proof.ts";
import { Rig } from "./rig.ts";
import { readyMsMax } from "./write-faults.ts";

/** Child processes, grandchildren not included. */
export function childrenOf(pid: number): number[] {
  const threads = readdirSync(`/proc/${pid}/task`);
  return threads.flatMap((thread) => readFileSync(`/proc/${pid}/task/${thread}/children`, "utf8").split(" ").filter(Boolean).map(Number));
}

export const victims = ["server", "worker", "v8"] as const;
export type Victim = (typeof victims)[number];

async function killOnce(rig: Rig, victim: Victim): Promise<void> {
  if (victim === "server") {
    await rig.server.kill();
    // The client that is under load stays: it comes back by itself.
    await rig.server.restart();
  } else if (victim === "worker") {
    await rig.worker.kill();
    await rig.restartWorker();
  } else {
    const [child] = await until(() => {
      const found = childrenOf(rig.worker.pid);
      return found.length > 0 && found;
    });
    process.kill(child as number, "SIGKILL");
    await until(() => !existsSync(`/proc/${child}`) || readFileSync(`/proc/${child}/stat`, "utf8").includes(") Z "));
  }
}

/** Kills `victim` `times` times while runs are under way; every run comes to its one result all the same. */
export async function killUnderLoad(
  rig: Rig,
  victim: Victim,
  { times, seed }: { readonly times: number; readonly seed: number },
): Promise<{ runs: number }> {
  const prng = new Prng(seed);
  let runs = 0;
  for (let i = 0; i < times; i++) {
    const ledger = new Ledger({ prefix: `${victim}-${seed}-${i}`, runs: 8, signals: 32 });
    const finished = finish(rig.client, ledger);
    const all = 8 * 33;
    const at = 1 + prng.below(all - 16);
    await until(() => ledger.acks >= at);
    await killOnce(rig, victim);
    await finished;
    await provePromises(rig, ledger);
    runs += ledger.runs.size;
  }
  return { runs };
}

/** A worker that is stopped keeps nobody from signalling, and goes on when it is let go; another one may take its runs meanwhile. */
export async function stopWorker(rig: Rig): Promise<{ acks: number }> {
  const ledger = new Ledger({ prefix: `stopped-${Date.now()}`, runs: 6, signals: 16 });
  rig.worker.signal("SIGSTOP");
  const finished = finish(rig.client, ledger);
  await until(() => ledger.acks >= 6 * 17, { what: () => `signals to a stopped worker's runs; ${ledger.acks} were taken` });
  rig.worker.signal("SIGCONT");
  await finished;
  await provePromises(rig, ledger);
  return { acks: ledger.acks };
}

/** The server is stopped for longer than its peers wait for a sign of life, or shorter. */
export async function stopServer(rig: Rig, ms: number): Promise<{ acks: number }> {
  const ledger = new Ledger({ prefix: `paused-${Date.now()}`, runs: 6, signals: 24 });
  const finished = finish(rig.client, ledger);
  await until(() => ledger.acks >= 30);
  rig.server.process.signal("SIGSTOP");
  await Bun.sleep(ms);
  rig.server.process.signal("SIGCONT");
  await finished;
  await provePromises(rig, ledger);
  return { acks: ledger.acks };
}

/** Two servers on one folder: the second says why not and ends, the first goes on. */
export async function twoServers(rig: Rig): Promise<string> {
  const { code, stderr } = await rig.hop.run([
    "server",
    "start",
    "--data",
    rig.server.data,
    "--listen",
    "127.0.0.1:0",
    "--http",
    "127.0.0.1:0",
  ]);
  if (code === 0 || !stderr.includes(rig.server.data)) throw new Error(`The second server ended with ${code}: ${stderr}`);
  const ledger = new Ledger({ prefix: `first-${Date.now()}`, runs: 2, signals: 4 });
  await finish(rig.client, ledger);
  return stderr.split("\n").find((line) => line.startsWith("error:")) ?? "";
}

/** Stop, kill, another port, another address: ready within the bound each time, and a run that waits goes on. */
export async function restarts(): Promise<Record<string, number>> {
  await using hop = new Cluster();
  const figures: Record<string, number> = {};
  const base = [
    "server",
    "start",
    "--ready-line",
    "--data",
    join(hop.folder, "data"),
    "--worker",
    "--activities",
    new URL("guest/activities.ts", import.meta.url).pathname,
  ];
  const start = async (listen: string, http: string): Promise<{ process: HopProcess; address: string; http: string; ms: number }> => {
    const begun = performance.now();
    const process = hop.launch([...base, "--listen", listen, "--http", http]);
    const [, address = "", other = ""] = await process.line(/^ready grpc=(\S+) http=(\S+)$/m);
    return { process, address, http: other, ms: performance.now() - begun };
  };
  const env = (address: string) => ({ env: { HOP_SERVER: address } });
  let up = await start("127.0.0.1:0", "127.0.0.1:0");
  await hop.expectOk(["deploy", new URL("guest/workflows.ts", import.meta.url).pathname], env(up.address));
  await hop.expectOk(["run", "tally", "--input", '{"count":5}', "--instance", "waiting"], env(up.address));
  const steps = ["first", "stop", "kill", "port", "address"];
  for (const [i, step] of steps.entries()) {
    if (step === "kill") await up.process.kill();
    else if (step !== "first") {
      const code = await up.process.stop();
      if (code !== 0) throw new Error(`A server that was asked to stop ended with ${code}: ${up.process.stderr}`);
    }
    if (step === "stop" || step === "kill") up = await start(up.address, up.http);
    if (step === "port") up = await start("127.0.0.1:0", "127.0.0.1:0");
    if (step === "address") up = await start("127.0.0.2:0", "127.0.0.2:0");
    figures[step] = Math.round(up.ms);
    if (up.ms > readyMsMax) throw new Error(`After ${step} the server was ready in ${Math.round(up.ms)} ms, want at most ${readyMsMax}`);
    await hop.expectOk(["workflow", "signal", "waiting", "add", "--input", String(i + 1)], env(up.address));
  }
  const result = await hop.expectOk(["workflow", "result", "waiting"], env(up.address));
  if (result.trim() !== "15") throw new Error(`The run that waited through all restarts gave ${result}, want 15`);
  return figures;
}

/** Jumps of the wall clock, in the notation of libfaketime: offsets from the real time. */
export const jumps = ["-3600", "+3600", "+1", "-1", "+2", "-90", "+0"] as const;

/** The server's wall clock jumps again and again while a run sleeps: it wakes once, and its history never goes back in time. */
export async function clockJumps(sleepMs: number): Promise<{ wokeMs: number }> {
  await using hop = new Cluster();
  const offset = join(hop.folder, "offset");
  const notes = join(hop.folder, "notes");
  writeFileSync(offset, "+0\n");
  const env = {
    LD_PRELOAD: faketimeLibrary as string,
    FAKETIME_TIMESTAMP_FILE: offset,
    FAKETIME_NO_CACHE: "1",
    FAKETIME_DONT_FAKE_MONOTONIC: "1",
    DONT_FAKE_MONOTONIC: "1",
  };
  await expectFaked(hop, env, offset);
  await using rig = await Rig.up({ env }, hop);
  const begun = performance.now();
  await rig.client.start("nap", { ms: sleepMs, file: notes, line: "woke" }, { instance: "sleeper" });
  const handle = rig.client.handle({ instance: "sleeper" });
  let next = 0;
  const jumping = setInterval(() => writeFileSync(offset, `${jumps[next++ % jumps.length]}\n`), Math.max(sleepMs / 9, 50));
  try {
    await handle.result();
  } finally {
    clearInterval(jumping);
  }
  const wokeMs = performance.now() - begun;
  const lines = readFileSync(notes, "utf8").trim().split("\n");
  // A clock that is behind is caught up with at no more than twice the speed of time.
  if (wokeMs < sleepMs / 2 - 500) throw new Error(`The run woke after ${wokeMs} ms, want at least half of its ${sleepMs} ms`);
  if (lines.length !== 1) throw new Error(`The run woke ${lines.length} times`);
  const history = await provenHistory(rig, "sleeper");
  const fired = history.filter(({ event }) => event.kind === EventKind.timerFired).length;
  if (fired !== 1) throw new Error(`The timer fired ${fired} times`);
  return { wokeMs: Math.round(wokeMs) };
}

/** Throws unless the file really steers the clock of a process. */
async function expectFaked(hop: Cluster, env: Readonly<Record<string, string>>, offset: string): Promise<void> {
  writeFileSync(offset, "-7200\n");
  const server = await hop.server({ data: "elsewhere", env });
  const [, time = ""] = await server.process.line(/^\{"time":"([^"]+)"/m);
  await server.kill();
  writeFileSync(offset, "+0\n");
  const behindMs = Date.now() - Date.parse(time);
  if (behindMs < 7_000_000)
    throw new Error(`The faked clock of the server is ${behindMs} ms behind, want two hours: libfaketime has no effect`);
}
