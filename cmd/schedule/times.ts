/** When a schedule fires, from options of a command line and back to words. */
import { limits } from "#core/base";
import { RepeatedTime, type ScheduleSpecInit, SkippedTime } from "#proto";
import { momentOf } from "../cold/event-filter.ts";
import { parseDuration } from "../duration.ts";
import { UsageError } from "../failure.ts";

export interface TimeOptions {
  readonly cron?: readonly string[];
  readonly zone?: string;
  readonly skipped?: keyof typeof SkippedTime;
  readonly repeated?: keyof typeof RepeatedTime;
  readonly every?: string;
  readonly offset?: string;
  readonly at?: readonly string[];
  readonly from?: string;
  readonly until?: string;
  readonly jitter?: string;
}

/** What the options say of times, and `before` where they are silent; a way to say times takes the place of all that were said before. */
export function specOf(options: TimeOptions, before: ScheduleSpecInit = {}): ScheduleSpecInit {
  const { cron, every, at, offset } = options;
  if (offset !== undefined && every === undefined)
    throw new UsageError("Cannot use --offset without --every: it says where the interval begins");
  const times =
    cron === undefined && every === undefined && at === undefined
      ? {}
      : { cron: [...(cron ?? [])], everyMs: ms(every, "--every"), offsetMs: ms(offset, "--offset"), atMs: instants(at) };
  return { ...before, ...times, ...bounds(options), ...policies(options) };
}

const ms = (text: string | undefined, name: string) => (text === undefined ? 0 : parseDuration(text, name));

function instants(texts: readonly string[] = []): number[] {
  if (texts.length > limits.scheduleTimesMax)
    throw new UsageError(`Cannot use ${texts.length} times --at: at most ${limits.scheduleTimesMax} are allowed`);
  return texts.map((text) => pointOf(text, "--at")).sort((a, b) => a - b);
}

function bounds({ from, until, jitter }: TimeOptions): ScheduleSpecInit {
  return {
    ...(from === undefined ? {} : { fromMs: pointOf(from, "--from") }),
    ...(until === undefined ? {} : { untilMs: pointOf(until, "--until") }),
    ...(jitter === undefined ? {} : { jitterMs: parseDuration(jitter, "--jitter") }),
  };
}

function policies({ zone, skipped, repeated }: TimeOptions): ScheduleSpecInit {
  return {
    ...(zone === undefined ? {} : { zone }),
    ...(skipped === undefined ? {} : { skipped: SkippedTime[skipped] }),
    ...(repeated === undefined ? {} : { repeated: RepeatedTime[repeated] }),
  };
}

/** A time such as 2026-02-03T04:05:06Z, in milliseconds since 1970; or how long ago, such as 2h. */
export const pointOf = (text: string, name: string): number => momentOf(text, name, Date.now());

/** What the zone's clocks show: `2026-03-29 03:00:00 +02:00`. */
export function localText(atMs: number, aheadMs: number): string {
  const local = new Date(atMs + aheadMs).toISOString();
  const minutes = Math.abs(Math.trunc(aheadMs / 60_000));
  const two = (value: number) => String(value).padStart(2, "0");
  return `${local.slice(0, 10)} ${local.slice(11, 19)} ${aheadMs < 0 ? "-" : "+"}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
}

/** What a change of the clocks has to do with an instant, for people. */
export const changeTexts: Readonly<Record<string, string>> = {
  skipped: "local time left out: first moment after the change",
  repeated: "local time comes twice",
};
