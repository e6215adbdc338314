/**
 * What a benchmark says: one line of JSON for each value, in a form that results of other systems
 * can be put beside: `{peer, config, run, workload, metric, value, unit, load1, …}`.
 */
import { loadavg } from "node:os";

/** Further fields: what tells two values of one metric apart, and what explains one. */
export type Extra = Readonly<Record<string, string | number>>;

export interface Result {
  readonly peer: string;
  readonly config: string;
  readonly run: number;
  readonly workload: string;
  readonly metric: string;
  /** null where the workload failed: `error` says why. */
  readonly value: number | null;
  readonly unit: string;
  /** Load average of the last minute. */
  readonly load1: number;
  readonly [extra: string]: string | number | null;
}

/** The value below which a share `q` of the others lies. Undefined where there are none. */
export function quantile(values: readonly number[], q: number): number | undefined {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
}

export const median = (values: readonly number[]): number | undefined => quantile(values, 0.5);

const rounded = (value: number) => Number(value.toPrecision(4));

export interface Origin {
  readonly peer: string;
  readonly config: string;
  readonly run: number;
}

/** Writes the results of one configuration in one run. */
export class Report {
  readonly #origin: Origin;
  readonly #sink: (result: Result) => void;

  constructor(origin: Origin, sink: (result: Result) => void) {
    this.#origin = origin;
    this.#sink = sink;
  }

  value(workload: string, metric: string, value: number, unit: string, extra: Extra = {}): void {
    this.#sink({ ...this.#origin, workload, metric, value: rounded(value), unit, load1: rounded(loadavg()[0] ?? 0), ...extra });
  }

  /** p50, p95 and p99 of times in milliseconds, as `<metric>_p50` and so on. */
  quantiles(workload: string, metric: string, times: readonly number[], extra: Extra = {}): void {
    if (times.length === 0) throw new Error(`Cannot report ${metric} of ${workload}: there are no samples`);
    for (const [name, q] of [
      ["p50", 0.5],
      ["p95", 0.95],
      ["p99", 0.99],
    ] as const) {
      this.value(workload, `${metric}_${name}`, quantile(times, q) as number, "ms", { n: times.length, ...extra });
    }
  }

  failure(workload: string, error: unknown): void {
    const text = error instanceof Error ? error.message : String(error);
    this.#sink({ ...this.#origin, workload, metric: "failed", value: null, unit: "", load1: rounded(loadavg()[0] ?? 0), error: text });
  }
}
