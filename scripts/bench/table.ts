/** The results as a table for people: medians, what was to be reached, and the best other system. */
import { clusterGoals } from "./cluster-goals.ts";
import { type Goal, goals, isAbout } from "./goals.ts";
import type { Config } from "./product.ts";
import { median, type Result } from "./result.ts";

const columns = ["workload", "what", "config", "median", "min … max", "to reach", "best other", "times better"] as const;

const short = (value: number): string => (value >= 1000 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(3))));

function row(goal: Goal, config: string, results: readonly Result[]): string[] {
  const values = results.flatMap(({ value }) => (value === null ? [] : [value]));
  const middle = median(values);
  if (middle === undefined) return [];
  const unit = results[0]?.unit === "1/s" ? "/s" : ` ${results[0]?.unit}`;
  const reach = goal.reachIn?.[config as Config] ?? goal.reach;
  const isReached = reach !== undefined && (goal.better === "lower" ? middle <= reach : middle >= reach);
  const { best } = goal;
  const ratio = best === undefined ? undefined : goal.better === "lower" ? best.value / middle : middle / best.value;
  return [
    goal.workload,
    goal.title,
    config,
    `${short(middle)}${unit}`,
    values.length > 1 ? `${short(Math.min(...values))} … ${short(Math.max(...values))}` : "",
    reach === undefined ? "" : `${goal.better === "lower" ? "≤" : "≥"} ${short(reach)} ${isReached ? "reached" : "MISSED"}`,
    best === undefined ? "" : `${short(best.value)} ${best.of}`,
    ratio === undefined ? "" : `${ratio.toPrecision(2)}×`,
  ];
}

/** One line for each figure that was measured, by workload and configuration, then what failed. */
export function tableOf(results: readonly Result[]): string {
  const origins = [...new Set(results.map(({ peer, config }) => `${peer}\t${config}`))];
  const rows: string[][] = [];
  for (const goal of [...goals, ...clusterGoals]) {
    for (const origin of origins) {
      const same = results.filter((each) => `${each.peer}\t${each.config}` === origin && isAbout(goal, each));
      const [peer, config = ""] = origin.split("\t");
      const made = row(goal, peer === "hopskip" ? config : (peer ?? ""), same);
      if (made.length > 0) rows.push(made);
    }
  }
  const widths = columns.map((name, i) => Math.max(name.length, ...rows.map((each) => (each[i] as string).length)));
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, i) => cell.padEnd(widths[i] as number))
      .join("  ")
      .trimEnd();
  const failures = results
    .filter(({ metric }) => metric === "failed")
    .map(({ workload, config, error }) => `${workload} (${config}) failed: ${error}`);
  return [line(columns), ...rows.map(line), ...failures].join("\n");
}
