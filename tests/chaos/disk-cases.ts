/** Disks that are full, cut a write in two, lie, or lose what was not flushed. */
import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { HopClient, HopError } from "#sdk/client";
import { Cluster, executable, HopProcess, until } from "#tests/cluster";
import { Mount, tool } from "./host.ts";
import { drive, finish, Ledger } from "./ledger.ts";
import { provePromises } from "./proof.ts";
import { Rig } from "./rig.ts";
import { Strace, straceArgs, writeCalls } from "./strace.ts";

/** Bytes of the log that hold records: what lies behind them is zeros. */
function recordBytes(path: string): number {
  const bytes = readFileSync(path);
  let end = bytes.length;
  while (end > 0 && bytes[end - 1] === 0) end--;
  return end;
}

/** Every read of a run that a client can make. */
async function readEverything(rig: Rig, run: string): Promise<void> {
  await rig.client.describe(run);
  // The list is brought up to date first, and its index lies on the same disk.
  await rig.client.list({}).catch((error: unknown) => {
    if (!(error instanceof HopError) || error.reason !== "NO_SPACE") throw error;
  });
  let events = 0;
  for await (const chunk of rig.client.history(run)) events += chunk.event.length;
  if (events === 0) throw new Error(`The history of ${run} is empty`);
  await rig.hop.expectOk(["audit", run], { server: rig.server });
}

/** A real disk of `megabytes` fills up: refusals by reason, reads go on, and it recovers when there is space. */
export async function fullDisk(megabytes: number): Promise<{ refused: number; acks: number }> {
  const hop = new Cluster();
  await using disk = await Mount.make(join(hop.folder, "small"), "-t", "tmpfs", "-o", `size=${megabytes}m`, "none");
  await using rig = await Rig.up({ data: "small/data" }, hop);
  const known = new Ledger({ prefix: "known", runs: 1, signals: 4 });
  await finish(rig.client, known);
  const ledger = new Ledger({ prefix: "filler", runs: megabytes * 20, signals: 2, fillerBytes: 60_000 });
  const driven = drive(rig.client, ledger);
  await until(() => ledger.refused >= 20, { what: () => `refusals; ${ledger.acks} requests were taken` });
  await readEverything(rig, "default:known-0");
  const error = await rig.client.start("tally", { count: 1 }, { instance: "one-more" }).catch((e: unknown) => e);
  if (!(error instanceof HopError) || error.reason !== "NO_SPACE")
    throw new Error(`A start on a full disk gave ${String(error)}, want NO_SPACE`);
  const shown = await hop.run(["run", "tally", "--input", '{"count":1}', "-o", "json"], { server: rig.server });
  if (shown.code !== 6 || !shown.stderr.includes("NO_SPACE"))
    throw new Error(`hop run on a full disk ended with ${shown.code}: ${shown.stderr}`);
  const refusedWhileFull = ledger.refused;
  await tool("mount", "-o", `remount,size=${megabytes * 8}m`, disk.path);
  await driven;
  await finish(rig.client, ledger);
  if (rig.server.process.code !== undefined) throw new Error("The server ended on a full disk");
  await provePromises(rig, known);
  const sample = new Ledger({ prefix: "filler", runs: 5, signals: 2, fillerBytes: 60_000 });
  for (const instance of sample.runs.keys()) sample.runs.set(instance, ledger.runs.get(instance) as never);
  await provePromises(rig, sample);
  return { refused: refusedWhileFull, acks: ledger.acks };
}

/** The disk stays full by injection for as long as strace is there; the folder is not touched. */
export async function fullByInjection(rig: Rig): Promise<{ refused: number }> {
  await rig.untilLaidOut();
  const known = new Ledger({ prefix: `before-full-${Date.now()}`, runs: 1, signals: 4 });
  await finish(rig.client, known);
  const strace = await Strace.attach(rig.server.process.pid, {
    calls: writeCalls,
    paths: [rig.segment()],
    fault: "error=ENOSPC",
    when: "1+",
  });
  const ledger = new Ledger({ prefix: `full-${Date.now()}`, runs: 6, signals: 6 });
  let driven: Promise<number>;
  try {
    driven = drive(rig.client, ledger);
    // The first requests wait for the write that is tried again; a new one is refused.
    const client = rig.connect(0);
    let refusal: unknown;
    await until(() => {
      if (refusal === undefined) void client.start("tally", { count: 1 }).catch((error: unknown) => (refusal ??= error));
      return refusal !== undefined;
    });
    client.close();
    if (!(refusal instanceof HopError) || refusal.reason !== "NO_SPACE")
      throw new Error(`A start on a full disk gave ${String(refusal)}, want NO_SPACE`);
    if (ledger.acks > 0) throw new Error(`${ledger.acks} requests were acknowledged on a full disk`);
    await readEverything(rig, `default:${[...known.runs.keys()][0]}`);
  } finally {
    await strace[Symbol.asyncDispose]();
  }
  await driven;
  await finish(rig.client, ledger);
  await provePromises(rig, ledger);
  return { refused: ledger.refused + 1 };
}

