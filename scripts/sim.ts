/**
 * Simulates seeds: `npm run sim -- --seeds N --from S [--lanes L] [--verbose] [--until-failure]`.
 * `--without FAULT,FAULT` leaves faults out, `--shrink` finds out which ones a failure does not need.
 * `--rate N` has clients ask about N times a second, whatever the seed draws.
 * `--bugs` plants each known bug instead and shows which seed finds it, by which invariant.
 * `--programs N` tries random workflow programs in the test kit instead (scripts/programs.ts).
 *
 * A seed that fails is printed with the step and the command that shows it again, told in full.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { plantedBugs } from "../tests/sim/bugs/planted.ts";
import { type Report, simulate } from "../tests/sim/simulator.ts";
import { allFaults } from "../tests/sim/workload.ts";
import { bun, capture, inLanes, root } from "./command.ts";
import { runPrograms } from "./programs.ts";

/** What one process found out. */
interface Summary {
  seeds: number;
  steps: number;
  events: number;
  runs: number;
  lives: number;
  messages: number;
  requests: number;
  simulatedMs: number;
  /** Of the processes that simulated. */
  cpuMs: number;
  /** Seeds by the size of their cluster. */
  sizes: Record<string, number>;
  /** Seeds in which each fault struck. */
  struck: Record<string, number>;
  failures: { seed: number; step: number; invariant: string; message: string }[];
}

interface Options {
  readonly seeds: readonly number[];
  readonly isVerbose: boolean;
  readonly untilFailure: boolean;
  /** Faults that are left out. */
  readonly without?: readonly string[];
  readonly rate?: number | undefined;
  readonly onReport?: (report: Report, done: number) => void;
}

/** Failures told in full. */
const shownMax = 5;

const sums = ["steps", "events", "runs", "lives", "messages", "requests", "simulatedMs"] as const;

const emptySummary = (): Summary => ({
  ...{ seeds: 0, steps: 0, events: 0, runs: 0, lives: 0, messages: 0, requests: 0, simulatedMs: 0, cpuMs: 0 },
  ...{ sizes: {}, struck: {}, failures: [] },
});

/** Simulates in this process. */
export function simulateAll({ seeds, isVerbose, untilFailure, without = [], rate, onReport }: Options): Summary {
  const summary = emptySummary();
  const begun = process.cpuUsage();
  for (const seed of seeds) {
    const report = simulate(seed, { isVerbose, without, rate });
    add(summary, report);
    onReport?.(report, summary.seeds);
    if (untilFailure && report.failure !== undefined) break;
  }
  const { user, system } = process.cpuUsage(begun);
  summary.cpuMs = (user + system) / 1000;
  return summary;
}

function add(summary: Summary, report: Report): void {
  summary.seeds++;
  for (const key of sums) summary[key] += report[key];
  summary.sizes[report.nodes] = (summary.sizes[report.nodes] ?? 0) + 1;
  for (const fault of report.fired.keys()) summary.struck[fault] = (summary.struck[fault] ?? 0) + 1;
  const { failure, seed } = report;
  if (failure !== undefined) summary.failures.push({ seed, step: failure.step, invariant: failure.invariant, message: failure.message });
}

function merge(all: readonly Summary[]): Summary {
  const merged = emptySummary();
  for (const one of all) {
    for (const key of ["seeds", "cpuMs", ...sums] as const) merged[key] += one[key];
    for (const [size, count] of Object.entries(one.sizes)) merged.sizes[size] = (merged.sizes[size] ?? 0) + count;
    for (const [fault, count] of Object.entries(one.struck)) merged.struck[fault] = (merged.struck[fault] ?? 0) + count;
    merged.failures.push(...one.failures);
  }
  return merged;
}

/** Seeds that once found something, with a line of story each. */
export function knownSeeds(): number[] {
  const lines = readFileSync(join(root, "tests/sim/seeds.txt"), "utf8").split("\n");
  return lines.filter((line) => /^\d/.test(line)).map((line) => Number.parseInt(line, 10));
}

const script = join(root, "scripts/sim.ts");
/** Up to so many seeds in one process, the last stage of the engine's compiler costs more CPU than it saves. */
const shortLaneMax = 60;
const lane = (args: readonly string[], { isShort, plant }: { isShort: boolean; plant?: string }) =>
  capture([
    "env",
    ...(isShort ? ["BUN_JSC_useFTLJIT=0"] : []),
    ...(plant === undefined ? [] : [`HOP_PLANT=${plant}`]),
    bun,
    ...(plant === undefined ? [] : ["--preload", join(root, "tests/sim/bugs/plant.ts")]),
    script,
    "--lanes=0",
    ...args,
  ]);

/** Simulates in processes of their own, the seeds dealt out in turn. */
async function inProcesses(seeds: readonly number[], lanes: number, more: readonly string[]): Promise<Summary> {
  const parts = Array.from({ length: lanes }, (_, i) => seeds.filter((_, at) => at % lanes === i));
  const found: Summary[] = [];
  await inLanes(
    lanes,
    parts.map((part) => async () => {
      const { ok, output } = await lane([`--list=${part.join(",")}`, ...more], { isShort: part.length <= shortLaneMax });
      const line = output.trimEnd().split("\n").at(-1) ?? "";
      if (!ok || !line.startsWith("{")) throw new Error(`A lane of the simulation ended early:\n${output}`);
      found.push(JSON.parse(line) as Summary);
    }),
  );
  return merge(found);
}

