/**
 * C5: what clients see of a split and of a merge under load: the times of starts that are
 * acknowledged while it goes on, against those shortly before.
 */

import { now } from "./clock.ts";
import { type Cluster, eventually, withCluster } from "./cluster-product.ts";
import { freshName, pause, payload } from "./load.ts";
import { quantile, type Report } from "./result.ts";
import type { Workload } from "./workload.ts";

const nodes = 3;
const callers = 8;
/** Each caller's pause between two starts: the load is steady and does not fill two cores, on which waits would be of the load. */
const gapMs = 100;
/** Splits, and merges, for each repetition: few starts are under way during one. */
const changesEach = 3;
/** What begins so long before a change begins, or after it ended, counts as during it. */
const aroundMs = 100;
const quietMs = 1500;

interface Sample {
  readonly begunMs: number;
  readonly ms: number;
}

/** Starts, at a steady pace, until it is stopped. */
class SteadyLoad {
  readonly samples: Sample[] = [];
  private readonly callers: Promise<void>[];
  private isOver = false;

  constructor(cluster: Cluster) {
    this.callers = Array.from({ length: callers }, async (_, i) => {
      const { client } = cluster.nodes[i % cluster.nodes.length] as (typeof cluster.nodes)[number];
      while (!this.isOver) {
        const begunMs = now();
        await client.start("steps", { n: 1, payload }, { instance: freshName("steady") });
        this.samples.push({ begunMs, ms: now() - begunMs });
        await pause(gapMs);
      }
    });
  }

  /** Times of the starts that were under way between the two moments. */
  within(fromMs: number, toMs: number): number[] {
    return this.samples.filter(({ begunMs, ms }) => begunMs + ms >= fromMs && begunMs <= toMs).map(({ ms }) => ms);
  }

  async stop(): Promise<void> {
    this.isOver = true;
    await Promise.all(this.callers);
  }
}

interface Seen {
  readonly before: number[];
  readonly during: number[];
  readonly tookMs: number;
}

async function watched(load: SteadyLoad, change: () => Promise<number>): Promise<Seen> {
  await pause(quietMs);
  const begunMs = now();
  const tookMs = await change();
  const endedMs = now();
  await pause(aroundMs + gapMs);
  const during = load.within(begunMs - aroundMs, endedMs + aroundMs);
  return { before: load.within(begunMs - quietMs, begunMs - aroundMs), during, tookMs };
}

function tell(report: Report, what: string, seen: readonly Seen[]): void {
  const all = (of: (each: Seen) => readonly number[]) => seen.flatMap((each) => [...of(each)]);
  report.quantiles(
    "C5",
    `${what}_before`,
    all(({ before }) => before),
  );
  report.quantiles(
    "C5",
    `${what}_during`,
    all(({ during }) => during),
  );
  const longest = seen.map(({ during }) => Math.max(...during));
  report.value("C5", `${what}_longest`, quantile(longest, 0.5) as number, "ms", { n: seen.length, max: Math.round(Math.max(...longest)) });
  report.value(
    "C5",
    `${what}_took`,
    quantile(
      seen.map(({ tookMs }) => tookMs),
      0.5,
    ) as number,
    "ms",
    { n: seen.length },
  );
}

/** Splits the first shard and merges it again, a few times. */
export const keyChanges: Workload = ({ scale, report }) =>
  withCluster({ nodes, workers: 1 }, async (cluster) => {
    const load = new SteadyLoad(cluster);
    const splits: Seen[] = [];
    const merges: Seen[] = [];
    try {
      await pause(quietMs);
      for (let i = 0; i < changesEach * scale.repetitions; i++) {
        splits.push(await watched(load, () => eventually("a split", () => cluster.change(cluster.client.cluster.split({ shard: 1 })))));
        await cluster.settled(nodes);
        merges.push(await watched(load, () => eventually("a merge", () => cluster.change(cluster.client.cluster.merge(1)))));
        await cluster.settled(nodes);
      }
    } finally {
      await load.stop();
    }
    tell(report, "split", splits);
    tell(report, "merge", merges);
  });