/** A server that is asked to stop while its disk is full stops, and starts again when there is space. */
export async function stopWhileFull(rig: Rig): Promise<{ stopMs: number }> {
  await rig.untilLaidOut();
  const ledger = new Ledger({ prefix: `stop-full-${Date.now()}`, runs: 6, signals: 6 });
  const strace = await Strace.attach(rig.server.process.pid, {
    calls: writeCalls,
    paths: [rig.segment()],
    fault: "error=ENOSPC",
    when: "1+",
  });
  const client = rig.connect(0);
  const driven = drive(client, ledger);
  await strace.untilStruck();
  const begun = performance.now();
  const code = await rig.server.stop();
  const stopMs = Math.round(performance.now() - begun);
  if (code !== 0) throw new Error(`The server ended with ${code}: ${rig.server.process.stderr}`);
  client.close();
  await driven;
  await strace[Symbol.asyncDispose]();
  await rig.restart();
  await provePromises(rig, ledger);
  await finish(rig.client, ledger);
  return { stopMs };
}

/**
 * A write that really ends in the middle: the limit on the file's size lies `intoWrite` bytes
 * behind its records, so the disk takes part of the next write and the process dies of the rest.
 */
export async function tornWrite(rig: Rig, intoWrite: number): Promise<{ acks: number; readyMs: number }> {
  await rig.untilLaidOut();
  const { process } = rig.server;
  const ledger = new Ledger({ prefix: `torn-${intoWrite}`, runs: 6, signals: 24 });
  const client = rig.connect(0);
  const end = recordBytes(rig.segment());
  await tool("prlimit", "--pid", String(process.pid), `--fsize=${end + intoWrite}`);
  await drive(client, ledger);
  client.close();
  await until(() => process.code !== undefined, { what: "the server to end at the limit" });
  const { acks } = ledger;
  const readyMs = await rig.restart();
  await provePromises(rig, ledger);
  await finish(rig.client, ledger);
  await provePromises(rig, ledger);
  return { acks, readyMs };
}

/** A disk that says it wrote bytes and did not: later acknowledged records tell, and the server refuses to start. */
export async function lyingDisk(rig: Rig): Promise<string> {
  await rig.untilLaidOut();
  const ledger = new Ledger({ prefix: "lie", runs: 6, signals: 24 });
  {
    await using strace = await Strace.attach(rig.server.process.pid, {
      calls: ["pwrite64"],
      paths: [rig.segment()],
      fault: "retval=1000",
      when: "5",
    });
    await drive(rig.client, ledger);
    await strace.untilStruck();
  }
  await rig.server.kill();
  const refused = rig.server.launch();
  const code = await refused.exited;
  if (code === 0 || !refused.stderr.includes("wal-0000000001.log"))
    throw new Error(`A log with a hole was opened, or refused without naming it (code ${code}):\n${refused.stderr}`);
  const offline = await rig.hop.run(["audit", "--data", rig.server.data]);
  if (offline.code === 0) throw new Error("hop audit finds no fault in a log with a hole");
  return refused.stderr.split("\n").find((line) => line.startsWith("error:")) ?? "";
}

