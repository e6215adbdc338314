/** Activities of the chaos workloads. */
import { appendFileSync } from "node:fs";

export const echo = (value: number): number => value;

/** Adds a line to a file that outlives every process: what was executed, and how often. */
export function note({ file, line }: { file: string; line: string }): void {
  appendFileSync(file, `${line}\n`);
}
