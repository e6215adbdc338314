/** `hop channel list`, `show` and `read`. */
import { HopError, limits, type Partition, type RunId, runOf, toHex } from "#core/base";
import { type ChannelReader, type ChannelState, Reducer, RunStatus, type RunSummary, reducerName } from "#proto";
import type { ChannelDescription } from "#sdk/client";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, namespaceName, parseCount, runId } from "../context.ts";
import { formatDuration } from "../duration.ts";
import { timeText } from "../event-text.ts";
import { type ExitCode, exit } from "../failure.ts";
import type { Output } from "../output.ts";
import { inParallel } from "../parallel.ts";
import type { Remote } from "../remote.ts";
import { bytesText } from "../size.ts";
import { printLines } from "../stream-lines.ts";
import type { Column } from "../table.ts";
import { visible, visibleLines } from "../terminal.ts";

export interface ListOptions extends GlobalOptions {
  readonly limit?: string;
}

export interface ReadOptions extends GlobalOptions {
  readonly from?: string;
  readonly follow?: boolean;
}

const listMax = 1000;
/** Descriptions that are asked for at a time. */
const askedMax = 16;

const addressOf = ({ run }: Pick<RunSummary, "run">) => run.replace(/^chan\//, "") as RunId;

interface Row {
  readonly id: RunId;
  readonly state: ChannelState;
  readonly waiting: number;
}

export async function channelList(context: Context, options: ListOptions): Promise<ExitCode> {
  const limit = parseCount(options.limit, "limit", { min: 1, max: listMax }) ?? 100;
  const namespace = namespaceName(options, context.env);
  return withRemote(context, options, async (remote) => {
    const page = await remote.channels.list({ namespace, limit });
    context.output.list(await described(remote, page.run), {
      columns: [
        { title: "CHANNEL", value: ({ id }) => id },
        { title: "REDUCER", value: ({ state }) => reducerName(state.config?.reducer ?? 0) },
        { title: "MESSAGES", value: ({ state }) => `${state.nextOffset}` },
        { title: "WAITING", value: ({ waiting }) => `${waiting}` },
        { title: "READERS", value: ({ state }) => `${state.reader.length}` },
        { title: "NOTE", value: ({ state }) => state.config?.note ?? "", shrink: true, drop: true },
      ],
      id: ({ id }) => id,
      json: ({ id, state, waiting }) => stateJson(id, state, waiting),
      empty: "No channels",
    });
    if (page.nextPageToken !== "" && context.output.isForPeople) context.output.say("There are more: list them with --limit");
    return exit.ok;
  });
}

async function described(remote: Remote, rows: readonly RunSummary[]): Promise<Row[]> {
  const found = await inParallel(rows, askedMax, async (row): Promise<Row[]> => {
    const id = addressOf(row);
    const { channel: state, keptMessages: waiting } = await remote.channels.describe(id);
    return state === undefined ? [] : [{ id, state, waiting }];
  });
  return found.flat();
}

function stateJson(id: RunId, state: ChannelState, waiting: number): object {
  const { config, nextOffset, keptBytes, reader, total, dropped } = state;
  const reducer = config?.reducer ?? Reducer.none;
  return {
    channel: id,
    reducer: reducerName(reducer),
    nextOffset,
    waiting,
    waitingBytes: keptBytes,
    ...(reducer === Reducer.none ? {} : { total: { count: total?.count ?? 0, value: parsedValue(total?.value) } }),
    dropped,
    expireMs: config?.expireMs ?? 0,
    messagesMax: config?.messagesMax || limits.channelMessages,
    bytesMax: config?.bytesMax || limits.channelBytes,
    note: config?.note ?? "",
    readers: reader.map((one) => ({ run: runOf(one.partition as Partition), offset: one.offset, waits: one.op > 0 })),
  };
}

const parsedValue = (json: string | undefined): unknown => (json === undefined || json === "" ? null : JSON.parse(json));

export async function channelShow(context: Context, options: GlobalOptions, name: string): Promise<ExitCode> {
  const id = runId(name, options, context.env);
  return withRemote(context, options, async (remote) => {
    const reply = await remote.channels.describe(id);
    const { output } = context;
    const { channel: state } = reply;
    if (state === undefined) throw new HopError("CHANNEL_NOT_FOUND", `Cannot show channel ${id}: there is no such channel`);
    const isOpen = reply.summary?.status === RunStatus.running;
    if (output.format === "ids") output.line(id);
    else if (output.isForPeople) show(output, { id, state, reply, isOpen });
    else output.json({ ...stateJson(id, state, reply.keptMessages), open: isOpen, size: reply.size, root: toHex(reply.root) });
    return exit.ok;
  });
}

interface Shown {
  readonly id: RunId;
  readonly state: ChannelState;
  readonly reply: ChannelDescription;
  readonly isOpen: boolean;
}

function show(output: Output, { id, state, reply, isOpen }: Shown): void {
  const { config, nextOffset, keptBytes, reader, total, dropped } = state;
  const reducer = config?.reducer ?? Reducer.none;
  const note = reply.summary?.note ?? "";
  output.field("channel", visible(id));
  if (!isOpen) output.field("closed", `${timeText(reply.summary?.closedMs ?? 0)}${note === "" ? "" : `: ${visibleLines(note)}`}`);
  output.field("messages", `${nextOffset}${dropped > 0 ? `, ${dropped} dropped before every reader had them` : ""}`);
  if (reducer === Reducer.none) {
    const bounds = `at most ${config?.messagesMax || limits.channelMessages} of ${bytesText(config?.bytesMax || limits.channelBytes)}`;
    output.field("waiting", `${reply.keptMessages} of ${bytesText(keptBytes)}, ${bounds}`);
  } else output.field(reducerName(reducer), `${total?.value || "nothing"} of ${total?.count ?? 0} messages`);
  if ((config?.expireMs ?? 0) > 0) output.field("expire", `after ${formatDuration(config?.expireMs ?? 0)}`);
  output.field("note", visibleLines(config?.note ?? ""));
  output.field("history", `${reply.size} events, root ${toHex(reply.root)}`);
  if (reader.length === 0) return;
  output.line("");
  output.table(readerColumns(nextOffset), reader);
}

const readerColumns = (nextOffset: number): readonly Column<ChannelReader>[] => [
  { title: "READER", value: ({ partition }) => runOf(partition as Partition) },
  { title: "HAS ALL BEFORE", value: ({ offset }) => `${offset}` },
  { title: "BEHIND", value: ({ offset }) => `${Math.max(0, nextOffset - offset)}` },
  { title: "STATE", value: ({ op }) => (op > 0 ? "waits" : "busy") },
];

export async function channelRead(context: Context, options: ReadOptions, name: string): Promise<ExitCode> {
  const channel = runId(name, options, context.env);
  const fromOffset = parseCount(options.from, "from", { min: 0, max: Number.MAX_SAFE_INTEGER }) ?? 0;
  return withRemote(context, options, async (remote) => {
    await printLines(context, remote, {
      request: { run: channel, channel: true, fromOffset, untilNow: options.follow !== true },
      field: "message",
      again: (offset) => `hop channel read ${visible(channel)} --from ${offset}`,
    });
    return exit.ok;
  });
}
