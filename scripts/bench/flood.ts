/** W11: a flood of messages through a channel to a run: kept, and reduced; and what of it is in the run's history. */
import { now } from "./clock.ts";
import { freshName, payload } from "./load.ts";
import type { Product } from "./product.ts";
import { measureCpu, reportCpu, type Workload, withProduct } from "./workload.ts";

/** Messages of one request, and requests that are under way at a time. */
const batch = 500;
const inFlight = 8;

export const flood: Workload = ({ config, scale, report }) =>
  withProduct(config, async (product) => {
    const messages = scale.events * 500;
    for (const reducer of ["none", "sum"] as const) {
      await run(product, { reducer, messages: 10_000 });
      const { ms, usage, historyBytes } = await run(product, { reducer, messages });
      const extra = { reducer, messages };
      report.value("W11", "messages_per_s", (messages / ms) * 1000, "1/s", extra);
      report.value("W11", "history_of_reader", historyBytes / 1000, "KB", extra);
      reportCpu(report, "W11", { metric: "cpu_per_message", usage, count: messages, extra });
    }
  });

async function run(product: Product, { reducer, messages }: { readonly reducer: "none" | "sum"; readonly messages: number }) {
  const name = freshName("flood");
  const { client } = product;
  const channel = await client.channels.open<unknown>(name, { reducer });
  await product.start(reducer === "none" ? "taker" : "summer", name, { channel: name });
  const usage = measureCpu(product);
  const begun = now();
  const all = Array.from({ length: batch }, (_, i) => (reducer === "none" ? { i, payload } : 1));
  let sent = 0;
  const send = async (): Promise<void> => {
    while (sent < messages) {
      sent += batch;
      await channel.sendAll(all);
    }
  };
  await Promise.all(Array.from({ length: inFlight }, send));
  await channel.close();
  const taken = await client.handle<number>({ instance: name }).result();
  const ms = now() - begun;
  if (taken !== sent) throw new Error(`A reader was given ${taken} of ${sent} messages`);
  return { ms, usage: usage(), historyBytes: await sizeOf(product, name) };
}

async function sizeOf({ client }: Product, instance: string): Promise<number> {
  let bytes = 0;
  for await (const { event } of client.handle({ instance }).history()) for (const one of event) bytes += one.length;
  return bytes;
}
