/** One row of the table of chaos cases, and how its cases are counted. */
import type { Prng } from "#core/base";

/** What came of one row of the table. */
export interface Row {
  readonly name: string;
  cases: number;
  readonly failures: string[];
  /** Milliseconds from the start of a server to its being ready, over a folder that a fault left behind. */
  readonly readyMs: number[];
  acks: number;
  note: string;
}

/** One row: what keeps it from being run here, if anything does, and what it runs. */
export interface Job {
  readonly needs: () => string | undefined;
  readonly run: (row: Row, prng: Prng) => Promise<void>;
}

export const always = (): undefined => undefined;

export const upTo = (count: number) => Array.from({ length: count }, (_, i) => i + 1);

/** One case of a row: a failure is kept and the next one goes on. */
export async function attempt(row: Row, what: string, run: () => Promise<void>): Promise<boolean> {
  row.cases++;
  try {
    await run();
    console.error(`  ${row.name} ${what}`);
    return true;
  } catch (error) {
    row.failures.push(`${what}: ${error instanceof Error ? error.message : String(error)}`);
    console.error(`  ${row.name} ${what} FAILED: ${row.failures.at(-1)}`);
    return false;
  }
}
