/** What a workload is, how much of it is wanted, and what measures the CPU time that it takes. */
import { now } from "./clock.ts";
import { cpuMs } from "./process-usage.ts";
import { type Config, type Member, Product } from "./product.ts";
import type { Report } from "./result.ts";

/** How much is measured. */
export interface Scale {
  readonly samples: number;
  /** Length of each closed loop. */
  readonly seconds: number;
  readonly repetitions: number;
  readonly events: number;
  /** Runs asleep at one time, in rising order. */
  readonly sleepers: readonly number[];
  /** Time for the processes to come to rest before memory is read. */
  readonly restMs: number;
  /** Time over which the CPU use of a process at rest is read. */
  readonly idleMs: number;
  /** Shards at rest on one node. */
  readonly idleShards: number;
  /** Events in the log when a node is started again, in rising order. */
  readonly logEvents: readonly number[];
}

export const fullScale: Scale = {
  samples: 500,
  seconds: 20,
  repetitions: 5,
  events: 2000,
  sleepers: [10_000, 100_000],
  restMs: 5000,
  idleMs: 10_000,
  idleShards: 500,
  logEvents: [10_000, 100_000, 1_000_000],
};

export const quickScale: Scale = {
  samples: 200,
  seconds: 5,
  repetitions: 3,
  events: 1000,
  sleepers: [10_000],
  restMs: 2000,
  idleMs: 3000,
  idleShards: 100,
  logEvents: [10_000, 100_000],
};

export interface Setting {
  readonly config: Config;
  readonly scale: Scale;
  readonly report: Report;
}

export type Workload = (setting: Setting) => Promise<void>;

/** Runs `measure` on a product with fresh data, which is gone afterwards. */
export async function withProduct(config: Config, measure: (product: Product) => Promise<void>): Promise<void> {
  await using product = await Product.up(config);
  await measure(product);
}

export interface Usage {
  /** CPU milliseconds by role, the benchmark's own as `client`. */
  readonly cpuMs: Readonly<Record<string, number>>;
  readonly totalMs: number;
  readonly wallMs: number;
}

/** CPU time that the product and its client take from here until the returned function is called. */
export function measureCpu(product: Product): () => Usage {
  const members = product.members();
  const before = members.map(({ pid }) => cpuMs(pid));
  const own = process.cpuUsage();
  const begunMs = now();
  return () => {
    const taken: Record<string, number> = {};
    members.forEach(({ role, pid }, i) => {
      taken[role] = (taken[role] ?? 0) + cpuMs(pid) - (before[i] as number);
    });
    const { user, system } = process.cpuUsage(own);
    taken.client = (user + system) / 1000;
    return { cpuMs: taken, totalMs: Object.values(taken).reduce((sum, each) => sum + each, 0), wallMs: now() - begunMs };
  };
}

/** Microseconds of CPU per unit of work: the sum, and each role's share as text. */
export function reportCpu(
  report: Report,
  workload: string,
  what: { metric: string; usage: Usage; count: number; extra?: Record<string, string | number> },
): void {
  const { metric, usage, count, extra = {} } = what;
  const shares = Object.entries(usage.cpuMs).map(([role, ms]) => `${role}:${Math.round((ms * 1000) / count)}`);
  report.value(workload, metric, (usage.totalMs * 1000) / count, "µs", { ...extra, shares: shares.join(" ") });
}

/** Roles under which other systems report: the worker with its V8 process is the app. */
export const peerRole = (member: Member): string => (member.role === "server" ? "server" : "app");
