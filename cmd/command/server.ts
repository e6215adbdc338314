/** `hop server start`: a server, and with --worker a worker beside it in the same process. */
import { composeNode, composeWorker, loadActivityFiles, type NodeFlags, untilStopped, type WorkerFlags } from "../compose.ts";
import { type Context, type GlobalOptions, namespaceName } from "../context.ts";
import { type ExitCode, exit, UsageError } from "../failure.ts";
import { type Level, type LogForm, logTo } from "../log.ts";

export interface ServerOptions extends GlobalOptions, NodeFlags, WorkerFlags {
  readonly worker?: boolean;
  readonly logFormat?: LogForm;
  readonly logLevel?: Level;
  readonly readyLine?: boolean;
}

const dataDefault = ".hop";

export async function serverStart(context: Context, options: ServerOptions): Promise<ExitCode> {
  const { output, env, interrupt } = context;
  for (const name of ["activities", "slots", "lane"] as const) {
    if (options[name] !== undefined && options.worker !== true)
      throw new UsageError(`Cannot use --${name} without --worker: a server alone runs no code`);
  }
  const form = options.logFormat ?? (output.err.isTty ? "text" : "json");
  const log = logTo({ sink: output.err, paint: output.paintErr, form, level: options.logLevel ?? "info" });
  const files = options.worker === true ? await loadActivityFiles(options) : undefined;
  const node = await composeNode({ flags: options, dataDefault, log });
  const tell = (state: "joining" | "ready") => {
    if (options.readyLine === true) output.line(`${state} grpc=${node.grpc} http=${node.http}`);
  };
  try {
    if (!node.isMember) {
      tell("joining");
      await Promise.race([node.member, untilStopped(node, interrupt)]);
    }
    if (!interrupt.aborted) await serve();
  } finally {
    await node.close();
  }

  async function serve(): Promise<void> {
    const namespace = namespaceName(options, env);
    const worker =
      files === undefined
        ? undefined
        : await composeWorker({ flags: options, namespace, road: node.road, activities: files.activities, log });
    try {
      await worker?.ready;
      tell("ready");
      await untilStopped(node, interrupt);
      log("info", "Stopping");
    } finally {
      await worker?.close();
    }
  }
  return exit.ok;
}
