/** `hop schedule list`, `show` and `preview`. */
import { HopError, namespaceOf, type RunId, toHex, type ZoneReader } from "#core/base";
import { dueMsOf, fires, specProblem } from "#core/schedule";
import {
  type DescribeReply,
  decodeScheduleSpec,
  encodeScheduleSpec,
  fromBytes,
  RunStatus,
  type RunSummary,
  type ScheduleFire,
  type ScheduleSpec,
  type ScheduleState,
  toBytes,
} from "#proto";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, namespaceName, parseCount, runId } from "../context.ts";
import { formatDuration } from "../duration.ts";
import { timeText } from "../event-text.ts";
import { type ExitCode, exit, UsageError } from "../failure.ts";
import type { Output } from "../output.ts";
import { inParallel } from "../parallel.ts";
import type { Remote } from "../remote.ts";
import { outcomeWord, overlapWord } from "../schedule/names.ts";
import { timesText } from "../schedule/spec-text.ts";
import { changeTexts, localText, pointOf, specOf, type TimeOptions } from "../schedule/times.ts";
import { statusWord } from "../status.ts";
import type { Column } from "../table.ts";
import { visible, visibleLines } from "../terminal.ts";

export interface ListOptions extends GlobalOptions {
  readonly limit?: string;
}

export interface PreviewOptions extends GlobalOptions, TimeOptions {
  readonly count?: string;
  readonly after?: string;
}

const listMax = 1000;
const previewMax = 1000;
/** Descriptions that are asked for at a time. */
const askedMax = 16;

