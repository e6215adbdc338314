/** `hop sql --cold`: asks what is sealed in object storage, without a server. */

import { cacheFolder } from "../assets/assets.ts";
import type { Cell } from "../cold/cells.ts";
import { type ColdOptions, ColdPlace } from "../cold/cold-place.ts";
import { csvLine } from "../cold/csv.ts";
import { type Answer, ColdDatabase } from "../cold/database.ts";
import { loadDuckDB } from "../cold/duckdb.ts";
import { conditionOf, type EventFilter, type FilterOptions, filterOf } from "../cold/event-filter.ts";
import { matchingSegments } from "../cold/sealed-segments.ts";
import { SegmentFiles } from "../cold/segment-files.ts";
import { type Context, InterruptedError, orInterrupted, parseCount, timeoutMs } from "../context.ts";
import { formatDuration } from "../duration.ts";
import { timeText } from "../event-text.ts";
import { CommandError, type ExitCode, exit, UsageError } from "../failure.ts";
import { readStdin } from "../input.ts";
import type { Output } from "../output.ts";
import { bytesText, parseSize } from "../size.ts";
import type { Column } from "../table.ts";
import { safeText } from "../terminal.ts";

export interface SqlOptions extends FilterOptions, ColdOptions {
  readonly cold?: boolean;
  readonly csv?: boolean;
  readonly limit?: string;
  readonly all?: boolean;
  readonly memory?: string;
  readonly cacheSize?: string;
}

const limitDefault = 1000;
const limitMax = 1_000_000;
const memoryDefault = "1GiB";
const cacheDefault = "16GiB";

export async function sql(context: Context, options: SqlOptions, query: string): Promise<ExitCode> {
  if (options.cold !== true)
    throw new UsageError("Cannot query without --cold: SQL reads what is sealed in object storage, and nothing else", {
      next: "add --cold, or see the newest runs with `hop workflow list`",
    });
  if (options.csv === true && options.output !== undefined && options.output !== "table")
    throw new UsageError(`Cannot write both --csv and -o ${options.output}: want one of them`);
  if (options.all === true && options.limit !== undefined)
    throw new UsageError("Cannot query with both --all and --limit: want one of them");
  const plan: Plan = {
    query: query === "-" ? await readStdin() : query,
    filter: filterOf(options, context.env, Date.now()),
    limit: options.all === true ? undefined : (parseCount(options.limit, "limit", { min: 1, max: limitMax }) ?? limitDefault),
    isCsv: options.csv === true,
    memoryBytesMax: parseSize(options.memory ?? memoryDefault, "--memory"),
    cacheBytesMax: parseSize(options.cacheSize ?? cacheDefault, "--cache-size"),
    signal: AbortSignal.any([context.interrupt, ...timeouts(options)]),
  };
  try {
    await using place = await ColdPlace.open(options, context.env);
    await run(context, place, plan);
    return exit.ok;
  } catch (error) {
    if (context.interrupt.aborted) throw new InterruptedError("Interrupted", { cause: error });
    if (plan.signal.aborted)
      throw new CommandError(exit.unavailable, `Cannot finish within ${formatDuration(timeoutMs(options))}`, {
        next: "narrow the query with --since, --until, --namespace or --run, or try again with a longer --timeout",
        cause: error,
      });
    throw error;
  }
}

interface Plan {
  readonly query: string;
  readonly filter: EventFilter;
  readonly limit: number | undefined;
  readonly isCsv: boolean;
  readonly memoryBytesMax: number;
  readonly cacheBytesMax: number;
  readonly signal: AbortSignal;
}

function timeouts(options: SqlOptions): AbortSignal[] {
  const ms = timeoutMs(options);
  return ms === 0 ? [] : [AbortSignal.timeout(ms)];
}

