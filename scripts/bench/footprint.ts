/** W6 and W7: what the product takes at rest and with many sleeping runs, how large it is and how fast it starts. */
import { rmSync, statSync } from "node:fs";
import { now } from "./clock.ts";
import { closedLoop, freshName, pause, payload, waitUntil } from "./load.ts";
import { cpuMs, diskMib, memoryMib } from "./process-usage.ts";
import { executable, freshFolder, type Product, ServerProcess } from "./product.ts";
import { peerRole, type Setting, type Workload, withProduct } from "./workload.ts";

const concurrency = 50;
const anHourMs = 3_600_000;

interface Memory {
  rss: number;
  pss: number;
}

/** MiB by role, `v8` apart and within `app`. */
function memoryByRole(product: Product): Map<string, Memory> {
  const found = new Map<string, Memory>();
  for (const member of product.members()) {
    const { rss, pss } = memoryMib(member.pid);
    for (const role of member.role === "v8" ? ["app", "v8"] : [peerRole(member)]) {
      const sum = found.get(role) ?? { rss: 0, pss: 0 };
      found.set(role, { rss: sum.rss + rss, pss: sum.pss + pss });
    }
  }
  return found;
}

function reportMemory({ report }: Setting, state: string, memory: ReadonlyMap<string, Memory>): void {
  for (const [role, { rss, pss }] of memory) {
    report.value("W6", `rss_${role}`, rss, "MiB", { state });
    report.value("W6", `pss_${role}`, pss, "MiB", { state });
  }
}

/** Share of one core that each process takes while nothing is asked of it. */
async function reportRest({ report, scale }: Setting, product: Product, metric: string): Promise<void> {
  const members = product.members();
  const before = members.map(({ pid }) => cpuMs(pid));
  const begun = now();
  await pause(scale.idleMs);
  const wallMs = now() - begun;
  members.forEach(({ role, pid }, i) => {
    report.value("W6", `${metric}_${role}`, ((cpuMs(pid) - (before[i] as number)) / wallMs) * 100, "%");
  });
}

/** Memory and CPU, idle and with many runs asleep for an hour; a run counts as asleep when its first activity is done. */
export const sleepingRuns: Workload = (setting) =>
  withProduct(setting.config, async (product) => {
    await pause(setting.scale.restMs);
    const idle = memoryByRole(product);
    reportMemory(setting, "idle", idle);
    await reportRest(setting, product, "idle_cpu");
    let asleep = 0;
    for (const count of setting.scale.sleepers) {
      await fallAsleep(setting, product, { asleep, count });
      asleep = count;
      await pause(setting.scale.restMs * 2);
      const state = `${count} sleeping`;
      const memory = memoryByRole(product);
      reportMemory(setting, state, memory);
      const above = (memory.get("server")?.rss ?? 0) - (idle.get("server")?.rss ?? 0);
      setting.report.value("W6", "rss_server_above_idle", above, "MiB", { state });
      await reportRest(setting, product, "sleeping_cpu");
      setting.report.value("W6", "disk", diskMib(product.dataFolder), "MiB", { state });
    }
  });

async function fallAsleep({ report }: Setting, product: Product, target: { asleep: number; count: number }): Promise<void> {
  const more = target.count - target.asleep;
  const begun = now();
  const { done, ms } = await closedLoop({ concurrency, count: more }, () => {
    const id = freshName("sleeper");
    return product.start("sleeper", id, { id, ms: anHourMs, payload });
  });
  report.value("W6", "sleepers_started_per_s", (done / ms) * 1000, "1/s", { n: done });
  const reached = () => product.marks.all("sleeping").length;
  await waitUntil(() => reached() >= target.count, { withinMs: 300_000, what: () => `${target.count} sleeping runs, ${reached()} are` });
  report.value("W6", "sleepers_reached_sleep_per_s", (more / (now() - begun)) * 1000, "1/s", { n: done });
}

const starts = 3;
const settleMs = 3000;

/** Start of the process → its ready line, on empty and on existing data. The native parts lie in the cache already. */
export const serverStart: Workload = async ({ config, report }) => {
  for (let i = 0; i < starts; i++) {
    const folder = freshFolder();
    for (const state of ["empty", "existing"]) {
      const server = await ServerProcess.start(config, folder);
      report.value("W7", "server_ready", server.readyMs, "ms", { state, ready: "ready line" });
      if (state === "existing") {
        await pause(settleMs);
        report.value("W7", "rss_server", memoryMib(server.child.pid).rss, "MiB", { state: "started 3 s ago" });
      }
      await server.stop();
    }
    rmSync(folder, { recursive: true, force: true });
  }
  report.value("W7", "size_server_binary", statSync(executable).size / 2 ** 20, "MiB");
};
