/** Clocks that are wrong, disks that fail, and power that goes, on the machines of a cluster under load. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Prng } from "#core/base";
import { Cluster, until } from "#tests/cluster";
import { faketimeLibrary, Mount, tool } from "../host.ts";
import { Strace, writeCalls } from "../strace.ts";
import { firstShard, type Outages, outagesSince, untilAllAnswered, warmUp } from "./cluster-cases.ts";
import { type Proven, proveCluster } from "./cluster-proof.ts";
import { type Machine, Machines } from "./machines.ts";
import { Workload } from "./workload.ts";

/** Offsets of a wall clock from the real time, in seconds. */
const offsets = [-3600, -5, -0.5, 0, 0.5, 5, 3600] as const;
const clockMs = 400;
/** How far the clocks are from each other at the start. */
const farSeconds = 3600;

const offsetText = (seconds: number) => `${seconds < 0 ? "" : "+"}${seconds}\n`;

/** The wall clocks of all machines jump, each by itself, while leaders are killed. */
export async function wrongClocks(jumps: number, seed: number): Promise<Proven> {
  const hop = new Cluster();
  const prng = new Prng(seed);
  const file = (machine: number) => join(hop.folder, `offset-${machine}`);
  for (const machine of [1, 2, 3]) writeFileSync(file(machine), offsetText((machine - 2) * farSeconds));
  const env = (machine: number) => ({
    LD_PRELOAD: faketimeLibrary as string,
    FAKETIME_TIMESTAMP_FILE: file(machine),
    FAKETIME_NO_CACHE: "1",
    FAKETIME_DONT_FAKE_MONOTONIC: "1",
    DONT_FAKE_MONOTONIC: "1",
  });
  await using machines = await Machines.up({ env, seed }, hop);
  expectFaked(machines);
  const workload = new Workload(machines, { prefix: "clocks", seed });
  await warmUp(workload);
  for (let i = 0; i < jumps; i++) {
    writeFileSync(file(1 + prng.below(3)), offsetText(offsets[prng.below(offsets.length)] as number));
    await Bun.sleep(clockMs);
    if (i % 5 !== 4) continue;
    // Whoever leads next begins where the one before had got to, whatever its own clock says.
    const leader = await machines.leader(firstShard);
    await leader.kill();
    await leader.restart();
  }
  await untilAllAnswered(workload, performance.now());
  return await proveCluster(machines, workload);
}

/** Throws unless the clocks of the nodes really are as far apart as they are told to be. */
function expectFaked({ all }: Machines): void {
  const times = all.map(({ process }) => Date.parse(/^\{"time":"([^"]+)"/m.exec(process.stderr)?.[1] ?? ""));
  const apartMs = Math.max(...times) - Math.min(...times);
  if (!(apartMs > farSeconds * 1000)) throw new Error(`The clocks are ${apartMs} ms apart: libfaketime has no effect`);
}

/** What the disk of a machine does for a while. */
export const diskFaults = { EIO: "error=EIO", ENOSPC: "error=ENOSPC", slow: "delay_enter=150ms" } as const;
export type DiskFault = keyof typeof diskFaults;

const segment = ({ data }: Machine) => join(data, "log", "wal-0000000001.log");

/** The leader's log can't be written, or only slowly. One whose disk failed ends by itself and is started again. */
export async function leadersDisk(machines: Machines, workload: Workload, fault: DiskFault, lastsMs: number): Promise<Outages> {
  await warmUp(workload);
  const leader = await machines.leader(firstShard);
  const strace = await Strace.attach(leader.process.pid, {
    calls: writeCalls,
    paths: [segment(leader)],
    fault: diskFaults[fault],
    when: "1+",
  });
  const struckMs = performance.now();
  try {
    await strace.untilStruck();
    if (fault === "EIO") await until(() => leader.process.code !== undefined, { what: "a node whose disk failed to end" });
    else await Bun.sleep(lastsMs);
  } finally {
    await strace[Symbol.asyncDispose]();
  }
  const outageMs = await outagesSince(workload, struckMs);
  if (fault === "EIO") await leader.restart();
  await machines.untilWhole();
  return { outageMs };
}

/** Which machines lose power. */
export type Victims = "leader" | "all";

/**
 * Machines lose power: their disks come back as what ext4 had pushed to the device. Where all of
 * them do at once, only what was durable when it was acknowledged is left.
 */
export async function powerLosses(losses: readonly Victims[], seed: number): Promise<Proven> {
  const hop = new Cluster();
  await using disks = new AsyncDisposableStack();
  const image = (machine: number, life: number) => join(hop.folder, `image-${machine}-${life}`);
  const disk = (machine: number, life: number) => join(hop.folder, `disk-${machine}-${life}`);
  for (const machine of [1, 2, 3]) {
    await tool("truncate", "-s", "256M", image(machine, 0));
    await tool("mkfs.ext4", "-q", "-F", image(machine, 0));
    // The journal commits by itself after five minutes only: what is on the device was put there by the node.
    disks.use(await Mount.make(disk(machine, 0), "-o", "loop,commit=300", image(machine, 0)));
  }
  await using machines = await Machines.up({ data: (machine) => join(disk(machine, 0), "data"), seed }, hop);
  const workload = new Workload(machines, { prefix: "power", seed });
  for (const [before, victims] of losses.entries()) {
    await warmUp(workload, 200);
    const struck = victims === "all" ? machines.all : [await machines.leader(firstShard)];
    for (const machine of struck) machine.process.signal("SIGSTOP");
    for (const machine of struck) {
      const { number } = machine;
      const last = Number(/-(\d+)\/data$/.exec(machine.data)?.[1]);
      await tool("cp", "--sparse=always", image(number, last), image(number, before + 1));
      await machine.kill();
      disks.use(await Mount.make(disk(number, before + 1), "-o", "loop,commit=300", image(number, before + 1)));
      machine.data = join(disk(number, before + 1), "data");
    }
    await Promise.all(struck.map((machine) => machine.restart()));
    await untilAllAnswered(workload, performance.now());
  }
  return await proveCluster(machines, workload);
}
