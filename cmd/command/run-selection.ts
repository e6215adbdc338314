/** Which runs an act is for: those that were named, or all that fit a filter, after a question. */
import { openStatuses, RunStatus } from "#proto";
import { type Context, type GlobalOptions, namespaceName, runAddress } from "../context.ts";
import { UsageError } from "../failure.ts";
import { readStdin } from "../input.ts";
import { allRuns } from "../pages.ts";
import { agreed } from "../question.ts";
import type { Remote } from "../remote.ts";
import { parseStatus, statusWord } from "../status.ts";
import { visible } from "../terminal.ts";

export interface SelectionOptions extends GlobalOptions {
  readonly status?: string;
  readonly type?: string;
  readonly query?: string;
  readonly all?: boolean;
  readonly yes?: boolean;
  readonly reason?: string;
}

/** What is done, for the question, and to runs of which statuses it can be done. */
export interface Verb {
  readonly name: string;
  readonly statuses: readonly number[];
  /** The address of what a person names; left out: of a run. */
  readonly addressOf?: (text: string, options: GlobalOptions, env: Context["env"]) => string;
}

export const verbs = {
  cancel: { name: "Cancel", statuses: openStatuses },
  terminate: { name: "Terminate", statuses: openStatuses },
  pause: { name: "Pause", statuses: [RunStatus.running] },
  unpause: { name: "Unpause", statuses: [RunStatus.paused] },
  retry: { name: "Retry", statuses: [RunStatus.blocked] },
  signal: { name: "Signal", statuses: openStatuses },
} as const satisfies Record<string, Verb>;

/** Who named no runs means those that fit the filter. Throws `UsageError` for both, or neither. */
export function isByFilter(options: SelectionOptions, names: readonly string[]): boolean {
  // A shell variable that is not set must not choose every run there is.
  for (const name of ["type", "query"] as const)
    if (options[name]?.trim() === "")
      throw new UsageError(`Cannot choose runs: --${name} is empty`, { next: "leave it out, or say --all for all of the namespace" });
  const filters = [
    options.status !== undefined && "--status",
    options.type !== undefined && "--type",
    options.query !== undefined && "--query",
    options.all === true && "--all",
  ];
  const given = filters.filter((each) => each !== false);
  if (given.length === 0 && names.length === 0) {
    throw new UsageError("Cannot act on runs: none are named", {
      next: "name runs, or choose them with --type, --status, --query or --all (all of the namespace)",
    });
  }
  if (given.length > 0 && names.length > 0)
    throw new UsageError(`Cannot act on named runs and by ${given.join(" and ")}: want one of both`);
  return given.length > 0;
}

/** The addresses of what is named, `-` standing for names on standard input, one a line. */
export async function namedRuns(
  context: Context,
  options: GlobalOptions,
  names: readonly string[],
  { addressOf = runAddress }: Verb,
): Promise<string[]> {
  const all: string[] = [];
  for (const name of names) {
    if (name !== "-") all.push(name);
    else
      all.push(
        ...(await readStdin())
          .split("\n")
          .map((line) => line.replace(/\r$/, ""))
          .filter((line) => line !== ""),
      );
  }
  if (all.length === 0) throw new UsageError("Cannot act on runs: none were named on standard input");
  return all.map((name) => addressOf(name, options, context.env));
}

/** The runs that fit the filter and that the act can be done to; none where the person did not agree. */
export async function filteredRuns(context: Context, remote: Remote, options: SelectionOptions, verb: Verb): Promise<string[]> {
  const namespace = namespaceName(options, context.env);
  const wanted = parseStatus(options.status);
  if (wanted !== RunStatus.unspecified && !verb.statuses.includes(wanted)) {
    const words = verb.statuses.map(statusWord).join(", ");
    throw new UsageError(`Cannot ${verb.name.toLowerCase()} runs that are ${statusWord(wanted)}: want a --status of ${words}`);
  }
  const statuses = wanted === RunStatus.unspecified ? verb.statuses : [wanted];
  const runs: string[] = [];
  for (const status of statuses) {
    const filter = { namespace, status, type: options.type ?? "", query: options.query ?? "" };
    for (const { run } of await allRuns(remote, filter)) runs.push(run);
  }
  const where = options.query === undefined ? "" : ` where ${visible(options.query)}`;
  const what = `${options.type === undefined ? "" : ` of ${visible(options.type)}`}${where} in namespace ${namespace} that ${runs.length === 1 ? "is" : "are"} ${statuses.map(statusWord).join(" or ")}`;
  if (runs.length === 0) {
    context.output.say(`No runs${what}: nothing to do`);
    return [];
  }
  const question = `${verb.name} ${runs.length} ${runs.length === 1 ? "run" : "runs"}${what}?`;
  if (options.yes === true || (await agreed(context, question))) return runs;
  context.output.say("Nothing was done");
  return [];
}
