/**
 * `hop dev`: server and worker in one process, at the newest code.
 *
 * A change to a workflow file is bundled and deployed; runs that were blocked at a fault of their
 * code go on with it. A change to activities takes effect at their next execution. Code that
 * can't be bundled or loaded is reported, and the code before it stays.
 */
import { dirname, resolve } from "node:path";
import { HopClient } from "#sdk/client";
import { composeNode, composeWorker, type NodeFlags, type RunningNode, untilStopped, type WorkerFlags } from "../compose.ts";
import { remoteOf, userName } from "../connect.ts";
import { type Context, type GlobalOptions, namespaceName } from "../context.ts";
import { type ExitCode, exit } from "../failure.ts";
import { type Level, type Log, type LogForm, logTo } from "../log.ts";
import type { Output } from "../output.ts";
import { ActivityFiles } from "../project/activities.ts";
import { shownFile } from "../project/bundles.ts";
import { DevBuild, type DevNews } from "../project/dev-build.ts";
import { DevRuns } from "../project/dev-runs.ts";
import { activityFilesBeside, existingFiles, findWorkflowFiles } from "../project/sources.ts";
import { type Watching, watchSources } from "../project/watch.ts";
import { visible } from "../terminal.ts";
import { version } from "../version.ts";

export interface DevOptions extends GlobalOptions, NodeFlags, WorkerFlags {
  readonly watch?: boolean;
  readonly logFormat?: LogForm;
  readonly logLevel?: Level;
}

const dataDefault = ".hop";

export async function dev(context: Context, options: DevOptions, files: string[]): Promise<ExitCode> {
  const { output } = context;
  const logFrom = (level: Level) => logTo({ sink: output.err, paint: output.paintErr, form: options.logFormat ?? "text", level });
  const log = logFrom(options.logLevel ?? "warn");
  const codeLog = logFrom(options.logLevel ?? "info");
  const named = files.length === 0 ? undefined : existingFiles(files, "workflow file");
  const node = await composeNode({ flags: options, dataDefault, log });
  const session = new DevSession({ context, options, node, named, log, codeLog });
  try {
    await session.start();
    await untilStopped(node, context.interrupt);
    output.say("\nStopping");
  } finally {
    await session.close();
    await node.close();
  }
  return exit.ok;
}

interface DevParts {
  readonly context: Context;
  readonly options: DevOptions;
  readonly node: RunningNode;
  /** Workflow files by absolute path; undefined = those found in the folder. */
  readonly named: readonly string[] | undefined;
  readonly log: Log;
  /** For what the user's code says. */
  readonly codeLog: Log;
}

type RunningWorker = Awaited<ReturnType<typeof composeWorker>>;

class DevSession {
  readonly #parts: DevParts;
  readonly #output: Output;
  readonly #namespace: string;
  readonly #client: HopClient;
  readonly #build: DevBuild;
  readonly #activities: ActivityFiles;
  #worker: RunningWorker | undefined;
  #watching: Watching | undefined;
  #runs: DevRuns | undefined;
  /** Of the activity files, when they were last loaded; undefined where that failed. */
  #activityText: string | undefined;
  /** Reloads one after another. */
  #work: Promise<void> = Promise.resolve();

  constructor(parts: DevParts) {
    const { context, options, node } = parts;
    this.#parts = parts;
    this.#output = context.output;
    this.#namespace = namespaceName(options, context.env);
    this.#client = HopClient.connect({ address: node.grpc, namespace: this.#namespace, identity: userName() });
    this.#build = new DevBuild({ remote: remoteOf(this.#client), namespace: this.#namespace, news: this.#news() });
    const beside = () => activityFilesBeside(this.#files(), process.cwd());
    this.#activities = new ActivityFiles(options.activities === undefined ? beside() : existingFiles(options.activities, "activity file"));
  }

  async start(): Promise<void> {
    const { options } = this.#parts;
    this.#banner();
    await this.#reloadActivities();
    // Runs that go on with new code show soon whether they do: a worker must be there.
    this.#worker = await this.#startWorker();
    await this.#worker.ready;
    await this.#build.update(this.#files());
    this.#runs = new DevRuns({ remote: remoteOf(this.#client), namespace: this.#namespace, output: this.#output });
    if (options.watch !== false) this.#watch();
    this.#hint();
  }

  async close(): Promise<void> {
    this.#watching?.close();
    await this.#runs?.close();
    await this.#work;
    await this.#worker?.close();
    this.#client.close();
  }

  #files(): readonly string[] {
    return this.#parts.named ?? findWorkflowFiles(process.cwd());
  }

