/**
 * Durations as people write them: `500ms`, `5s`, `3m`, `2h`, `14d`, `1w`, and sums such as
 * `1h30m`. A number without a unit is refused: it would be read as seconds by some and as
 * milliseconds by others.
 */
import { limits, readDuration, unitMs } from "#core/base";
import { UsageError } from "./failure.ts";

/** Whole milliseconds of `text`. Throws `UsageError` where it is no duration or above 100 years. */
export function parseDuration(text: string, what = "duration"): number {
  const ms = readDuration(text);
  if (ms === undefined) {
    const unit = /^\d+(\.\d+)?$/.test(text) ? ", a unit is missing" : "";
    throw new UsageError(`Cannot read ${what} ${JSON.stringify(text)}${unit}: want a number with a unit, such as 500ms, 5s, 3m, 2h or 14d`);
  }
  if (ms > limits.timerMsMax) throw new UsageError(`Cannot use ${what} ${text}: at most 100 years are allowed`);
  return ms;
}

/** The two largest units of a duration in milliseconds: `320ms`, `4.2s`, `3m 20s`, `14d 3h`. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)}ms`;
  if (ms < 60_000) return `${(Math.floor(ms / 100) / 10).toString()}s`;
  const units: readonly [string, number][] = [
    ["d", unitMs.d],
    ["h", unitMs.h],
    ["m", unitMs.m],
    ["s", unitMs.s],
  ];
  const at = units.findIndex(([, size]) => ms >= size);
  const [name, size] = units[at] as [string, number];
  const below = units[at + 1];
  const rest = below === undefined ? 0 : Math.floor((ms % size) / below[1]);
  return `${Math.floor(ms / size)}${name}${rest === 0 ? "" : ` ${rest}${below?.[0] ?? ""}`}`;
}