/** A start during which a call fails: it says why and leaves a folder that starts the next time. */
export async function faultAtStart(
  injection: { readonly calls: readonly string[]; readonly fault: string; readonly when: string },
  data: string,
): Promise<string> {
  await using hop = new Cluster();
  const folder = join(hop.folder, data);
  const paths = ["log", "log/wal-0000000001.log", "log/wal-0000000001.log.next"].map((name) => join(folder, name));
  const args = ["server", "start", "--ready-line", "--data", folder, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
  const env = { PATH: process.env.PATH, NO_COLOR: "1" };
  const struck = new HopProcess([...straceArgs({ ...injection, paths }, join(hop.folder, "calls")), executable, ...args], {
    cwd: hop.folder,
    env,
  });
  const outcome = await Promise.race([
    struck.exited,
    struck.line(/^ready grpc=/m).then(
      () => "ready" as const,
      () => struck.exited,
    ),
  ]);
  const said = struck.stderr.split("\n").find((line) => line.startsWith("error:")) ?? "";
  struck.signalGroup("SIGKILL");
  await struck.exited;
  if (outcome === 0) throw new Error("The server ended with 0 though its disk failed");
  if (outcome === 1 && !/EIO|ENOSPC|no space|disk/i.test(said))
    throw new Error(`The server does not say that its disk failed: ${struck.stderr}`);
  const server = await hop.server({ data });
  await hop.expectOk(["workflow", "list"], { server });
  return outcome === "ready" ? "ready all the same" : `code ${outcome}${said === "" ? "" : `: ${said}`}`;
}

/** What ext4 has pushed to its device at `cuts` moments, each started again and held against the promises made by then. */
export async function powerLoss(cuts: number, imageMegabytes = 256): Promise<{ acks: number[]; readyMs: number[] }> {
  const hop = new Cluster();
  const image = join(hop.folder, "image");
  await tool("truncate", "-s", `${imageMegabytes}M`, image);
  await tool("mkfs.ext4", "-q", "-F", image);
  // The journal commits by itself after five minutes only: what is on the device was put there by the server.
  await using _disk = await Mount.make(join(hop.folder, "disk"), "-o", "loop,commit=300", image);
  await using rig = await Rig.up({ data: "disk/data" }, hop);
  const acks: number[] = [];
  const readyMs: number[] = [];
  for (let cut = 0; cut < cuts; cut++) {
    const ledger = new Ledger({ prefix: `power-${cut}`, runs: 6, signals: 40 });
    const client = rig.connect(0);
    const driven = drive(client, ledger);
    await until(() => ledger.acks >= 20 + cut * 23);
    rig.server.process.signal("SIGSTOP");
    await until(() => readFileSync(`/proc/${rig.server.process.pid}/stat`, "utf8").split(" ")[2] === "T");
    await tool("cp", "--sparse=always", image, `${image}.${cut}`);
    client.close();
    await driven;
    acks.push(ledger.acks);
    readyMs.push(await startCopy(hop, `${image}.${cut}`, ledger));
    rig.server.process.signal("SIGCONT");
    await finish(rig.client, ledger);
  }
  return { acks, readyMs };
}

async function startCopy(hop: Cluster, image: string, ledger: Ledger): Promise<number> {
  const folder = image.replace("image", "copy-");
  await using _copy = await Mount.make(folder, "-o", "loop", image);
  const begun = performance.now();
  const server = await hop.server({ data: join(folder.slice(hop.folder.length + 1), "data") });
  const readyMs = performance.now() - begun;
  const client = HopClient.connect({ address: server.grpc });
  try {
    await provePromises({ hop, server, client }, ledger);
  } finally {
    client.close();
    await server.kill();
  }
  return readyMs;
}

/** A log of `megabytes`, its server killed: milliseconds until it is ready again, with its checkpoint and without. */
export async function largeLog(megabytes: number): Promise<{ bytes: number; checkpointMs: number; replayMs: number }> {
  await using rig = await Rig.up();
  const fillerBytes = 60_000;
  const runs = Math.ceil((megabytes << 20) / fillerBytes);
  const ledger = new Ledger({ prefix: "large", runs, signals: 1, fillerBytes });
  await finish(rig.client, ledger);
  await rig.server.kill();
  const checkpointMs = await rig.restart();
  await rig.server.kill();
  for (const name of ["checkpoint.db", "visibility.db"]) await tool("sh", "-c", `rm -f '${join(rig.server.data, name)}'*`);
  const replayMs = await rig.restart();
  const sample = new Ledger({ prefix: "large", runs: 3, signals: 1, fillerBytes });
  for (const instance of sample.runs.keys()) sample.runs.set(instance, ledger.runs.get(instance) as never);
  await provePromises(rig, sample);
  const bytes = [1, 2, 3, 4].reduce((sum, n) => sum + (existsSync(rig.segment(n)) ? statSync(rig.segment(n)).size : 0), 0);
  return { bytes, checkpointMs, replayMs };
}
