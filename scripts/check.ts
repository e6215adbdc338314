/**
 * Everything that can be said about the sources without running the product. Changes nothing.
 *
 * `npm run check`; `npm test` runs the same steps before the tests. `--step NAME` runs one.
 */
import { bun, capture, inLanes } from "./command.ts";

export interface Step {
  readonly name: string;
  readonly command: readonly string[];
}

/** The slowest first, so that two lanes end together. */
export const steps: readonly Step[] = [
  { name: "lint", command: ["oxlint", "--type-aware", "--deny-warnings"] },
  { name: "types", command: ["tsc", "-p", "."] },
  { name: "generated code", command: [bun, "scripts/gen.ts", "--check"] },
  { name: "types of core", command: ["tsc", "-p", "core"] },
  { name: "format", command: ["biome", "ci", "--colors=off", "--max-diagnostics=50"] },
  { name: "schema", command: ["buf", "lint"] },
];

/** House rules, which are written as a test. `npm test` runs them with the other tests. */
export const tidy: Step = { name: "house rules", command: [bun, "test", "./tests/tidy.test.ts"] };

/** Runs steps two at a time, says how each ended and shows what the failed ones printed. */
export async function runSteps(chosen: readonly Step[]): Promise<{ passed: number; failed: number }> {
  let passed = 0;
  let failed = 0;
  const job = (step: Step) => async () => {
    const { ok, output, seconds } = await capture(step.command);
    console.log(`${ok ? "ok  " : "FAIL"} ${step.name} (${seconds.toFixed(1)} s)`);
    if (ok) passed++;
    else {
      failed++;
      console.log(`$ ${step.command.map((word) => (word === bun ? "bun" : word)).join(" ")}\n${output.trimEnd()}`);
    }
  };
  await inLanes(2, chosen.map(job));
  return { passed, failed };
}

function chosenSteps(args: readonly string[]): readonly Step[] {
  const all = [...steps, tidy];
  const at = args.indexOf("--step");
  if (at < 0) return all;
  const step = all.find((each) => each.name === args[at + 1]);
  if (step === undefined) throw new Error(`Unknown step ${args[at + 1]}. Steps: ${all.map((each) => each.name).join(", ")}`);
  return [step];
}

if (import.meta.main) {
  const { failed } = await runSteps(chosenSteps(process.argv.slice(2)));
  process.exitCode = failed === 0 ? 0 : 1;
}
