/** W3 and W5: how much is done in a second by many runs, and by one run. */
import { now } from "./clock.ts";
import { closedLoop, freshName, pause, payload } from "./load.ts";
import type { Product } from "./product.ts";
import { measureCpu, reportCpu, type Setting, type Workload, withProduct } from "./workload.ts";

const concurrency = 50;
const warmUpSeconds = 3;

/** Runs of one step and of ten, 50 at a time; each caller waits for the result. */
export const runThroughput: Workload = ({ config, scale, report }) =>
  withProduct(config, async (product) => {
    for (const n of [1, 10]) {
      const run = () => product.execute("steps", freshName("run"), { n, payload });
      await closedLoop({ concurrency, seconds: warmUpSeconds }, run);
      const usage = measureCpu(product);
      const { done, ms } = await closedLoop({ concurrency, seconds: scale.seconds }, run);
      const used = usage();
      const cpu = Object.entries(used.cpuMs).map(([role, spent]) => `${role}:${Math.round((spent / used.wallMs) * 100)}%`);
      const extra = { type: "steps", n, concurrency };
      report.value("W3", "workflows_per_s", (done / ms) * 1000, "1/s", { ...extra, done, cpu: cpu.join(" ") });
      report.value("W3", "steps_per_s", ((done * n) / ms) * 1000, "1/s", extra);
      reportCpu(report, "W3", { metric: "cpu_per_step", usage: used, count: done * n, extra });
      await pause(scale.restMs);
    }
  });

/** One run that takes signals as fast as they come, sent one at a time and 50 at a time. */
export const eventThroughput: Workload = (setting) =>
  withProduct(setting.config, async (product) => {
    for (const inFlight of [1, concurrency]) await feed(setting, product, inFlight);
  });

async function feed({ scale, report }: Setting, product: Product, inFlight: number): Promise<void> {
  const key = freshName("counter");
  const n = scale.events;
  await product.start("counter", key, { key, n });
  await pause(scale.restMs / 4);
  const counted = product.marks.next(`counted:${key}`, 300_000);
  const usage = measureCpu(product);
  const begun = now();
  const { done, ms } = await closedLoop({ concurrency: inFlight, count: n }, (i) => product.signal(key, "count", { i, payload }));
  const { t } = await counted;
  const extra = { concurrency: inFlight, n };
  report.value("W5", "events_accepted_per_s", (done / ms) * 1000, "1/s", extra);
  report.value("W5", "events_processed_per_s", (n / (t - begun)) * 1000, "1/s", extra);
  reportCpu(report, "W5", { metric: "cpu_per_event", usage: usage(), count: n, extra });
}
