/** `hop worker`: runs workflow code and activities until it is asked to end. A server that goes away is waited for. */
import { composeWorker, loadActivityFiles, untilAborted, type WorkerFlags } from "../compose.ts";
import { type Context, type GlobalOptions, namespaceName, serverAddresses } from "../context.ts";
import { type ExitCode, exit, UsageError } from "../failure.ts";
import type { Level, LogForm } from "../log.ts";
import { logTo } from "../log.ts";

export interface WorkerCommandOptions extends GlobalOptions, WorkerFlags {
  readonly mode: "v8" | "wasm" | "advm";
  readonly readyLine?: boolean;
  readonly logFormat?: LogForm;
  readonly logLevel?: Level;
}

export async function worker(context: Context, options: WorkerCommandOptions): Promise<ExitCode> {
  if (options.mode !== "v8")
    throw new UsageError(`Cannot run a worker: mode ${options.mode} is not built into this version, want --mode v8`);
  if (options.timeout !== undefined) throw new UsageError("Cannot run a worker with --timeout: it runs until it is asked to end");
  const { output, env, interrupt } = context;
  const address = serverAddresses(options, env).join(",");
  const namespace = namespaceName(options, env);
  const log = logTo({
    sink: output.err,
    paint: output.paintErr,
    form: options.logFormat ?? (output.err.isTty ? "text" : "json"),
    level: options.logLevel ?? "info",
  });
  const files = await loadActivityFiles(options);
  const started = await composeWorker({ flags: options, namespace, road: { address }, activities: files.activities, log });
  try {
    log("info", "Connecting", { server: address, worker: started.workerId, namespace, activities: files.names.join(",") });
    await Promise.race([started.ready, untilAborted(interrupt)]);
    if (!interrupt.aborted) {
      log("info", "Ready", { server: address, worker: started.workerId });
      if (options.readyLine === true) output.line(`ready worker=${started.workerId} server=${address}`);
    }
    await untilAborted(interrupt);
    log("info", "Draining: what is executing may end, nothing new is taken");
  } finally {
    await started.close();
  }
  return exit.ok;
}
