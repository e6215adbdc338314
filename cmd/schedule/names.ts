/** Words for what a schedule's events and policies say. */
import { InstantOutcome, OverlapPolicy } from "#proto";

export const overlapNames = {
  skip: OverlapPolicy.skip,
  "buffer-one": OverlapPolicy.bufferOne,
  "buffer-all": OverlapPolicy.bufferAll,
  "cancel-other": OverlapPolicy.cancelOther,
  "terminate-other": OverlapPolicy.terminateOther,
  "allow-all": OverlapPolicy.allowAll,
} as const;
export type OverlapName = keyof typeof overlapNames;

export const overlapWord = (policy: number): string =>
  Object.entries(overlapNames).find(([, value]) => value === policy)?.[0] ?? `policy ${policy}`;

const outcomeWords: Readonly<Record<number, string>> = {
  [InstantOutcome.started]: "started",
  [InstantOutcome.waits]: "waits",
  [InstantOutcome.skipped]: "skipped",
  [InstantOutcome.replaces]: "waits for the end of others",
  [InstantOutcome.refused]: "refused",
};
export const outcomeWord = (outcome: number): string => outcomeWords[outcome] ?? "";
