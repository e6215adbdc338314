/** Resilience and retention policies as pure functions. */
export { type RetentionPolicy, retentionFor, retentionMsMin, retentionOf } from "./retention.ts";
export { defaultRetry, mayRetry, retryDelayMs } from "./retry.ts";
