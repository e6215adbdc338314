/** W1, W2 and W4: how long one start, one step and one signal take when nothing else happens. */
import { now } from "./clock.ts";
import { closedLoop, freshName, pause, payload, waitUntil } from "./load.ts";
import { measureCpu, reportCpu, type Workload, withProduct } from "./workload.ts";

/** Start → first line of the run's first activity, one run after the other. */
export const startLatency: Workload = ({ config, scale, report }) =>
  withProduct(config, async (product) => {
    const warmUp = Math.min(50, scale.samples >> 2);
    const accepted: number[] = [];
    const reached: number[] = [];
    for (let i = -warmUp; i < scale.samples; i++) {
      const id = freshName("one");
      const seen = product.marks.next(`step:${id}`);
      const begun = now();
      await product.start("one", id, { id, payload });
      const acceptedAt = now();
      const { t } = await seen;
      if (i < 0) continue;
      accepted.push(acceptedAt - begun);
      reached.push(t - begun);
    }
    report.quantiles("W1", "accept", accepted, { variant: "start" });
    report.quantiles("W1", "start_to_step", reached, { variant: "start" });
  });

const stepCount = 200;

/** One workflow of 200 steps, each of which begins when the last one is durable. */
export const stepLatency: Workload = ({ config, scale, report }) =>
  withProduct(config, async (product) => {
    const run = () => product.execute("steps", freshName("steps"), { n: stepCount, payload });
    await run();
    const usage = measureCpu(product);
    for (let i = 0; i < scale.repetitions; i++) {
      const begun = now();
      await run();
      report.value("W2", "ms_per_step", (now() - begun) / stepCount, "ms", { type: "steps", n: stepCount });
    }
    reportCpu(report, "W2", { metric: "cpu_per_step", usage: usage(), count: stepCount * scale.repetitions });
  });

/** Time that all runs wait before the first is signalled. */
const parkedMs = 2000;

/** Signal → first line of the activity that the waiting workflow then calls; each run is signalled once. */
export const signalLatency: Workload = ({ config, scale, report }) =>
  withProduct(config, async (product) => {
    const warmUp = 20;
    const ids = Array.from({ length: Math.min(scale.samples, 300) + warmUp }, () => freshName("waiter"));
    await closedLoop({ concurrency: 10, count: ids.length }, (i) => product.start("waiter", ids[i] as string, { id: ids[i] }));
    const parked = () => product.marks.all("parked").length;
    await waitUntil(() => parked() >= ids.length, { what: () => `${ids.length} waiting runs, ${parked()} are` });
    await pause(parkedMs);
    const times: number[] = [];
    for (const [i, id] of ids.entries()) {
      const seen = product.marks.next(`go:${id}`);
      const begun = now();
      await product.signal(id, "go", { payload });
      const { t } = await seen;
      if (i >= warmUp) times.push(t - begun);
    }
    report.quantiles("W4", "signal_to_resume", times);
  });
