/** Resilience policies as pure functions. */
export { defaultRetry, mayRetry, retryDelayMs } from "./retry.ts";
