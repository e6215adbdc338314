/** `hop workflow list`. */
import type { RunSummary } from "#proto";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, namespaceName, parseCount } from "../context.ts";
import { formatDuration } from "../duration.ts";
import { timeText } from "../event-text.ts";
import { type ExitCode, exit, UsageError } from "../failure.ts";
import type { Listing, Output } from "../output.ts";
import { allRuns } from "../pages.ts";
import { runJson } from "../shapes.ts";
import { paintStatus, parseStatus, statusWord } from "../status.ts";

export interface ListOptions extends GlobalOptions {
  readonly status?: string;
  readonly type?: string;
  readonly query?: string;
  readonly limit?: string;
  readonly all?: boolean;
}

const limitDefault = 100;
const limitMax = 1_000_000;
/** From this width on times stand in full. */
const wideColumns = 120;

export async function workflowList(context: Context, options: ListOptions): Promise<ExitCode> {
  if (options.all === true && options.limit !== undefined)
    throw new UsageError("Cannot list with both --all and --limit: want one of them");
  const limit =
    options.all === true ? Number.POSITIVE_INFINITY : (parseCount(options.limit, "limit", { min: 1, max: limitMax }) ?? limitDefault);
  const status = parseStatus(options.status);
  const namespace = namespaceName(options, context.env);
  return withRemote(context, options, async (remote) => {
    const filter = { namespace, status, type: options.type ?? "", query: options.query ?? "" };
    // One more than is wanted says whether there are more.
    const runs = await allRuns(remote, filter, limit + 1);
    context.output.list(runs.slice(0, limit), listing(context.output));
    if (runs.length > limit && context.output.isForPeople) context.output.say(`There are more: list them with --limit or --all`);
    return exit.ok;
  });
}

function listing(output: Output): Listing<RunSummary> {
  const nowMs = Date.now();
  const isNarrow = (output.out.columns ?? Number.POSITIVE_INFINITY) < wideColumns;
  return {
    columns: [
      // Never cut: it is there to be copied.
      { title: "RUN", value: (run) => run.run },
      { title: "GEN", value: (run) => String(run.generation), align: "right" },
      { title: "TYPE", value: (run) => run.type, shrink: true },
      { title: "STATUS", value: (run) => statusWord(run.status), paint: (text, run) => paintStatus(output.paint, run.status, text) },
      isNarrow
        ? { title: "AGE", value: (run) => formatDuration(Math.max(0, nowMs - run.startedMs)), align: "right" }
        : { title: "STARTED", value: (run) => timeText(run.startedMs) },
      {
        title: "TOOK",
        value: (run) => (run.closedMs === 0 ? "" : formatDuration(Math.max(0, run.closedMs - run.startedMs))),
        align: "right",
        drop: true,
      },
      { title: "NOTE", value: (run) => run.note, shrink: true, drop: true },
    ],
    id: (run) => run.run,
    json: runJson,
    empty: "No runs",
  };
}
