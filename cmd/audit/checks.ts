/** Shows what was checked and what was found. */
import type { Check } from "#core/merkle";
import type { Output } from "../output.ts";
import { visible } from "../terminal.ts";

/** One line for each check, for people, on standard output. */
export function showChecks(output: Output, checks: readonly Check[]): void {
  for (const check of checks) {
    const mark = check.ok ? output.paint("green", "✓") : output.paint("red", "✗");
    output.line(`${mark} ${check.name}: ${visible(check.detail)}`);
  }
}
