/** Durations as people write them: `500ms`, `5s`, `3m`, `2h`, `14d`, `1w`, and sums such as `1h30m`. */

export const unitMs = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 } as const;

const part = /(\d+(?:\.\d+)?)(ms|s|m|h|d|w)/g;
const whole = /^(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+$/;

/** Whole milliseconds of `text`, rounded up; undefined where it is no duration. */
export function readDuration(text: string): number | undefined {
  if (!whole.test(text)) return undefined;
  let ms = 0;
  for (const [, digits, unit] of text.matchAll(part)) ms += Number(digits) * unitMs[unit as keyof typeof unitMs];
  return Math.ceil(ms);
}