const addressOf = (row: Pick<RunSummary, "run">) => row.run.replace(/^sched\//, "") as RunId;

interface Row {
  readonly id: RunId;
  readonly state: ScheduleState;
}

export async function scheduleList(context: Context, options: ListOptions): Promise<ExitCode> {
  const limit = parseCount(options.limit, "limit", { min: 1, max: listMax }) ?? 100;
  const namespace = namespaceName(options, context.env);
  return withRemote(context, options, async (remote) => {
    const page = await remote.schedules.list({ namespace, limit });
    context.output.list(await described(remote, page.run), {
      columns: [
        { title: "SCHEDULE", value: ({ id }) => id },
        { title: "TYPE", value: ({ state }) => state.config?.action?.type ?? "", shrink: true },
        { title: "TIMES", value: ({ state }) => timesOf(state), shrink: true },
        { title: "NEXT", value: ({ state }) => nextText(state) },
        { title: "LAST", value: ({ state }) => lastText(state), drop: true },
        { title: "NOTE", value: ({ state }) => state.config?.note ?? "", shrink: true, drop: true },
      ],
      id: ({ id }) => id,
      json: ({ id, state }) => stateJson(id, state),
      empty: "No schedules",
    });
    if (page.nextPageToken !== "" && context.output.isForPeople) context.output.say("There are more: list them with --limit");
    return exit.ok;
  });
}

async function described(remote: Remote, rows: readonly RunSummary[]): Promise<Row[]> {
  const found = await inParallel(rows, askedMax, async (row): Promise<Row[]> => {
    const id = addressOf(row);
    const state = await stateOf(remote, id);
    return state === undefined ? [] : [{ id, state }];
  });
  return found.flat();
}

/** Undefined: it was deleted meanwhile. */
async function stateOf(remote: Remote, id: RunId): Promise<ScheduleState | undefined> {
  try {
    return (await remote.schedules.describe(id)).schedule;
  } catch (error) {
    if ((error as { reason?: string }).reason === "SCHEDULE_NOT_FOUND") return undefined;
    throw error;
  }
}

const timesOf = ({ config }: ScheduleState) => (config?.spec === undefined ? "" : timesText(config.spec));
const nextMs = ({ next, paused }: ScheduleState) => (paused ? 0 : (next?.atMs ?? 0));
const nextText = (state: ScheduleState) => (state.paused ? "paused" : nextMs(state) === 0 ? "no more" : timeText(nextMs(state)));
const lastText = ({ recent }: ScheduleState) => {
  const last = recent.at(-1);
  return last === undefined ? "" : fireText(last);
};
const fireText = ({ outcome, status }: ScheduleFire) => (status === RunStatus.unspecified ? outcomeWord(outcome) : statusWord(status));

function stateJson(id: RunId, state: ScheduleState): object {
  const { config, paused, pauseReason, waiting, counts, recent } = state;
  const { spec, action, policy, note } = config ?? {};
  return {
    schedule: id,
    type: action?.type ?? "",
    times: spec === undefined ? null : specJson(spec),
    overlap: overlapWord(policy?.overlap ?? 0),
    catchUpMs: policy?.catchUpMs ?? 0,
    note: note ?? "",
    paused,
    ...(paused ? { pauseReason } : {}),
    next: nextMs(state) === 0 ? null : timeText(nextMs(state)),
    waiting: waiting.map(({ instance }) => instance),
    counts,
    recent: recent.map((fire) => ({ at: timeText(fire.atMs), instance: fire.instance, what: fireText(fire) })),
  };
}

function specJson({ cron, zone, skipped, repeated, everyMs, offsetMs, atMs, fromMs, untilMs, jitterMs }: ScheduleSpec): object {
  return {
    cron,
    zone: zone === "" ? "UTC" : zone,
    skipped: skipped === 0 ? "next" : "skip",
    repeated: ["first", "last", "both"][repeated] ?? "first",
    everyMs,
    offsetMs,
    at: atMs.map(timeText),
    from: fromMs === 0 ? null : timeText(fromMs),
    until: untilMs === 0 ? null : timeText(untilMs),
    jitterMs,
  };
}

export async function scheduleShow(context: Context, options: GlobalOptions, name: string): Promise<ExitCode> {
  const id = runId(name, options, context.env);
  return withRemote(context, options, async (remote) => {
    const reply = await remote.schedules.describe(id);
    const { output } = context;
    if (reply.schedule === undefined) throw new HopError("SCHEDULE_NOT_FOUND", `Cannot show schedule ${id}: there is no such schedule`);
    if (output.format === "ids") output.line(id);
    else if (output.isForPeople) show(output, { id, reply, state: reply.schedule });
    else
      output.json({ ...stateJson(id, reply.schedule), size: reply.size, root: toHex(reply.root), live: reply.pending.map(({ to }) => to) });
    return exit.ok;
  });
}

function show(output: Output, { id, reply, state }: Row & { readonly reply: DescribeReply }): void {
  const { config, paused, pauseReason, waiting, recent } = state;
  const { spec, action, policy, note = "" } = config ?? {};
  const counts = state.counts ?? { started: 0, skipped: 0, missed: 0, refused: 0 };
  output.field("schedule", visible(id));
  output.field("starts", visible(action?.type ?? ""));
  output.field("times", timesOf(state));
  if ((spec?.jitterMs ?? 0) > 0) output.field("jitter", `up to ${formatDuration(spec?.jitterMs ?? 0)}`);
  output.field("overlap", overlapWord(policy?.overlap ?? 0));
  output.field("catch up", `what is due for ${formatDuration(policy?.catchUpMs ?? 0)} at most`);
  output.field("note", visibleLines(note));
  output.field("next", paused ? `paused${pauseReason === "" ? "" : `: ${visibleLines(pauseReason)}`}` : nextText(state));
  if (reply.pending.length > 0) output.field("live", reply.pending.map(({ to }) => visible(to)).join(", "));
  if (waiting.length > 0) output.field("waiting", `${waiting.length} instants`);
  output.field("so far", `${counts.started} started, ${counts.skipped} skipped, ${counts.missed} missed, ${counts.refused} refused`);
  output.field("history", `${reply.size} events, root ${toHex(reply.root)}`);
  if (recent.length === 0) return;
  output.line("");
  output.table(fireColumns(namespaceOf(id)), recent.toReversed());
}

const fireColumns = (namespace: string): readonly Column<ScheduleFire>[] => [
  { title: "INSTANT", value: ({ atMs }) => timeText(atMs) },
  { title: "RUN", value: ({ instance }) => `${namespace}:${instance}` },
  { title: "WHAT", value: fireText },
];

interface Previewed {
  readonly atMs: number;
  readonly dueMs: number;
  readonly change: string;
}

/** With times it needs no server; with a schedule's name, the times are those of that schedule. */
export async function schedulePreview(context: Context, options: PreviewOptions, name: string | undefined): Promise<ExitCode> {
  const isGiven = options.cron !== undefined || options.every !== undefined || options.at !== undefined;
  if (!isGiven && name === undefined)
    throw new UsageError("Cannot preview: no times were given; want --cron, --every or --at, or a schedule's name");
  const id = name === undefined ? undefined : runId(name, options, context.env);
  const spec =
    isGiven || id === undefined ? complete(specOf(options)) : await withRemote(context, options, (remote) => specAt(remote, id, options));
  const after = options.after === undefined ? Date.now() : pointOf(options.after, "--after");
  // Zones come with the whole of a node, which no other of these commands needs.
  const { zones } = await import("#node");
  const problem = specProblem(spec, zones, after);
  if (problem !== undefined) throw new UsageError(`Cannot preview the schedule: ${problem}`);
  const count = parseCount(options.count, "count", { min: 1, max: previewMax }) ?? 10;
  showInstants(context.output, { spec, zones }, instants({ spec, zones, id: id ?? "" }, { after, count }));
  return exit.ok;
}

const complete = (spec: Parameters<typeof encodeScheduleSpec>[1]): ScheduleSpec =>
  fromBytes(decodeScheduleSpec, toBytes(encodeScheduleSpec, spec));

async function specAt(remote: Remote, id: RunId, options: TimeOptions): Promise<ScheduleSpec> {
  const { schedule } = await remote.schedules.describe(id);
  return complete(specOf(options, schedule?.config?.spec));
}

interface InZones {
  readonly spec: ScheduleSpec;
  readonly zones: ZoneReader;
}

function instants(
  table: InZones & { readonly id: string },
  { after, count }: { readonly after: number; readonly count: number },
): Previewed[] {
  return fires(table.spec, table.zones, after, count).map(({ atMs, change = "" }) => {
    return { atMs, dueMs: dueMsOf(table, atMs), change };
  });
}

function showInstants(output: Output, { spec, zones }: InZones, found: readonly Previewed[]): void {
  const zone = spec.zone === "" ? "UTC" : spec.zone;
  const aheadMs = (atMs: number) => (spec.zone === "" ? 0 : (zones.offsetMs(spec.zone, atMs) ?? 0));
  output.list(found, {
    columns: [
      { title: "INSTANT", value: ({ atMs }) => timeText(atMs) },
      { title: zone.toUpperCase(), value: ({ atMs }) => localText(atMs, aheadMs(atMs)) },
      ...(spec.jitterMs > 0 ? [{ title: "STARTS", value: ({ dueMs }: Previewed) => timeText(dueMs) }] : []),
      { title: "CHANGE OF CLOCKS", value: ({ change }) => changeTexts[change] ?? "", shrink: true },
    ],
    id: ({ atMs }) => timeText(atMs),
    json: ({ atMs, dueMs, change }) => ({
      at: timeText(atMs),
      local: localText(atMs, aheadMs(atMs)),
      zone,
      startsAt: timeText(dueMs),
      change: change === "" ? null : change,
    }),
    empty: "It fires no more",
  });
}
