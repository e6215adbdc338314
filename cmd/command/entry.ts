/** `hop namespace` and `hop policy`: versioned entries of the cluster, who changed them and when. */
import type { ClusterEntry } from "#proto";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, parseCount } from "../context.ts";
import { timeText } from "../event-text.ts";
import { type ExitCode, exit, UsageError } from "../failure.ts";
import { whoText } from "../history.ts";
import { readInput } from "../input.ts";
import type { Listing } from "../output.ts";
import { allPages } from "../pages.ts";
import { showPayload } from "../remote.ts";
import { payloadJson } from "../shapes.ts";
import { type PageOptions, rowsMax } from "./cluster.ts";
import { retentionChange, withRetention } from "./namespace-retention.ts";

export type EntryClass = "namespace" | "policy";

export interface SetOptions extends GlobalOptions {
  readonly input?: string;
  readonly expect?: string;
  /** Of namespaces. */
  readonly retention?: string;
  readonly type?: string;
}

/** Commands of one class of entries. */
export function entryCommands(of: EntryClass) {
  return {
    set: (context: Context, options: SetOptions, name: string) => set(context, options, { class: of, name }),
    get: (context: Context, options: GlobalOptions, name: string) => get(context, options, { class: of, name }),
    list: (context: Context, options: PageOptions) => list(context, options, of),
  };
}

interface Named {
  readonly class: EntryClass;
  readonly name: string;
}

async function set(context: Context, options: SetOptions, named: Named): Promise<ExitCode> {
  const expected = parseCount(options.expect, "expect", { min: 0, max: Number.MAX_SAFE_INTEGER });
  const input = await readInput(options.input);
  const change = retentionChange(options);
  if ((input === undefined) === (change === undefined)) {
    const want = named.class === "namespace" ? "want its value as --input, or --retention" : "want its value as --input";
    throw new UsageError(`Cannot set ${named.class} ${JSON.stringify(named.name)}: ${want}`);
  }
  return withRemote(context, options, async ({ cluster }) => {
    const { value, version: known } = change === undefined ? { value: input } : await withRetention(cluster, named.name, change);
    const wanted = expected ?? known;
    const checked = wanted === undefined ? {} : { expectedVersion: wanted, checked: true };
    const version = await cluster.setEntry({ ...named, ...checked, value });
    const { output } = context;
    if (change?.retentionMs !== undefined && output.isForPeople)
      output.say("histories go where they are sealed: on clusters whose nodes have --object-store");
    if (output.format === "ids") output.line(named.name);
    else if (output.isForPeople) output.line(String(version));
    else output.json({ ...named, version });
    return exit.ok;
  });
}

async function get(context: Context, options: GlobalOptions, named: Named): Promise<ExitCode> {
  return withRemote(context, options, async ({ cluster }) => {
    const entry = await cluster.entry(named);
    const { output } = context;
    if (output.format === "ids") output.line(entry.name);
    else if (output.isForPeople) {
      showPayload(output, entry.value);
      output.say(`version ${entry.version}, ${changedText(entry)}`);
    } else output.json(entryJson(entry));
    return exit.ok;
  });
}

async function list(context: Context, options: PageOptions, of: EntryClass): Promise<ExitCode> {
  const limit = parseCount(options.limit, "limit", { min: 1, max: rowsMax }) ?? rowsMax;
  return withRemote(context, options, async ({ cluster }) => {
    const entries = await allPages(limit, async (page) => {
      const reply = await cluster.entries({ ...page, class: of });
      return { items: reply.entry, next: reply.nextPageToken };
    });
    context.output.list(entries, listing(of));
    return exit.ok;
  });
}

const changedText = ({ identity, changedMs }: ClusterEntry) => `changed by ${whoText(identity)} at ${timeText(changedMs)}`;

function listing(of: EntryClass): Listing<ClusterEntry> {
  return {
    columns: [
      { title: "NAME", value: ({ name }) => name },
      { title: "VERSION", value: ({ version }) => String(version), align: "right" },
      { title: "VALUE", value: ({ value }) => new TextDecoder().decode(value), shrink: true },
      { title: "CHANGED BY", value: ({ identity }) => whoText(identity), drop: true },
      { title: "AT", value: ({ changedMs }) => timeText(changedMs), drop: true },
    ],
    id: ({ name }) => name,
    json: entryJson,
    empty: of === "namespace" ? "No namespaces were set" : "No policies were set",
  };
}

const entryJson = (entry: ClusterEntry) => ({
  name: entry.name,
  version: entry.version,
  value: payloadJson(entry.value),
  changedBy: whoText(entry.identity),
  changedAt: timeText(entry.changedMs),
});
