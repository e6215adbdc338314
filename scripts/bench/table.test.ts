import { expect, test } from "bun:test";
import { quantile, Report, type Result } from "./result.ts";
import { tableOf } from "./table.ts";

const result = (more: Partial<Result>): Result => ({
  peer: "hopskip",
  config: "default",
  run: 1,
  workload: "W2",
  metric: "ms_per_step",
  value: 1,
  unit: "ms",
  load1: 0,
  ...more,
});

test("quantile() takes the value below which the share lies", () => {
  expect([quantile([3, 1, 2], 0.5), quantile([1, 2, 3, 4], 0.99), quantile([1], 0.5), quantile([], 0.5)]).toEqual([2, 4, 1, undefined]);
});

test("Report writes lines with their origin, quantiles under their names", () => {
  const lines: Result[] = [];
  const report = new Report({ peer: "hopskip", config: "embedded", run: 2 }, (line) => lines.push(line));
  report.value("W3", "steps_per_s", 12345.6, "1/s", { n: 10 });
  report.quantiles("W1", "start_to_step", [1, 2, 3], { variant: "start" });
  report.failure("W8", new Error("it did not start"));
  const bare = lines.map(({ load1, ...rest }) => {
    expect(load1).toBeGreaterThanOrEqual(0);
    return rest;
  });
  const origin = { peer: "hopskip", config: "embedded", run: 2 };
  const quantiles = { ...origin, workload: "W1", unit: "ms", n: 3, variant: "start" };
  expect(bare as unknown[]).toEqual([
    { ...origin, workload: "W3", metric: "steps_per_s", value: 12350, unit: "1/s", n: 10 },
    { ...quantiles, metric: "start_to_step_p50", value: 2 },
    { ...quantiles, metric: "start_to_step_p95", value: 3 },
    { ...quantiles, metric: "start_to_step_p99", value: 3 },
    { ...origin, workload: "W8", metric: "failed", value: null, unit: "", error: "it did not start" },
  ]);
  expect(() => report.quantiles("W1", "start_to_step", [])).toThrow("there are no samples");
});

test("tableOf() shows medians with what was to be reached, a configuration's own goal first, and failures", () => {
  const table = tableOf([
    result({ value: 1 }),
    result({ value: 1.1 }),
    result({ value: 4 }),
    result({ config: "embedded", value: 1 }),
    result({ workload: "W3", metric: "workflows_per_s", n: 1, unit: "1/s", value: 5350 }),
    result({ workload: "W3", metric: "workflows_per_s", n: 10, unit: "1/s", value: 999 }),
    result({ workload: "W8", metric: "failed", value: null, error: "it did not start" }),
  ]);
  expect(table.split("\n").map((line) => line.split(/ {2,}/))).toEqual([
    ["workload", "what", "config", "median", "min … max", "to reach", "best other", "times better"],
    ["W2", "one step of a sequential run", "default", "1.1 ms", "1 … 4", "≤ 1.2 reached", "1.91 Restate", "1.7×"],
    ["W2", "one step of a sequential run", "embedded", "1 ms", "≤ 0.8 MISSED", "1.91 Restate", "1.9×"],
    ["W3", "one-step runs, 50 at a time", "default", "5,350/s", "≥ 4,000 reached", "535 Restate", "10×"],
    ["W8 (default) failed: it did not start"],
  ]);
});
