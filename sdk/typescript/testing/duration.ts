/** Durations in tests: milliseconds, or text. */
import { readDuration } from "#core/base";

/** Milliseconds of a number, or of text such as `500ms`, `5s`, `1h30m`, `14d`. Throws `TypeError` for anything else. */
export function durationMs(duration: number | string): number {
  const ms = typeof duration === "number" ? duration : readDuration(duration);
  if (ms !== undefined && ms >= 0) return ms;
  throw new TypeError(
    `Cannot use the duration ${JSON.stringify(duration)}: want milliseconds, or text such as "500ms", "5s", "3m", "2h" or "14d"`,
  );
}