function print(summary: Summary, seconds: number): void {
  const { seeds, steps, events, runs, lives, messages, requests, simulatedMs, cpuMs, sizes, struck, failures } = summary;
  const clusters = Object.entries(sizes).map(([size, count]) => `${count} of ${size}`);
  // Time in which nothing happens is skipped, and not counted.
  console.log(
    `${seeds} seeds in ${seconds.toFixed(1)} s (${(seeds / seconds).toFixed(1)} a second): clusters ${clusters.join(", ")} nodes; ${runs} runs, ` +
      `${events} events, ${messages} messages between runs, ${steps} steps, ${lives} lives of nodes, ` +
      `${(simulatedMs / 3_600_000).toFixed(1)} simulated hours with ${(requests / (simulatedMs / 1000)).toFixed(1)} requests a second, ` +
      `${(simulatedMs / 1000 / seconds).toFixed(0)} × real time, ${(simulatedMs / cpuMs).toFixed(0)} × a core`,
  );
  const shares = allFaults.map((fault) => `${fault} ${Math.round(((struck[fault] ?? 0) / seeds) * 100)} %`);
  console.log(`seeds in which each fault struck: ${shares.join(", ")}`);
  if (failures.length > 0) console.log(`\n${failures.length} seeds fail: ${failures.map(({ seed }) => seed).join(", ")}`);
  for (const { seed, step, message } of failures.slice(0, shownMax)) {
    console.log(
      `\nseed ${seed} fails at step ${step}: ${message}\n  npm run sim -- --from ${seed} --seeds 1 --verbose\n  npm run sim -- --from ${seed} --seeds 1 --shrink`,
    );
  }
}

/** Leaves out one fault after the other, for as long as the same invariant breaks. */
function shrink(seed: number): void {
  const first = simulate(seed);
  if (first.failure === undefined) return console.log(`seed ${seed} does not fail`);
  const { invariant } = first.failure;
  const left: string[] = [];
  for (const fault of first.fired.keys())
    if (simulate(seed, { without: [...left, fault] }).failure?.invariant === invariant) left.push(fault);
  const needed = [...first.fired.keys()].filter((fault) => !left.includes(fault));
  console.log(
    `seed ${seed} breaks ${invariant} with ${needed.join(", ")}\n  npm run sim -- --from ${seed} --seeds 1 --verbose --without ${left.join(",")}`,
  );
}

/** Which seed finds each planted bug. Returns how many were not found. */
async function findBugs(seeds: number, isShort: boolean): Promise<number> {
  let missed = 0;
  // In short, only those of which it is known which seed finds them soon.
  const bugs = isShort ? plantedBugs.filter((bug) => bug.seeds.length > 0) : plantedBugs;
  await inLanes(
    2,
    bugs.map((bug) => async () => {
      const tried = isShort ? bug.seeds : [...bug.seeds, ...Array.from({ length: seeds }, (_, i) => i + 1)];
      const { ok, output, seconds } = await lane([`--list=${tried.join(",")}`, "--until-failure"], { isShort: true, plant: bug.name });
      const line = output.trimEnd().split("\n").at(-1) ?? "";
      const found = ok && line.startsWith("{") ? (JSON.parse(line) as Summary).failures[0] : undefined;
      const isRight = found !== undefined && bug.breaks.includes(found.invariant);
      if (!isRight) missed++;
      const how =
        found === undefined
          ? `NOT FOUND${ok ? "" : `: ${output.trim().slice(-400)}`}`
          : `seed ${found.seed}, ${found.invariant}${isRight ? "" : " (UNEXPECTED)"}: ${found.message.slice(0, 110)}`;
      console.log(`${bug.name.padEnd(30)} ${how} (${seconds.toFixed(1)} s)`);
    }),
  );
  console.log(`${bugs.length - missed} of ${bugs.length} planted bugs found`);
  return missed;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      seeds: { type: "string", default: "300" },
      from: { type: "string", default: "1" },
      lanes: { type: "string", default: "2" },
      list: { type: "string" },
      programs: { type: "string" },
      verbose: { type: "boolean", default: false },
      bugs: { type: "boolean", default: false },
      short: { type: "boolean", default: false },
      known: { type: "boolean", default: false },
      "until-failure": { type: "boolean", default: false },
      without: { type: "string", default: "" },
      rate: { type: "string" },
      shrink: { type: "boolean", default: false },
    },
  });
  if (values.programs !== undefined) {
    process.exitCode = await runPrograms(Number(values.from), Number(values.programs));
    return;
  }
  const count = Number(values.seeds);
  if (values.bugs) {
    process.exitCode = (await findBugs(count, values.short)) === 0 ? 0 : 1;
    return;
  }
  const range = Array.from({ length: count }, (_, i) => Number(values.from) + i);
  const seeds = values.list === undefined ? [...(values.known ? knownSeeds() : []), ...range] : values.list.split(",").map(Number);
  const untilFailure = values["until-failure"];
  const without = values.without === "" ? [] : values.without.split(",");
  const rate = values.rate === undefined ? undefined : Number(values.rate);
  const alike = { untilFailure, without, rate };
  if (values.shrink) return seeds.forEach(shrink);
  if (values.lanes === "0") {
    console.log(JSON.stringify(simulateAll({ seeds, isVerbose: false, ...alike })));
    // What a planted bug left hanging in the air is nobody's concern any more.
    process.exit(0);
  }
  const begun = performance.now();
  const lanes = Number(values.lanes);
  const summary =
    values.verbose || lanes === 1 || seeds.length < 8 || without.length > 0
      ? simulateAll({ seeds, isVerbose: values.verbose, ...alike })
      : await inProcesses(seeds, lanes, [...(untilFailure ? ["--until-failure"] : []), ...(rate === undefined ? [] : [`--rate=${rate}`])]);
  print(summary, (performance.now() - begun) / 1000);
  process.exitCode = summary.failures.length === 0 ? 0 : 1;
}

if (import.meta.main) await main();