async function run({ output, env }: Context, place: ColdPlace, plan: Plan): Promise<void> {
  const { filter, signal, cacheBytesMax, memoryBytesMax } = plan;
  const progress = output.progress();
  try {
    progress.update("reading manifests");
    const manifests = await orInterrupted(signal, place.newestManifests());
    const all = manifests.flatMap(({ segments }) => segments);
    const entries = await orInterrupted(signal, matchingSegments(place.objects, manifests, filter));
    const bytes = sumOf(entries);
    let done = 0;
    const each = (more: number) => {
      done += more;
      progress.update(`checking segments: ${bytesText(done)} of ${bytesText(bytes)}`);
    };
    using files = SegmentFiles.open({ place, cache: cacheFolder(env), cacheBytesMax, signal, each });
    const paths = await files.paths(entries);
    progress.update("querying");
    await using database = await ColdDatabase.open({ duckdb: await loadDuckDB(), paths, condition: conditionOf(filter), memoryBytesMax });
    // One more than is shown tells that there are more.
    const answer = await database.query(plan.query, { rowsMax: plan.limit === undefined ? undefined : plan.limit + 1, signal });
    const { isCut } = await show(output, answer, plan);
    progress.done();
    if (isCut) output.say(`There are more rows than ${plan.limit}: see them with --limit or --all`);
    if (!output.isForPeople) return;
    const newest = Math.max(...manifests.map(({ clockMs }) => clockMs));
    const fetched = place.folder === undefined ? `, ${bytesText(files.bytesFetched)} of it fetched` : "";
    output.say(
      `Read ${entries.length} of ${all.length} segments (${bytesText(bytes)} of ${bytesText(sumOf(all))}${fetched}); the newest sealed event is of ${timeText(newest)}`,
    );
  } finally {
    progress.done();
  }
}

const sumOf = (entries: readonly { readonly summary: { readonly segmentBytes: number } }[]) =>
  entries.reduce((sum, { summary }) => sum + summary.segmentBytes, 0);

/** Writes at most `limit` rows, and reads the answer to its end. */
async function show(output: Output, { columns, rows }: Answer, { limit, isCsv }: Plan): Promise<{ isCut: boolean }> {
  const left = limit ?? Number.POSITIVE_INFINITY;
  const writer = isCsv ? csvRows(output, columns) : writers[output.format](output, columns);
  let count = 0;
  for await (const chunk of rows) {
    const wanted = chunk.slice(0, Math.max(0, left - count));
    count += chunk.length;
    if (wanted.length > 0) output.progress().done();
    for (const row of wanted) writer.row(row);
  }
  output.progress().done();
  writer.end();
  return { isCut: count > left };
}

interface Rows {
  row(cells: readonly Cell[]): void;
  end(): void;
}

type RowsIn = (output: Output, columns: readonly string[]) => Rows;

const texts = (cells: readonly Cell[]) => cells.map(({ text }) => text);

const csvRows: RowsIn = (output, columns) => {
  output.line(csvLine(columns));
  return { row: (cells) => output.line(csvLine(texts(cells))), end: () => {} };
};

const objectText = (columns: readonly string[], cells: readonly Cell[]) =>
  safeText(`{${columns.map((name, i) => `${JSON.stringify(name)}:${cells[i]?.json ?? "null"}`).join(",")}}`);

const writers: Readonly<Record<Output["format"], RowsIn>> = {
  table: (output, columns) => {
    const kept: (readonly Cell[])[] = [];
    const shown = columns.map((title, i): Column<readonly Cell[]> => ({ title, value: (cells) => cells[i]?.text ?? "", shrink: true }));
    const end = () => (kept.length === 0 ? output.say("No rows") : output.table(shown, kept));
    return { row: (cells) => void kept.push(cells), end };
  },
  json: (output, columns) => {
    let last: string | undefined;
    const row = (cells: readonly Cell[]) => {
      output.line(last === undefined ? "[" : `  ${last},`);
      last = objectText(columns, cells);
    };
    return { row, end: () => output.line(last === undefined ? "[]" : `  ${last}\n]`) };
  },
  jsonl: (output, columns) => ({ row: (cells) => output.line(objectText(columns, cells)), end: () => {} }),
  // The first column, as it is.
  ids: (output) => ({ row: ([first]) => output.line(first?.text ?? ""), end: () => {} }),
};
