/**
 * Durations as people write them: `500ms`, `5s`, `3m`, `2h`, `14d`, `1w`, and sums such as
 * `1h30m`. A number without a unit is refused: it would be read as seconds by some and as
 * milliseconds by others.
 */
import { limits } from "#core/base";
import { UsageError } from "./failure.ts";

const unitMs = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 } as const;
type Unit = keyof typeof unitMs;

const part = /(\d+(?:\.\d+)?)(ms|s|m|h|d|w)/g;
const whole = /^(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+$/;

/** Whole milliseconds of `text`. Throws `UsageError` where it is no duration or above 100 years. */
export function parseDuration(text: string, what = "duration"): number {
  if (!whole.test(text)) {
    const unit = /^\d+(\.\d+)?$/.test(text) ? ", a unit is missing" : "";
    throw new UsageError(`Cannot read ${what} ${JSON.stringify(text)}${unit}: want a number with a unit, such as 500ms, 5s, 3m, 2h or 14d`);
  }
  let ms = 0;
  for (const [, digits, unit] of text.matchAll(part)) ms += Number(digits) * unitMs[unit as Unit];
  if (ms > limits.timerMsMax) throw new UsageError(`Cannot use ${what} ${text}: at most 100 years are allowed`);
  return Math.ceil(ms);
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
