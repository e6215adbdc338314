/** Cron expressions: their text, and the local times that they name. */

/** Values that a time must have, ascending; `weekday` 0 is Sunday. */
export interface Cron {
  readonly second: readonly number[];
  readonly minute: readonly number[];
  readonly hour: readonly number[];
  readonly day: readonly number[];
  readonly month: readonly number[];
  readonly weekday: readonly number[];
  /** The field is `*` or `?`: where neither is, a day needs to match one of the two only. */
  readonly anyDay: boolean;
  readonly anyWeekday: boolean;
}

interface Field {
  readonly name: string;
  readonly min: number;
  readonly max: number;
  /** Of the values from `min` on. */
  readonly names?: readonly string[];
}

const months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const weekdays = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const fields = [
  { name: "second", min: 0, max: 59 },
  { name: "minute", min: 0, max: 59 },
  { name: "hour", min: 0, max: 23 },
  { name: "day", min: 1, max: 31 },
  { name: "month", min: 1, max: 12, names: months },
  { name: "weekday", min: 0, max: 7, names: weekdays },
] as const satisfies readonly Field[];

const shorthands: Readonly<Record<string, string>> = {
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
  "@monthly": "0 0 1 * *",
  "@weekly": "0 0 * * 0",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@hourly": "0 * * * *",
};

const charsMax = 500;

/** The expression, or what is wrong with it. */
export function parseCron(text: string): Cron | { readonly problem: string } {
  if (text.length > charsMax) return { problem: `it has ${text.length} characters, at most ${charsMax} are allowed` };
  const trimmed = text.trim();
  if (/^(CRON_)?TZ=/.test(trimmed)) return { problem: "it names a time zone, which is to be given beside it" };
  const long = trimmed.startsWith("@") ? shorthands[trimmed.toLowerCase()] : trimmed;
  if (long === undefined) return { problem: `there is no ${trimmed}; want one of ${Object.keys(shorthands).join(", ")}` };
  const parts = long.split(/\s+/);
  if (parts.length !== 5 && parts.length !== 6) {
    return { problem: `it has ${long === "" ? 0 : parts.length} fields; want 5 (minute hour day month weekday), or 6 with seconds first` };
  }
  const six = parts.length === 6 ? parts : ["0", ...parts];
  const values: (readonly number[])[] = [];
  for (const [i, field] of fields.entries()) {
    const found = parseField(field, six[i] as string);
    if ("problem" in found) return found;
    values.push(found);
  }
  const [second, minute, hour, day, month, named] = values as [number[], number[], number[], number[], number[], number[]];
  const weekday = ascending(named.map((n) => n % 7));
  return { second, minute, hour, day, month, weekday, anyDay: isAny(six[3]), anyWeekday: isAny(six[5]) };
}

/** A step of 1 names every value; a larger one only some. */
const isAny = (text: string | undefined) => text === "*" || text === "?" || text === "*/1";

const ascending = (values: Iterable<number>) => [...new Set(values)].sort((a, b) => a - b);

function parseField(field: Field, text: string): number[] | { readonly problem: string } {
  const found = new Set<number>();
  for (const part of text.split(",")) {
    const range = parseRange(field, part);
    if ("problem" in range) return range;
    for (let value = range.from; value <= range.to; value += range.step) found.add(value);
  }
  return ascending(found);
}

interface Range {
  readonly from: number;
  readonly to: number;
  readonly step: number;
}

function parseRange(field: Field, part: string): Range | { readonly problem: string } {
  const wrong = (why: string) => ({ problem: `its ${field.name} field "${part}" ${why}` });
  const [, base, steps] = /^([^/]+)(?:\/(\d{1,9}))?$/.exec(part) ?? [];
  if (base === undefined)
    return wrong(`is not understood; want ${field.min}–${field.max}, a range a-b, * or a list of those, each perhaps with /step`);
  const step = steps === undefined ? 1 : Number(steps);
  if (step === 0) return wrong("has a step of 0");
  if (base === "*" || base === "?") return { from: field.min, to: topOf(field), step };
  const [first, last, more] = base.split("-").map((word) => numberOf(field, word));
  if (more !== undefined || first === undefined || Number.isNaN(first) || Number.isNaN(last)) {
    return wrong(`is not understood; want ${field.min}–${field.max}${field.names === undefined ? "" : ` or ${field.names[0]}…`}`);
  }
  // "15/35" counts on from 15 to the field's end.
  const to = last ?? (steps === undefined ? first : topOf(field));
  for (const value of [first, to]) if (value < field.min || value > field.max) return wrong(`is out of ${field.min}–${field.max}`);
  return to < first ? wrong("is a range that ends before it begins") : { from: first, to, step };
}

/** Weekday 7 is 0 again: it is not a value of its own. */
const topOf = ({ max }: Field) => (max === 7 ? 6 : max);

function numberOf({ names, min }: Field, word: string): number {
  if (/^\d{1,4}$/.test(word)) return Number(word);
  const at = names?.indexOf(word.toLowerCase()) ?? -1;
  return at < 0 ? Number.NaN : at + min;
}

export const dayMs = 24 * 3600 * 1000;
/** Further than that nothing is looked for: 29 February comes every 4 years, or 8 around a century's. */
const daysMax = 366 * 9;

/**
 * The first local time at or after `fromMs` that the expression names, as the milliseconds that a
 * UTC clock would have then. Undefined where there is none in nine years.
 */
export function nextWall(cron: Cron, fromMs: number): number | undefined {
  const from = Math.ceil(fromMs / 1000) * 1000;
  const first = Math.floor(from / dayMs);
  for (let day = first; day <= first + daysMax; day++) {
    const date = new Date(day * dayMs);
    if (!cron.month.includes(date.getUTCMonth() + 1)) {
      // The loop steps onto the next month's first.
      day = Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1) / dayMs - 1;
      continue;
    }
    if (!namesDay(cron, date)) continue;
    const time = nextTime(cron, day === first ? (from - day * dayMs) / 1000 : 0);
    if (time !== undefined) return day * dayMs + time * 1000;
  }
  return undefined;
}

function namesDay(cron: Cron, date: Date): boolean {
  const day = cron.day.includes(date.getUTCDate());
  const weekday = cron.weekday.includes(date.getUTCDay());
  return cron.anyDay || cron.anyWeekday ? day && weekday : day || weekday;
}

/** Seconds of the first time of a day at or after `from`, in seconds. */
function nextTime({ hour, minute, second }: Cron, from: number): number | undefined {
  const [h, m, s] = [Math.floor(from / 3600), Math.floor(from / 60) % 60, from % 60];
  const sooner = second.find((one) => one >= s);
  const later = second[0] as number;
  if (hour.includes(h)) {
    if (minute.includes(m) && sooner !== undefined) return h * 3600 + m * 60 + sooner;
    const next = minute.find((one) => one > m);
    if (next !== undefined) return h * 3600 + next * 60 + later;
  }
  const next = hour.find((one) => one > h);
  return next === undefined ? undefined : next * 3600 + (minute[0] as number) * 60 + later;
}
