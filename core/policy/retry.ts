/** When a failed attempt is tried again: attempts, exponential backoff, jitter from a seed. */
import { limits, Prng } from "#core/base";
import type { Failure, RetryPolicy } from "#proto";

/** Applies where an activity states no policy: retried for ever, 100 ms doubling to a minute. */
export const defaultRetry: RetryPolicy = {
  attemptsMax: 0,
  initialMs: 100,
  intervalMsMax: 60_000,
  backoffMilli: 2000,
  jitterMilli: 200,
  nonRetryable: [],
};

/** Whether another attempt may follow attempt number `attempt` (from 1), which failed so. */
export function mayRetry(policy: RetryPolicy, attempt: number, failure: Failure): boolean {
  if (failure.nonRetryable || policy.nonRetryable.includes(failure.type)) return false;
  return policy.attemptsMax === 0 || attempt < policy.attemptsMax;
}

/** Milliseconds to wait after attempt number `attempt` (from 1). Equal seeds give equal waits. */
export function retryDelayMs(policy: RetryPolicy, attempt: number, seed: number): number {
  const ceiling = Math.min(policy.intervalMsMax || limits.retryIntervalMsMax, limits.retryIntervalMsMax);
  const factor = Math.max(policy.backoffMilli, 1000) / 1000;
  const wait = Math.min(policy.initialMs * factor ** Math.min(attempt - 1, 64), ceiling);
  const jitter = (Math.min(policy.jitterMilli, 1000) / 1000) * wait;
  return Math.round(wait - jitter + jitter * 2 * new Prng(seed).fraction());
}
