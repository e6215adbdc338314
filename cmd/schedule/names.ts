/** Words for what a schedule's events and policies say. */
import { InstantOutcome, overlapPolicies } from "#proto";

export const overlapWord = (policy: number): string =>
  Object.entries(overlapPolicies).find(([, value]) => value === policy)?.[0] ?? `policy ${policy}`;

const outcomeWords: Readonly<Record<number, string>> = {
  [InstantOutcome.started]: "started",
  [InstantOutcome.waits]: "waits",
  [InstantOutcome.skipped]: "skipped",
  [InstantOutcome.replaces]: "waits for the end of others",
  [InstantOutcome.refused]: "refused",
};
export const outcomeWord = (outcome: number): string => outcomeWords[outcome] ?? "";