  #folders(): string[] {
    const { named, options } = this.#parts;
    const files = [...(named ?? []), ...(options.activities ?? []).map((file) => resolve(file))];
    return named === undefined ? [process.cwd(), ...files.map((file) => dirname(file))] : files.map((file) => dirname(file));
  }

  #watch(): void {
    try {
      this.#watching = watchSources(this.#folders(), () => {
        this.#work = this.#work.then(() => this.#changed());
      });
    } catch (error) {
      this.#output.warn(`Cannot watch for changes, so code is not reloaded: ${(error as Error).message}`);
    }
  }

  async #changed(): Promise<void> {
    try {
      await this.#reloadActivities();
      await this.#build.update(this.#files());
    } catch (error) {
      this.#output.fail(error);
    }
  }

  /** A worker names its activities when it connects: it comes back when names come or go. */
  async #reloadActivities(): Promise<void> {
    const { text } = this.#activities;
    try {
      const areOthers = await this.#activities.reload(this.#folders());
      const isNews = areOthers || text !== this.#activityText;
      this.#activityText = text;
      if (!isNews || this.#worker === undefined) return;
      if (areOthers) {
        await this.#worker.close();
        this.#worker = await this.#startWorker();
      }
      this.#good(`activities ${this.#activities.names.join(", ")}`);
    } catch (error) {
      this.#activityText = undefined;
      this.#output.fail(error);
    }
  }

  #startWorker(): Promise<RunningWorker> {
    const { options, node, log, codeLog } = this.#parts;
    const { activities } = this.#activities;
    return composeWorker({ flags: options, namespace: this.#namespace, road: node.road, activities, log, codeLog });
  }

  #news(): DevNews {
    const output = this.#output;
    return {
      deployed: (bundle, deployedVersion) =>
        this.#good(
          `${visible(shownFile(bundle.file))}: ${bundle.workflows.join(", ")} (version ${deployedVersion}, ${bundle.hash.slice(0, 12)})`,
        ),
      mended: (file) => this.#good(`${visible(shownFile(file))} is good again: the same code as before`),
      failed: (error) => {
        output.fail(error);
      },
      resumed: (run) => this.#good(`${visible(run)} goes on with the new code`),
      // The watch on runs says why.
      blockedAgain: (run) => output.warn(`${visible(run)} was tried again on the new code and is blocked again`),
    };
  }

  #good(text: string): void {
    this.#output.say(`${this.#output.paintErr("green", "✓")} ${text}`);
  }

  #banner(): void {
    const { node } = this.#parts;
    const line = (name: string, value: string) => this.#output.say(`  ${this.#output.paintErr("dim", name.padEnd(8))} ${value}`);
    this.#output.say(`${this.#output.paintErr("bold", `hop dev ${version}`)}\n`);
    line("server", node.grpc);
    line("http", `http://${node.http}  (/metrics, /healthz)`);
    line("data", `${visible(node.data)}  (kept when this ends)`);
    line("callers", "not verified: whoever reaches the address may act under any name\n");
  }

  #hint(): void {
    const output = this.#output;
    const { types, broken } = this.#build;
    const [first] = types;
    if (first === undefined && broken.length > 0)
      output.say(
        `No workflow could be loaded: see what is wrong with ${broken.map((file) => visible(shownFile(file))).join(", ")} above${this.#watching === undefined ? "" : "; it is loaded again when it changes"}`,
      );
    else if (first === undefined) output.say("No workflows here yet: `hop init NAME` makes a project, or name files: `hop dev FILE…`");
    else
      output.say(
        `\nReady. Start a run in another terminal: ${output.paintErr("bold", `hop run ${first} --follow${serverHint(this.#parts.node.grpc)}`)}`,
      );
  }
}

const serverHint = (address: string) => (address === "127.0.0.1:7070" ? "" : ` --server ${address}`);
