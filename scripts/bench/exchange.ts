/** W9 and W10: what a run hands out and answers: chunks to a consumer, calls to clients and to other runs. */
import { now } from "./clock.ts";
import { freshName, payload } from "./load.ts";
import type { Product } from "./product.ts";
import { measureCpu, reportCpu, type Workload, withProduct } from "./workload.ts";

/** Chunks of runs that yield one after the other, each run to a consumer of its own; one run, and 20 at a time. */
export const streaming: Workload = (setting) =>
  withProduct(setting.config, async (product) => {
    await stream(product, { runs: 1, n: 200 });
    for (const runs of [1, 20]) {
      const { chunks, ms, usage } = await stream(product, { runs, n: setting.scale.events });
      const extra = { runs, n: setting.scale.events };
      setting.report.value("W9", "chunks_per_s", (chunks / ms) * 1000, "1/s", extra);
      reportCpu(setting.report, "W9", { metric: "cpu_per_chunk", usage, count: chunks, extra });
    }
  });

async function stream(product: Product, { runs, n }: { readonly runs: number; readonly n: number }) {
  const ids = Array.from({ length: runs }, () => freshName("streamer"));
  for (const id of ids) await product.start("streamer", id, { n, payload });
  const usage = measureCpu(product);
  const begun = now();
  const taken = await Promise.all(ids.map((id) => consume(product, id)));
  const chunks = taken.reduce((sum, count) => sum + count, 0);
  if (chunks !== runs * n) throw new Error(`Consumers were given ${chunks} chunks, want ${runs * n}`);
  return { chunks, ms: now() - begun, usage: usage() };
}

async function consume(product: Product, id: string): Promise<number> {
  const run = product.client.handle({ instance: id });
  const chunks = run.stream();
  await run.signal("go");
  let count = 0;
  for await (const _chunk of chunks) count++;
  return count;
}

const callCount = 200;

/** A method's call and its answer: for a client, and for another run that makes one after the other. */
export const calling: Workload = ({ config, scale, report }) =>
  withProduct(config, async (product) => {
    const id = freshName("answerer");
    await product.start("answerer", id, null);
    const run = product.client.handle({ instance: id });
    const warmUp = 50;
    const times: number[] = [];
    for (let i = -warmUp; i < scale.samples; i++) {
      const begun = now();
      await run.call("echo", payload);
      if (i >= 0) times.push(now() - begun);
    }
    report.quantiles("W10", "call_to_answer", times, { by: "client" });
    const between = () => product.execute("caller", freshName("caller"), { to: `default:${id}`, n: callCount, payload });
    await between();
    for (let i = 0; i < scale.repetitions; i++) {
      const begun = now();
      await between();
      report.value("W10", "ms_per_call", (now() - begun) / callCount, "ms", { by: "run", n: callCount });
    }
  });
