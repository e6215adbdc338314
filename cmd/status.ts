/** Words for the numbers of a run's status. */
import { liveStatuses, RunStatus, runStatusNames } from "#proto";
import { UsageError } from "./failure.ts";
import type { Paint, Style } from "./terminal.ts";

const words: Readonly<Record<number, string>> = runStatusNames;
/** Of what is no run yet: nothing is listed by it. */
const queuedWord = "queued";

const styles: Record<number, Style> = {
  [RunStatus.running]: "cyan",
  [RunStatus.completed]: "green",
  [RunStatus.failed]: "red",
  [RunStatus.timedOut]: "red",
  [RunStatus.blocked]: "yellow",
  [RunStatus.paused]: "yellow",
  [RunStatus.compensating]: "yellow",
  [RunStatus.cancelled]: "yellow",
  [RunStatus.terminated]: "yellow",
};

export const statusWords: readonly string[] = Object.values(words);

export const statusWord = (status: number): string => (status === RunStatus.queued ? queuedWord : (words[status] ?? `status ${status}`));

export const paintStatus = (paint: Paint, status: number, text: string): string => {
  const style = styles[status];
  return style === undefined ? text : paint(style, text);
};

/** The status that `word` names; undefined = all. */
export function parseStatus(word: string | undefined): number {
  if (word === undefined) return RunStatus.unspecified;
  for (const [status, name] of Object.entries(words)) if (name === word) return Number(status);
  throw new UsageError(`Cannot list by status ${JSON.stringify(word)}: want one of ${statusWords.join(", ")}`);
}

/** What is queued has its end before it, as far as anybody knows. */
const notEnded: ReadonlySet<number> = new Set([RunStatus.unspecified, RunStatus.queued, ...liveStatuses]);

export const hasEnded = (status: number): boolean => !notEnded.has(status);
