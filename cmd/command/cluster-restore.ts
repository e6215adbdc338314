/** `hop cluster restore`: rebuilds a cluster from object storage on one node that has nothing yet. */
import type { Progress } from "#proto";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, timeoutMs } from "../context.ts";
import { CommandError, type ExitCode, exit } from "../failure.ts";
import type { Output } from "../output.ts";
import type { Remote } from "../remote.ts";
import { bytesText } from "../size.ts";
import { visible } from "../terminal.ts";

export interface RestoreOptions extends GlobalOptions {
  readonly objectStore?: string;
  readonly cluster?: string;
}

export function clusterRestore(context: Context, options: RestoreOptions): Promise<ExitCode> {
  const limitMs = timeoutMs(options);
  const { objectStore = "", cluster: from = "" } = options;
  const restore = async ({ cluster }: Remote): Promise<ExitCode> => {
    const late = Promise.withResolvers<never>();
    const timer = limitMs === 0 ? undefined : setTimeout(() => late.reject(givenUp("It took too long")), limitMs);
    try {
      return await Promise.race([show(context.output, cluster.restore({ objectStore, cluster: from }), cluster), late.promise]);
    } finally {
      clearTimeout(timer);
      context.output.progress().done();
    }
  };
  return withRemote(context, options, restore, { isPatient: true });
}

/** What is known of each shard on standard error, the new cluster's id on standard output. */
async function show(output: Output, steps: AsyncIterable<Progress>, cluster: Remote["cluster"]): Promise<ExitCode> {
  for await (const { text, done, total, finished } of steps) {
    if (output.format === "jsonl") output.json({ text, done, total, finished });
    if (!finished) {
      tell(output, { text, done, total });
      continue;
    }
    output.progress().done();
    const { clusterId, node } = await cluster.status();
    if (output.format === "json") output.json({ cluster: clusterId, node });
    else if (output.format !== "jsonl") output.line(clusterId);
    if (output.isForPeople) output.say(`${visible(text)}; nodes that have its address as a --seed join by themselves`);
    return exit.ok;
  }
  throw givenUp("The server stopped telling how far the restore is");
}

function tell(output: Output, { text, done, total }: Pick<Progress, "text" | "done" | "total">): void {
  const shown = visible(text);
  if (total === 0) {
    if (output.isForPeople) output.say(shown);
    return;
  }
  const isBytes = shown.endsWith(", bytes");
  const far = isBytes ? `${bytesText(done)} of ${bytesText(total)}` : `${done} of ${total}`;
  output.progress().update(`${shown.replace(/, bytes$/, "")} (${far})`);
}

const givenUp = (what: string) =>
  new CommandError(exit.unavailable, `${what}: it is given up, and the node has nothing of it`, {
    next: "see how the node stands with `hop cluster status`, then restore again",
  });
