/**
 * Random programs: `npm run sim -- --programs N --from S`. Each one is executed live, replayed, and
 * executed again with a crash at every place where one could be; histories are compared by hash.
 */
import { checkProgram, programEnvironment } from "../tests/programs/check-program.ts";

export interface ProgramsSummary {
  programs: number;
  events: number;
  crashes: number;
  failures: string[];
}

const shownMax = 5;
/** Every so many programs, each crash is tried alone too. */
const thoroughEvery = 10;

/** Checks programs with seeds from `from` on; goes on after a failure, up to a few. */
export async function checkPrograms(from: number, count: number): Promise<ProgramsSummary> {
  const summary: ProgramsSummary = { programs: 0, events: 0, crashes: 0, failures: [] };
  const base = await programEnvironment();
  for (let seed = from; seed < from + count && summary.failures.length < shownMax; seed++) {
    try {
      const { events, crashes } = await checkProgram(base, seed, count < thoroughEvery || seed % thoroughEvery === 0);
      summary.events += events;
      summary.crashes += crashes;
    } catch (error) {
      summary.failures.push((error as Error).message);
    }
    summary.programs++;
  }
  return summary;
}

/** Prints what was found. Returns the exit code. */
export async function runPrograms(from: number, count: number): Promise<number> {
  const begun = performance.now();
  const { programs, events, crashes, failures } = await checkPrograms(from, count);
  const seconds = (performance.now() - begun) / 1000;
  console.log(
    `${programs} programs in ${seconds.toFixed(1)} s (${(programs / seconds).toFixed(0)} a second): ${events} events, each history replayed and executed again with ${crashes} crashes and evictions`,
  );
  for (const failure of failures) console.log(`\n${failure}`);
  if (failures.length > 0)
    console.log(`\n${failures.length} programs fail${failures.length === shownMax ? ", and no more were tried" : ""}`);
  return failures.length === 0 ? 0 : 1;
}
