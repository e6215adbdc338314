/** Failures that Core itself states. */
import type { Failure } from "#proto";

/** A failure without stack, details or cause. */
export function failureOf(type: string, message: string, options: { nonRetryable: boolean }): Failure {
  return { type, message, stack: "", details: undefined, nonRetryable: options.nonRetryable, cause: undefined };
}
