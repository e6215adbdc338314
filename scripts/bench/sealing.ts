/**
 * S1: what sealing costs, on one node that seals into a folder on the same disk.
 *
 * - `p99_ratio`: two servers, one of which seals, take the same commits in turns, so that both see the same machine. It
 *   seals each megabyte, 64 times as often as it does by itself, so that the work of several seals falls into each turn.
 * - `cpu_of_sealing`: commits come in a burst, and are sealed at one go when they are old enough, while nothing
 *   else happens: all CPU of the server until then but for what it takes at rest, reading the log, objects, uploads and states included. What
 *   a server that does not seal takes after the same burst is taken off: the engine goes on compiling for it, and states are saved.
 *
 * A commit is a signal of 100 bytes to one of 100 runs that nobody executes, acknowledged as durable: one event.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { HopClient } from "#sdk/client";
import { now } from "./clock.ts";
import { closedLoop, freshName, type LoopOptions, pause, payload, waitUntil } from "./load.ts";
import { cpuMs } from "./process-usage.ts";
import { addressIn, type Child, deployTo, freshFolder, readyLine, spawn } from "./product.ts";
import { median, quantile } from "./result.ts";
import type { Setting, Workload } from "./workload.ts";

const runs = 100;
const concurrency = 16;
/** Of one server, in each round. */
const turnSeconds = 5;
const warmUpSeconds = 5;
/** Two sizes: the fewer are sealed at one go, the more of it is the engine compiling what seals, which it does anew each time. */
const bursts = [20_000, 50_000];
const burstConcurrency = 100;
/** A burst is over before it is sealed. */
const burstSealAge = "30s";
const atRestMs = 6000;
const workload = "S1";

class Side implements AsyncDisposable {
  readonly folder: string;
  private readonly child: Child;
  private readonly client: HopClient;
  private readonly names = Array.from({ length: runs }, () => freshName("sealed"));
  private made = 0;

  private constructor(child: Child, folder: string, grpc: string) {
    this.child = child;
    this.folder = folder;
    this.client = HopClient.connect({ address: grpc });
  }

  static async up(more: (folder: string) => readonly string[]): Promise<Side> {
    const folder = freshFolder();
    const listen = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "warn", "--ready-line"];
    const child = spawn(["server", "start", "--data", join(folder, "data"), ...listen, ...more(folder)], folder, {});
    const { line } = await readyLine(child, "server");
    const side = new Side(child, folder, addressIn(line, "grpc"));
    await deployTo(addressIn(line, "grpc"), folder);
    for (const name of side.names) await side.client.start("counter", { key: name, n: 1e9 }, { instance: name });
    return side;
  }

  /** Milliseconds until each was acknowledged. */
  async commits(loop: LoopOptions): Promise<number[]> {
    const times: number[] = [];
    await closedLoop(loop, async () => {
      const name = this.names[this.made++ % runs] as string;
      const begun = now();
      await this.client.handle({ instance: name }).signal("count", { payload });
      times.push(now() - begun);
    });
    return times;
  }

  cpuMs(): number {
    return cpuMs(this.child.pid);
  }

  /** Events that are sealed, by the newest manifest. */
  sealedEvents(): number {
    const dir = join(this.folder, "objects");
    const manifests = readdirSync(dir, { recursive: true, encoding: "utf8" }).filter((name) => /manifest\/s.*\.json$/.test(name));
    const newest = manifests.sort().at(-1);
    if (newest === undefined) return 0;
    const { segments } = JSON.parse(readFileSync(join(dir, newest), "utf8")) as { segments: { rows: number }[] };
    return segments.reduce((sum, { rows }) => sum + rows, 0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.client.close();
    this.child.kill("SIGKILL");
    await this.child.exited;
  }
}

const sealing = (options: readonly string[]) => (folder: string) => ["--object-store", `file://${join(folder, "objects")}`, ...options];

export const sealingCost: Workload = async (setting) => {
  await commitRatio(setting);
  await cpuOfSealing(setting);
};

async function commitRatio({ scale, report }: Setting): Promise<void> {
  await using off = await Side.up(() => []);
  await using on = await Side.up(sealing(["--seal-size", "1MiB"]));
  const sides = { off, on };
  for (const side of [off, on]) await side.commits({ concurrency, seconds: warmUpSeconds });
  const ratios: number[] = [];
  const before = on.sealedEvents();
  let made = 0;
  for (let round = 0; round < 2 * scale.repetitions; round++) {
    const p99 = { off: 0, on: 0 };
    // Who begins changes: the disk and the machine drift.
    for (const which of round % 2 === 0 ? (["off", "on"] as const) : (["on", "off"] as const)) {
      const times = await sides[which].commits({ concurrency, seconds: turnSeconds });
      if (which === "on") made += times.length;
      report.quantiles(workload, "commit", times, { sealing: which, round });
      p99[which] = quantile(times, 0.99) as number;
    }
    ratios.push(p99.on / p99.off);
  }
  const sealed = on.sealedEvents() - before;
  if (sealed < made / 2) throw new Error(`Only ${sealed} of ${made} events were sealed meanwhile`);
  report.value(workload, "p99_ratio", median(ratios) as number, "×", { rounds: ratios.length, made, sealed });
}

async function cpuOfSealing({ scale, report }: Setting): Promise<void> {
  await using off = await Side.up(() => []);
  await using on = await Side.up(sealing(["--seal-age", burstSealAge]));
  for (const count of bursts) {
    for (let round = 0; round < scale.repetitions; round++) {
      const sealedBefore = on.sealedEvents();
      const sides: { side: Side; cpuBefore: number; begun: number }[] = [];
      for (const side of [off, on]) {
        await side.commits({ concurrency: burstConcurrency, count });
        sides.push({ side, cpuBefore: side.cpuMs(), begun: now() });
      }
      const isSealed = () => on.sealedEvents() - sealedBefore >= count;
      if (isSealed()) throw new Error(`A burst of ${count} took longer than ${burstSealAge}`);
      await waitUntil(isSealed, { everyMs: 200, what: () => "the burst to be sealed" });
      await pause(atRestMs);
      const used = sides.map(({ side, cpuBefore, begun }) => ({ side, ms: side.cpuMs() - cpuBefore, during: now() - begun }));
      const restBefore = used.map(({ side }) => side.cpuMs());
      await pause(atRestMs);
      const [without, withSealing] = used.map(({ side, ms, during }, i) => {
        const atRest = ((side.cpuMs() - (restBefore[i] as number)) / atRestMs) * during;
        return ((ms - atRest) * 1000) / count;
      }) as [number, number];
      report.value(workload, "cpu_of_sealing", withSealing - without, "µs", { round, events: count, without });
    }
  }
}
