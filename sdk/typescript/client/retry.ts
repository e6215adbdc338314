/** When to try again, and for how long. */
import type { ServiceError } from "@grpc/grpc-js";
import { status } from "@grpc/grpc-js";
import { decodeErrorDetail, type ErrorDetail, fromBytes } from "#proto";
import { errorOf, HopError } from "./errors.ts";

const firstMs = 50;
const longestMs = 2000;
/** What the server refused without having done anything, and may take the next time. */
const retryable = new Set(["STORE_UNAVAILABLE", "NOT_LEADER", "STALE_EPOCH", "BUFFER_FULL"]);

export const isRetryable = (error: unknown): error is HopError => error instanceof HopError && retryable.has(error.reason);

/** Wait before the nth try again, from 1: doubling, with half of it drawn at random. */
export function backoffMs(tries: number, atLeastMs = 0): number {
  const full = Math.min(longestMs, firstMs * 2 ** Math.min(tries - 1, 10));
  return Math.max(atLeastMs, full / 2 + Math.random() * (full / 2));
}

export function detailError(detail: ErrorDetail): HopError {
  return errorOf(detail.reason, detail.message, { retryAfterMs: detail.retryAfterMs });
}

const reasonByCode: Partial<Record<status, string>> = {
  [status.UNAVAILABLE]: "STORE_UNAVAILABLE",
  [status.DEADLINE_EXCEEDED]: "BUDGET_EXPIRED",
  [status.UNAUTHENTICATED]: "UNAUTHENTICATED",
  [status.INVALID_ARGUMENT]: "BAD_REQUEST",
  [status.RESOURCE_EXHAUSTED]: "BUFFER_FULL",
  // A server of an older version does not know the call.
  [status.UNIMPLEMENTED]: "BAD_REQUEST",
};

const detailKey = "hopskip-error-bin";

/** A node has written it, and not a library in between. */
export const hasDetail = (error: ServiceError): boolean => (error.metadata?.get(detailKey).length ?? 0) > 0;

/** The refusal behind a gRPC error: its detail, or what its code says. */
export function statusError(error: ServiceError, doing: string): HopError {
  const bytes = error.metadata?.get(detailKey)[0];
  if (bytes instanceof Uint8Array) {
    try {
      return detailError(fromBytes(decodeErrorDetail, bytes));
    } catch {
      // A peer that writes other details still has a code.
    }
  }
  return errorOf(reasonByCode[error.code] ?? "INTERNAL", `Cannot ${doing}: ${error.details || error.message}`, { cause: error });
}

/** What is tried again for so long is worth a word. With the pauses of `backoffMs` it comes after 1.6 s at the latest. */
export const waitingMs = 700;

/**
 * Tries until it succeeds, fails for good, or `retryMs` have passed since the first failure.
 * `onWaiting` is told of what has failed for `waitingMs` and is tried again.
 */
export async function withRetry<T>(
  retryMs: number,
  attempt: () => Promise<T>,
  onWaiting: (problem: string) => void = () => {},
): Promise<T> {
  let failedMs: number | undefined;
  for (let tries = 1; ; tries++) {
    try {
      return await attempt();
    } catch (error) {
      failedMs ??= performance.now();
      const sinceMs = performance.now() - failedMs;
      if (!isRetryable(error) || sinceMs >= retryMs) throw error;
      if (sinceMs >= waitingMs) onWaiting(error.message);
      await new Promise((resolve) => setTimeout(resolve, backoffMs(tries, error.retryAfterMs)));
    }
  }
}
