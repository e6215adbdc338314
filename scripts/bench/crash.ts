/**
 * W8: the server is killed 200 ms before 1,000 sleeping runs are due, and started again at once.
 * All times count from the kill.
 */
import { now } from "./clock.ts";
import { closedLoop, freshName, pause, payload, waitUntil } from "./load.ts";
import { median } from "./result.ts";
import { type Workload, withProduct } from "./workload.ts";

const sleepers = 1000;
/** Time for all runs to fall asleep. */
const leadMs = 8000;
const killBeforeDueMs = 200;

export const crashRecovery: Workload = ({ config, report }) =>
  withProduct(config, async (product) => {
    const { marks } = product;
    const until = Date.now() + leadMs;
    await closedLoop({ concurrency: 50, count: sleepers }, () => {
      const id = freshName("sleeper");
      return product.start("sleeper", id, { id, until, payload });
    });
    const count = (k: string) => marks.all(k).length;
    await waitUntil(() => count("sleeping") >= sleepers, {
      withinMs: leadMs,
      what: () => `${sleepers} sleeping runs, ${count("sleeping")} are`,
    });
    await pause(until - Date.now() - killBeforeDueMs);
    const early = count("woke");
    const killed = now();
    const ready = await product.crash();
    const woken = () => new Set(marks.all("woke").map(({ id }) => id)).size;
    await waitUntil(() => count("woke") >= sleepers && woken() >= sleepers, { what: () => `${sleepers} runs to wake, ${woken()} did` });
    const firstWake = new Map<string, number>();
    for (const { id, t } of marks.all("woke")) if (id !== undefined && !firstWake.has(id)) firstWake.set(id, t - killed);
    const times = [...firstWake.values()].sort((a, b) => a - b);
    const last = times.at(-1) as number;
    const extra = { target: "server", n: times.length, early };
    report.value("W8", "ready_after_kill", ready - killed, "ms", extra);
    report.value("W8", "first_resume", times[0] as number, "ms", extra);
    report.value("W8", "median_resume", median(times) as number, "ms", extra);
    report.value("W8", "all_resumed", last, "ms", extra);
    report.value("W8", "all_resumed_after_ready", last - (ready - killed), "ms", extra);
    // More messages than runs: an activity that had begun when the server died was executed again.
    report.value("W8", "woke_distinct", firstWake.size, "workflows", { ...extra, messages: count("woke") });
  });
