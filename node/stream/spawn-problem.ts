/** What is wrong with a child that a run asks for, as its worker sends it. */
import { limits, nameProblem, utf8Bytes } from "#core/base";
import { contentions } from "#core/run";
import { type Command, ParentClosePolicy } from "#proto";

/** What follows "Operation 3", or undefined. */
export function spawnProblem({ start, closePolicy }: Command): string | undefined {
  if (start === undefined) return "starts a run without saying which";
  const { contention, idempotencyKey, overrideReason, deadlineMs, budgetMs } = start;
  const doing = "starts a run with";
  if (contention !== "" && !contentions.some((one) => one === contention))
    return `${doing} contention ${JSON.stringify(contention.slice(0, 64))}, want one of ${contentions.join(", ")}`;
  const key = idempotencyKey === "" ? undefined : nameProblem(idempotencyKey);
  if (key !== undefined) return `${doing} an idempotency key that ${key}`;
  if (utf8Bytes(overrideReason) > limits.textBytesMax) return `${doing} an override reason of more than ${limits.textBytesMax} bytes`;
  if (contention === "supersede" && overrideReason.trim() === "") return `${doing} contention "supersede" and no override reason`;
  if (closePolicy > ParentClosePolicy.abandon) return `${doing} parent-close policy ${closePolicy}, which this version does not know`;
  const overMs = [deadlineMs, budgetMs].find((ms) => ms > limits.timerMsMax);
  return overMs === undefined ? undefined : `${doing} a time of ${overMs} ms, want at most ${limits.timerMsMax} ms (100 years)`;
}
