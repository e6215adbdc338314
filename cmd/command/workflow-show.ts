/** `hop workflow show`: a run, how it stands, and what it waits for. */

import { addressText, HopError, type RunId, toHex } from "#core/base";
import { type CompensationSummary, type DescribeReply, type PendingSummary, type QueuedStart, RunStatus, type RunSummary } from "#proto";
import { starterText } from "../child-events.ts";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, runAddress, runId } from "../context.ts";
import { formatDuration } from "../duration.ts";
import { shortHash, timeText } from "../event-text.ts";
import { type ExitCode, exit, reasonOf } from "../failure.ts";
import { kindName } from "../history.ts";
import type { Output } from "../output.ts";
import { outcomeText, payloadBytes, type Remote } from "../remote.ts";
import { describeJson, outcomeJson, searchableOf, triggerWord } from "../shapes.ts";
import { hasEnded, paintStatus, statusWord } from "../status.ts";
import type { Column } from "../table.ts";
import { safeText, visible, visibleLines } from "../terminal.ts";

export async function workflowShow(context: Context, options: GlobalOptions, run: string): Promise<ExitCode> {
  const id = runAddress(run, options, context.env);
  return withRemote(context, options, async (remote) => {
    const reply = await remote.describe(id);
    if (reply.summary === undefined) throw new HopError("RUN_NOT_FOUND", `Cannot show ${id}: there is no such run`);
    const result = await resultBytes(remote, reply);
    const { output } = context;
    if (output.format === "ids") output.line(reply.summary.run);
    else if (output.isForPeople) {
      const name = runId(run, options, context.env);
      show(output, reply.summary, reply, { name, result, lacksWorker: await hasNoWorker(remote, reply) });
    } else
      output.json(
        describeJson(reply, reply.outcome === undefined || !hasEnded(reply.outcome.status) ? null : outcomeJson(reply.outcome, result)),
      );
    return exit.ok;
  });
}

/** What is known of a run beside its description. */
interface Known {
  /** Of all its starts: the id without a ticket. */
  readonly name: RunId;
  readonly result: Uint8Array | undefined;
  readonly lacksWorker: boolean;
}

const probeName = "hop.workflow.show";
const probeMsMax = 1000;

/** Whether a run that waits for nothing of its own has no worker to go on in: a query is refused at once then, whatever its name. */
async function hasNoWorker(remote: Remote, { summary, pending }: DescribeReply): Promise<boolean> {
  if (summary === undefined || summary.status !== RunStatus.running || pending.length > 0) return false;
  const refusal = remote.query({ run: summary.run, name: probeName }).then(
    () => undefined,
    (error: unknown) => reasonOf(error),
  );
  return (await Promise.race([refusal, Bun.sleep(probeMsMax)])) === "STORE_UNAVAILABLE";
}

async function resultBytes(remote: Remote, reply: DescribeReply): Promise<Uint8Array | undefined> {
  return reply.outcome?.status === RunStatus.completed ? payloadBytes(remote, reply.outcome.result) : undefined;
}

function show(output: Output, run: RunSummary, reply: DescribeReply, known: Known): void {
  const { name, result, lacksWorker } = known;
  output.field("run", visible(run.run));
  if (run.generation > 0) output.field("generation", String(run.generation));
  output.field("type", visible(run.type));
  if (reply.startedBy !== undefined) output.field("parent", visible(starterText(reply.startedBy)));
  output.field(
    "status",
    paintStatus(output.paint, run.status, statusWord(run.status)) + (reply.cancelRequested ? " (cancel requested)" : ""),
  );
  output.field("note", visibleLines(run.note));
  for (const [name, value] of Object.entries(searchableOf(run))) output.field("searchable", `${name} = ${visible(JSON.stringify(value))}`);
  if (run.startedMs > 0) output.field("started", timeText(run.startedMs));
  if (run.closedMs > 0)
    output.field("ended", `${timeText(run.closedMs)}, after ${formatDuration(Math.max(0, run.closedMs - run.startedMs))}`);
  if (reply.deadlineAtMs > 0) output.field("deadline", timeText(reply.deadlineAtMs));
  if (run.bundle.length > 0) output.field("bundle", shortHash(run.bundle));
  const gone = reply.expiredEnd === 0 ? "" : `; retention took the first ${reply.expiredEnd} away, see \`hop audit\``;
  output.field("history", `${reply.size} events, root ${toHex(reply.root)}${gone}`);
  if (result !== undefined) output.field("result", result.length === 0 ? "null" : visible(safeText(new TextDecoder().decode(result))));
  else if (reply.outcome !== undefined && hasEnded(reply.outcome.status)) output.field("outcome", outcomeText(reply.outcome));
  if (reply.deadLetter.length > 0) output.field("dead", `${reply.deadLetter.length} compensations failed for good, see \`hop dlq list\``);
  if (lacksWorker) output.field("waits for", "a worker: none that runs workflows is connected");
  if (reply.pending.length > 0) {
    output.line("");
    output.table(pendingColumns, reply.pending);
  }
  if (reply.compensation.length > 0) {
    output.line("");
    output.table(compensationColumns, reply.compensation);
  }
  if (reply.queue.length === 0) return;
  output.line("");
  output.table(queueColumns(name), reply.queue);
}

const queueColumns = (run: RunId): readonly Column<QueuedStart>[] => [
  { title: "QUEUED", value: ({ ticket }) => addressText({ run, ticket }) },
  { title: "TYPE", value: ({ type }) => type, shrink: true },
  { title: "SINCE", value: ({ queuedMs }) => timeText(queuedMs) },
  { title: "UNTIL", value: ({ expiresAtMs }) => (expiresAtMs === 0 ? "" : timeText(expiresAtMs)) },
  { title: "SIGNALS", value: ({ signals }) => (signals === 0 ? "" : String(signals)), align: "right" },
];

const compensationColumns: readonly Column<CompensationSummary>[] = [
  { title: "OP", value: ({ op }) => String(op), align: "right" },
  { title: "OWED", value: ({ name }) => name, shrink: true },
  { title: "WHEN", value: ({ trigger }) => triggerWord(trigger) },
];

const pendingColumns: readonly Column<PendingSummary>[] = [
  { title: "OP", value: (op) => String(op.op), align: "right" },
  { title: "WAITS FOR", value: (op) => op.waitsFor || kindName(op.kind), shrink: true },
  { title: "NAME", value: (op) => op.name, shrink: true },
  { title: "ATTEMPT", value: (op) => (op.attempt === 0 ? "" : String(op.attempt)), align: "right" },
  { title: "DUE", value: (op) => (op.dueMs === 0 ? "" : timeText(op.dueMs)) },
  { title: "LAST FAILURE", value: (op) => op.lastFailure, shrink: true },
];
