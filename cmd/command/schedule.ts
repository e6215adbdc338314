/** `hop schedule create`, `update`, `pause`, `resume`, `trigger`, `backfill` and `delete`. */
import type { RunId } from "#core/base";
import { HopError, namespaceOf } from "#core/base";
import {
  InstantOutcome,
  type OverlapName,
  overlapPolicies,
  type ScheduleCommandInit,
  type ScheduleConfig,
  type ScheduleConfigInit,
  type ScheduleReply,
} from "#proto";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, runId } from "../context.ts";
import { parseDuration } from "../duration.ts";
import { timeText } from "../event-text.ts";
import { type ExitCode, exit, UsageError } from "../failure.ts";
import { readInput } from "../input.ts";
import type { Remote } from "../remote.ts";
import { outcomeWord } from "../schedule/names.ts";
import { pointOf, specOf, type TimeOptions } from "../schedule/times.ts";
import { visible } from "../terminal.ts";

interface ConfigOptions extends GlobalOptions, TimeOptions {
  readonly input?: string;
  readonly deadline?: string;
  readonly overlap?: OverlapName;
  readonly catchUp?: string;
  readonly note?: string;
}

export interface CreateOptions extends ConfigOptions {
  readonly paused?: boolean;
}

export interface UpdateOptions extends ConfigOptions {
  readonly type?: string;
}

export interface ReasonOptions extends GlobalOptions {
  readonly reason?: string;
}

export interface BackfillOptions extends GlobalOptions {
  readonly from: string;
  readonly to: string;
  readonly atOnce?: boolean;
}

/** What the options say, and `before` where they are silent. */
async function configOf(options: ConfigOptions & { readonly type?: string }, before?: ScheduleConfig): Promise<ScheduleConfigInit> {
  const { deadline, overlap, catchUp, note, type } = options;
  const data = await readInput(options.input);
  return {
    spec: specOf(options, before?.spec),
    action: {
      ...before?.action,
      ...(type === undefined ? {} : { type }),
      ...(data === undefined ? {} : { input: { data } }),
      ...(deadline === undefined ? {} : { deadlineMs: parseDuration(deadline, "--deadline") }),
    },
    policy: {
      ...before?.policy,
      ...(overlap === undefined ? {} : { overlap: overlapPolicies[overlap] }),
      ...(catchUp === undefined ? {} : { catchUpMs: parseDuration(catchUp, "--catch-up") }),
    },
    note: note ?? before?.note,
  };
}

interface Said {
  readonly id: RunId;
  readonly reply: ScheduleReply;
}

/** One change: what it came to is said to people, and data for programs. */
async function change(
  context: Context,
  options: GlobalOptions,
  commandOf: (remote: Remote) => Promise<ScheduleCommandInit>,
  { id, words }: { readonly id: RunId; readonly words: (said: Said) => string },
): Promise<ExitCode> {
  return withRemote(context, options, async (remote) => {
    const reply = await remote.schedules.change({ ...(await commandOf(remote)), schedule: id } as ScheduleCommandInit);
    const { output } = context;
    if (output.format === "ids") output.line(reply.instance === "" ? id : `${id.slice(0, id.indexOf(":"))}:${reply.instance}`);
    else if (output.isForPeople) output.say(words({ id, reply }));
    else output.json(replyJson({ id, reply }));
    return exit.ok;
  });
}

function replyJson({ id, reply }: Said): object {
  const { next, instance, outcome, count } = reply;
  return {
    schedule: id,
    next: (next?.atMs ?? 0) === 0 ? null : timeText(next?.atMs ?? 0),
    ...(instance === "" ? {} : { instance, outcome: outcomeWord(outcome) }),
    ...(count === 0 ? {} : { instants: count }),
  };
}

const nextText = ({ next }: ScheduleReply) => ((next?.atMs ?? 0) === 0 ? "it fires no more" : `next at ${timeText(next?.atMs ?? 0)}`);

export function scheduleCreate(context: Context, options: CreateOptions, name: string, type: string): Promise<ExitCode> {
  const { paused = false } = options;
  const id = runId(name, options, context.env);
  const made = async (): Promise<ScheduleCommandInit> => ({
    kind: "create",
    value: { config: await configOf({ ...options, type }), paused },
  });
  const words = ({ reply }: Said) => `Created schedule ${visible(id)}${paused ? ", paused" : ""}; ${nextText(reply)}`;
  return change(context, options, made, { id, words });
}

export function scheduleUpdate(context: Context, options: UpdateOptions, name: string): Promise<ExitCode> {
  const id = runId(name, options, context.env);
  const made = async (remote: Remote): Promise<ScheduleCommandInit> => {
    const { schedule } = await remote.schedules.describe(id);
    if (schedule === undefined) throw new HopError("SCHEDULE_NOT_FOUND", `Cannot update schedule ${id}: there is no such schedule`);
    return { kind: "update", value: await configOf(options, schedule.config) };
  };
  return change(context, options, made, { id, words: ({ reply }) => `Changed schedule ${visible(id)}; ${nextText(reply)}` });
}

function noted(kind: "pause" | "resume" | "delete", words: (id: string, reply: ScheduleReply) => string) {
  return (context: Context, options: ReasonOptions, name: string): Promise<ExitCode> => {
    const id = runId(name, options, context.env);
    const made = async (): Promise<ScheduleCommandInit> => ({ kind, value: { reason: options.reason ?? "" } });
    return change(context, options, made, { id, words: ({ reply }) => words(visible(id), reply) });
  };
}

export const schedulePause = noted("pause", (id) => `Paused schedule ${id}`);
export const scheduleResume = noted("resume", (id, reply) => `Schedule ${id} goes on; ${nextText(reply)}`);
export const scheduleDelete = noted("delete", (id) => `Deleted schedule ${id}; its runs go on`);

export function scheduleTrigger(context: Context, options: ReasonOptions, name: string): Promise<ExitCode> {
  const id = runId(name, options, context.env);
  const made = async (): Promise<ScheduleCommandInit> => ({ kind: "trigger", value: { reason: options.reason ?? "" } });
  const words = ({ reply }: Said) =>
    reply.outcome === InstantOutcome.skipped
      ? `Nothing was started: a run of schedule ${visible(id)} is live, and its overlap policy skips`
      : `${reply.outcome === InstantOutcome.started ? "Started" : "Waits for runs that are live:"} ${visible(`${namespaceOf(id)}:${reply.instance}`)}`;
  return change(context, options, made, { id, words });
}

export function scheduleBackfill(context: Context, options: BackfillOptions, name: string): Promise<ExitCode> {
  const id = runId(name, options, context.env);
  const value = { fromMs: pointOf(options.from, "--from"), toMs: pointOf(options.to, "--to"), atOnce: options.atOnce };
  if (value.toMs <= value.fromMs) throw new UsageError(`Cannot fill from ${options.from} to ${options.to}: no time lies between them`);
  const how = options.atOnce === true ? "at once" : "one after the other";
  const words = ({ reply }: Said) => `${reply.count} instants of schedule ${visible(id)} start ${how}`;
  return change(context, options, async () => ({ kind: "backfill", value }), { id, words });
}
