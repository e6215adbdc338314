/**
 * The command line's grammar: names, operands, options and help of every command.
 *
 * Nothing of a command is loaded before it runs. Options that all commands know may stand before
 * the command or after it.
 */
import { Command, Option } from "commander";
import { actCommands } from "./act-commands.ts";
import { channelCommands } from "./channel/grammar.ts";
import type { Context, GlobalOptions, Handler } from "./context.ts";
import { deploymentCommands } from "./deployment-commands.ts";
import { dlqCommands } from "./dlq-commands.ts";
import { type ExitCode, UsageError } from "./failure.ts";
import { runFilter } from "./filter-options.ts";
import { messageCommands } from "./message-commands.ts";
import { formats } from "./output.ts";
import { runOptions } from "./run-options.ts";
import { scheduleCommands } from "./schedule/grammar.ts";
import { statusWords } from "./status.ts";
import { exportCommand, testkitCommands } from "./testkit-commands.ts";
import { version } from "./version.ts";

/** `command`: its names below `hop`. */
type ContextOf = (options: GlobalOptions, command: string) => Context;
type Finish = (code: ExitCode) => void;

/** How a command line reaches the code of a command. */
class Grammar {
  readonly #contextOf: ContextOf;
  readonly #finish: Finish;

  constructor(contextOf: ContextOf, finish: Finish) {
    this.#contextOf = contextOf;
    this.#finish = finish;
  }

  /** Runs what `load` returns with the command's operands and all options that were given. */
  handle<Options, Operands extends unknown[]>(command: Command, load: () => Promise<Handler<Options, Operands>>): Command {
    return command.action(async (...args: unknown[]) => {
      const options = mergedOptions(command);
      const context = this.#contextOf(options as GlobalOptions, namesOf(command));
      const handler = await load();
      this.#finish(await handler(context, options as Options, ...(args.slice(0, -2) as Operands)));
    });
  }
}

/** `workflow query`. */
function namesOf(command: Command): string {
  const names: string[] = [];
  for (let at: Command = command; at.parent !== null; at = at.parent) names.unshift(at.name());
  return names.join(" ");
}

/** A command's own options win over those before it. */
function mergedOptions(command: Command): object {
  const chain: object[] = [];
  for (let at: Command | null = command; at !== null; at = at.parent) {
    const source = at;
    const given = Object.entries(source.opts()).filter(([name]) => source.getOptionValueSource(name) !== "default" || source === command);
    chain.unshift(Object.fromEntries(given));
  }
  return Object.assign({}, ...chain);
}

function outputOptions(command: Command): Command {
  return command
    .optionsGroup("Output:")
    .addOption(new Option("-o, --output <form>", "form of the data on standard output").choices(formats))
    .option("--no-color", "no colours (also: NO_COLOR)");
}

function serverOptions(command: Command): Command {
  return command
    .optionsGroup("Connection:")
    .option(
      "--server <list>",
      "server's host:port, or several with commas: the first that answers (also: HOP_SERVER; 127.0.0.1:7070 when unset)",
    )
    .option("-n, --namespace <name>", 'namespace (also: HOP_NAMESPACE; "default" when unset)');
}

function clientOptions(command: Command): Command {
  return outputOptions(serverOptions(command).option("--timeout <duration>", "longest time to wait, such as 500ms, 5s or 3m"));
}

export function program(contextOf: ContextOf, finish: Finish): Command {
  const grammar = new Grammar(contextOf, finish);
  const root = new Command("hop")
    .description("Durable workflows in one executable: history is verifiable, work is pushed.")
    .version(`hop ${version}`, "-V, --version", "print the version")
    .helpOption("-h, --help", "show help")
    .enablePositionalOptions()
    .showSuggestionAfterError(true)
    .showHelpAfterError("(see `hop help`, or the command with --help)")
    .configureHelp({ sortSubcommands: false })
    .exitOverride();
  root.helpCommand(false);
  clientOptions(root);
  startCommands(root, grammar);
  serverCommands(root, grammar);
  runCommands(root, grammar);
  workflowCommands(root, grammar);
  channelCommands(root, { sub, withOptions: clientOptions, handle: grammar.handle.bind(grammar) });
  scheduleCommands(root, { sub, withOptions: clientOptions, handle: grammar.handle.bind(grammar) });
  dlqCommands(root, { sub, withOptions: clientOptions, handle: grammar.handle.bind(grammar) });
  auditCommands(root, grammar);
  sqlCommand(root, grammar);
  clusterCommands(root, grammar);
  backupCommands(root, grammar);
  shardCommands(root, grammar);
  entryCommands(root, grammar);
  otherCommands(root, grammar);
  root.addHelpText("after", exitCodesText);
  return root;
}

const exitCodesText = `
Exit codes: 0 ok, 1 failed, 2 usage, 3 not authenticated, 4 not found, 5 conflict, 6 unavailable, 130 interrupted`;

/** Subcommands made with this inherit how errors are shown and how the process ends. */
function sub(parent: Command, usage: string, description: string): Command {
  return parent.command(usage).description(description);
}

function workerOptions(command: Command): Command {
  return command
    .option("--activities <file...>", "files that export activities (activities.ts when it exists)")
    .option("--slots <count>", "activities that may run at one time (100 when unset)")
    .addOption(
      new Option("--lane <lane>", "sandbox of a run: shared realm, or a V8 isolate of its own (dense when unset)").choices([
        "dense",
        "isolate",
      ]),
    );
}

function logOptions(command: Command, levelDefault: string): Command {
  return command
    .addOption(
      new Option("--log-format <format>", "form of the log on standard error (text on a terminal, else json)").choices(["text", "json"]),
    )
    .addOption(
      new Option("--log-level <level>", `least important entry to log (when unset: ${levelDefault})`).choices([
        "debug",
        "info",
        "warn",
        "error",
      ]),
    );
}

function nodeOptions(command: Command): Command {
  return command
    .option("--listen <host:port>", "address for clients and workers (127.0.0.1:7070 when unset)")
    .option("--http <host:port>", "address for /healthz and /metrics (127.0.0.1:7071 when unset)")
    .option("--data <folder>", "data folder (.hop when unset)");
}

function peerOptions(command: Command): Command {
  return command
    .optionsGroup("Cluster:")
    .option(
      "--seed <list>",
      "peers to find the cluster through: host:port, several with commas or as several --seed; the node joins, and never makes a cluster by itself",
      (text: string, before: string | undefined) => (before === undefined ? text : `${before},${text}`),
    )
    .option("--bootstrap", "with an empty data folder: make a new cluster of this node")
    .option("--peer-port <port>", "port for the other nodes (7072 when unset)")
    .option("--advertise <host:port>", "address at which the other nodes reach this one (that of --listen when unset)")
    .option("--zone <name>", "where the machine stands: replicas are spread over zones")
    .option(
      "--peer-ca <file>",
      "certificate authority of the nodes (PEM): links between nodes are encrypted, with --peer-cert and --peer-key",
    )
    .option("--peer-cert <file>", "this node's certificate (PEM)")
    .option("--peer-key <file>", "its key (PEM)");
}

function coldOptions(command: Command): Command {
  return command
    .optionsGroup("Object storage:")
    .option(
      "--object-store <url>",
      "where history is kept for good: file:///folder or s3://bucket/prefix?endpoint=… (also: HOP_OBJECT_STORE; without it the log is kept whole)",
    )
    .option("--seal-size <size>", "seal a shard's log when so much is not sealed (64MiB when unset)")
    .option("--seal-age <duration>", "or when an event has waited so long (5m when unset)")
    .option("--keep-size <size>", "keep so much of a shard's sealed log on the node, for reads (256MiB when unset)")
    .option("--tail-size <size>", "refuse new work when so much of a shard waits for object storage (1GiB when unset)")
    .option("--object-grace <duration>", "keep objects that nothing needs any more, expired history too, for so long (24h when unset)")
    .option("--blob-grace <duration>", "keep stored payloads that no history names for so long (24h when unset)");
}

function startCommands(root: Command, grammar: Grammar): void {
  root.commandsGroup("Develop:");
  grammar.handle(
    outputOptions(sub(root, "init <name>", "make a project that runs at once")),
    async () => (await import("./command/init.ts")).init,
  );
  const dev = sub(root, "dev [file...]", "server and worker in one process, with hot reload")
    .option("--no-watch", "do not reload when files change")
    .option("-n, --namespace <name>", 'namespace (also: HOP_NAMESPACE; "default" when unset)');
  grammar.handle(
    outputOptions(logOptions(nodeOptions(workerOptions(dev)), "warn, and all that workflows and activities log from info on")),
    async () => (await import("./command/dev.ts")).dev,
  );
  grammar.handle(
    clientOptions(
      sub(root, "deploy <file...>", "bundle workflow files and deploy them").option("--hold", "starts stay on the version that is current"),
    ),
    async () => (await import("./command/deploy.ts")).deploy,
  );
  testkitCommands(root, { sub, withOptions: outputOptions, handle: grammar.handle.bind(grammar) });
  deploymentCommands(root, { sub, withOptions: clientOptions, handle: grammar.handle.bind(grammar) });
}

function serverCommands(root: Command, grammar: Grammar): void {
  root.commandsGroup("Serve:");
  const server = sub(root, "server", "run a server");
  const start = sub(server, "start", "start a server and keep it running")
    .option("--worker", "run a worker in the same process too")
    .option("-n, --namespace <name>", "namespace of the embedded worker")
    .option(
      "--ready-line",
      "print `ready grpc=ADDRESS http=ADDRESS` on standard output when it serves, `joining …` while it looks for its cluster",
    );
  grammar.handle(
    outputOptions(logOptions(coldOptions(peerOptions(nodeOptions(workerOptions(start)))), "info")),
    async () => (await import("./command/server.ts")).serverStart,
  );
  const worker = sub(root, "worker", "run workflow code and activities for a server")
    .addOption(new Option("--mode <mode>", "what runs workflow code").choices(["v8", "wasm", "advm"]).default("v8"))
    .option("--id <name>", "name of this worker in histories and logs")
    .option("--ready-line", "print `ready worker=ID server=ADDRESS` on standard output when connected");
  grammar.handle(
    outputOptions(serverOptions(logOptions(workerOptions(worker), "info"))),
    async () => (await import("./command/worker.ts")).worker,
  );
}

function runCommands(root: Command, grammar: Grammar): void {
  root.commandsGroup("Run:");
  const run = runOptions(sub(root, "run <type>", "start a workflow; print its id, or with --follow its result"));
  grammar.handle(clientOptions(run), async () => (await import("./command/run.ts")).run);
  messageCommands(root, { sub, withOptions: clientOptions, handle: grammar.handle.bind(grammar) });
}

function workflowCommands(root: Command, grammar: Grammar): void {
  const workflow = sub(root, "workflow", "see and steer runs").alias("wf");
  const leaf = (usage: string, description: string) => sub(workflow, usage, description);
  grammar.handle(
    clientOptions(
      leaf("list", "list runs, newest first")
        .addOption(new Option("--status <status>", "only runs of this status").choices(statusWords))
        .option("--type <name>", "only runs of this workflow")
        .option("--query <filter>", runFilter)
        .option("--limit <count>", "at most this many (100 when unset)")
        .option("--all", "as many as there are"),
    ),
    async () => (await import("./command/workflow-list.ts")).workflowList,
  );
  grammar.handle(
    clientOptions(leaf("show <run>", "show a run and what it waits for")),
    async () => (await import("./command/workflow-show.ts")).workflowShow,
  );
  exportCommand(workflow, { sub, withOptions: clientOptions, handle: grammar.handle.bind(grammar) });
  grammar.handle(
    clientOptions(leaf("result <run>", "wait for a run to end and print its result")),
    async () => (await import("./command/workflow-result.ts")).workflowResult,
  );
  messageCommands(workflow, { sub, withOptions: clientOptions, handle: grammar.handle.bind(grammar) });
  actCommands(workflow, { sub, withOptions: clientOptions, handle: grammar.handle.bind(grammar) });
}

function auditCommands(root: Command, grammar: Grammar): void {
  root.commandsGroup("Prove:");
  const audit = sub(root, "audit [run]", "check a run's history to the byte, and print who did what when")
    .option("--proof <file>", "write a proof that one event is part of the history")
    .option("--schedule", "[run] is the name of a schedule, whose history is meant; needs a server")
    .option("--channel", "[run] is the name of a channel, whose history is meant; needs a server")
    .option(
      "--key",
      "[run] is the address of an activity's idempotency key (namespace:activity:key), whose history is meant; needs a server",
    )
    .option("--seq <number>", "with --proof: the event's number (the last one when unset)")
    .option("--save-root <file>", "keep the history's root in a file, to check against later")
    .option("--root <file>", "check that the history still begins as it did under a kept root")
    .option("--data <folder>", "check the files of a server that is not running, in place of asking one")
    .option("--object-store <url>", "check what is sealed in object storage, in place of asking a server")
    .option("--cluster <id>", clusterOfObjects);
  grammar.handle(clientOptions(audit), async () => (await import("./command/audit.ts")).audit);
  grammar.handle(
    outputOptions(
      sub(audit, "verify <file>", "check a proof file; needs no server").option("--root <file>", "check it against a kept root"),
    ),
    async () => (await import("./command/audit-verify.ts")).auditVerify,
  );
}

const whereObjects = "where they are, as `hop server start` has it (also: HOP_OBJECT_STORE)";
const clusterOfObjects = "with --object-store: cluster whose objects these are (hop_…; the only one there when unset)";

function sqlCommand(root: Command, grammar: Grammar): void {
  const command = sub(root, "sql <query>", "ask what is sealed in object storage, with SQL (- reads the query from standard input)")
    .option("--cold", "query sealed segments in object storage; needs no server")
    .option("--object-store <url>", whereObjects)
    .option("--cluster <id>", clusterOfObjects)
    .optionsGroup("Events:")
    .option("--since <time>", "only events from then on: a time such as 2026-02-03T04:05:06Z, or how long ago, such as 2h")
    .option("--until <time>", "only events before then")
    .option("-n, --namespace <name>", "only runs of this namespace")
    .option("--run <run>", "only this run")
    .optionsGroup("Limits:")
    .option("--limit <count>", "at most this many rows (1000 when unset)")
    .option("--all", "as many rows as there are")
    .option("--memory <size>", "memory that the query may take (1GiB when unset)")
    .option("--timeout <duration>", "longest time that it may take, fetching included")
    .option("--cache-size <size>", "room for fetched segments in the cache folder (16GiB when unset)");
  grammar.handle(outputOptions(command).option("--csv", "as CSV"), async () => (await import("./command/sql.ts")).sql);
}

const timeoutOfChange = "how long to follow it; what was begun goes on";

/** Options of a command that follows a change of the cluster. */
const changeOptions = (command: Command) => outputOptions(serverOptions(command).option("--timeout <duration>", timeoutOfChange));

function backupCommands(root: Command, grammar: Grammar): void {
  const backup = sub(root, "backup", "check what object storage has of a cluster");
  const cold = (command: Command) => command.option("--object-store <url>", whereObjects).option("--cluster <id>", clusterOfObjects);
  const verify = cold(sub(backup, "verify", "read all of it and name what is damaged or missing; needs no server, changes nothing"));
  grammar.handle(outputOptions(verify), async () => (await import("./command/backup-verify.ts")).backupVerify);
  const storage = cold(sub(root, "storage", "what object storage has of a cluster, by namespace; with --server also what waits for it"));
  storage.option("--expired", "also events that retention took away, by namespace; reads every index");
  grammar.handle(outputOptions(serverOptions(storage)), async () => (await import("./command/storage.ts")).storage);
}

function clusterCommands(root: Command, grammar: Grammar): void {
  root.commandsGroup("Operate:");
  const cluster = sub(root, "cluster", "make, join and leave a cluster, and see how it stands");
  const leaf = (usage: string, description: string) => sub(cluster, usage, description);
  const load = () => import("./command/cluster.ts");
  grammar.handle(
    clientOptions(leaf("init", "make a new cluster of one node that was started with --seed; the others join it by themselves")),
    async () => (await load()).clusterInit,
  );
  grammar.handle(
    changeOptions(
      leaf("restore", "rebuild a cluster from object storage on one node that was started with --seed and --object-store")
        .option("--object-store <url>", "what the node was started with, to be sure")
        .option("--cluster <id>", "cluster whose objects these are (hop_…; the only one there when unset)"),
    ),
    async () => (await import("./command/cluster-restore.ts")).clusterRestore,
  );
  grammar.handle(
    changeOptions(leaf("join <seed...>", "give a node that looks for its cluster more addresses of peers (host:port)")),
    async () => (await load()).clusterJoin,
  );
  grammar.handle(
    changeOptions(leaf("leave <node>", "move everything off a node and remove it, also one that is lost")),
    async () => (await load()).clusterLeave,
  );
  grammar.handle(
    clientOptions(
      leaf("status", "how the cluster and the node that is asked stand").option(
        "--wait-nodes <count>",
        "wait until so many nodes are live, and every shard has all its replicas and a leader",
      ),
    ),
    async () => (await load()).clusterStatus,
  );
  const set = leaf("set", "change a setting of the cluster");
  grammar.handle(
    clientOptions(
      sub(set, "replication <count>", "how many replicas each shard is to have: 1, 3, 5 or 7").option(
        "--reason <text>",
        "why, shown by `hop cluster status`",
      ),
    ),
    async () => (await load()).clusterSetReplication,
  );
  grammar.handle(
    clientOptions(
      leaf("members", "list the nodes").option("--limit <count>", "at most this many").option("--removed", "also nodes that were removed"),
    ),
    async () => (await load()).clusterMembers,
  );
}

function shardCommands(root: Command, grammar: Grammar): void {
  const shard = sub(root, "shard", "see, split, merge, move and compare shards");
  const leaf = (usage: string, description: string) => sub(shard, usage, description);
  const load = () => import("./command/shard.ts");
  grammar.handle(
    clientOptions(leaf("list", "list the shards").option("--limit <count>", "at most this many")),
    async () => (await load()).shardList,
  );
  grammar.handle(clientOptions(leaf("show <shard>", "show a shard and its replicas")), async () => (await load()).shardShow);
  grammar.handle(
    changeOptions(
      leaf("split <shard>", "split a shard in two").option(
        "--at <key>",
        "first key of the new shard, such as 0x8000000000000000 (the middle when unset)",
      ),
    ),
    async () => (await load()).shardSplit,
  );
  grammar.handle(
    changeOptions(leaf("compact <shard>", "merge a shard's small sealed segments in object storage into larger ones")),
    async () => (await load()).shardCompact,
  );
  grammar.handle(changeOptions(leaf("merge <shard>", "merge a shard with the one to its right")), async () => (await load()).shardMerge);
  grammar.handle(
    changeOptions(
      leaf("move <shard>", "move a replica from one node to another")
        .requiredOption("--from <node>", "node that gives its replica up")
        .requiredOption("--to <node>", "node that gets one"),
    ),
    async () => (await load()).shardMove,
  );
  grammar.handle(
    changeOptions(
      leaf("transfer <shard>", "make another of its nodes the shard's leader").requiredOption("--to <node>", "node that is to lead"),
    ),
    async () => (await load()).shardTransfer,
  );
  grammar.handle(
    clientOptions(
      leaf("verify [shard]", "compare the replicas of a shard byte by byte; exit code 1 where they differ").option(
        "--all",
        "of every shard",
      ),
    ),
    async () => (await load()).shardVerify,
  );
}

function entryCommands(root: Command, grammar: Grammar): void {
  for (const of of ["namespace", "policy"] as const) {
    const plural = of === "namespace" ? "namespaces" : "policies";
    const parent = sub(root, of, `see and set ${plural} of the cluster`);
    const leaf = (usage: string, description: string) => sub(parent, usage, description);
    const load = async () => (await import("./command/entry.ts")).entryCommands(of);
    const set = leaf("set <name>", `make or change a ${of}; print its new version`)
      .option("--input <json>", "its value: JSON, @file, or - for standard input")
      .option("--expect <version>", "refuse unless it has this version now; 0 = unless it does not exist");
    if (of === "namespace")
      set
        .option("--retention <duration>", "keep histories of ended runs for so long, such as 30d, or forever; the rest of its value stays")
        .option("--type <type>", "with --retention: of runs of this type alone");
    grammar.handle(clientOptions(set), async () => (await load()).set);
    grammar.handle(clientOptions(leaf("get <name>", `print a ${of}`)), async () => (await load()).get);
    grammar.handle(
      clientOptions(leaf("list", `list ${plural}, with who changed them`).option("--limit <count>", "at most this many")),
      async () => (await load()).list,
    );
  }
}

/** The command of these names, such as `workflow signal`. */
function named(root: Command, names: readonly string[]): Command {
  let at = root;
  for (const name of names) {
    const next = at.commands.find((command) => command.name() === name || command.aliases().includes(name));
    if (next === undefined)
      throw new UsageError(`Cannot show help: there is no command ${JSON.stringify(names.join(" "))}`, {
        next: "see all commands with `hop help`",
      });
    at = next;
  }
  return at;
}

function otherCommands(root: Command, grammar: Grammar): void {
  root.commandsGroup("Other:");
  sub(root, "help [command...]", "show the help of a command").action((names: string[]) => named(root, names).outputHelp());
  grammar.handle(outputOptions(sub(root, "version", "print the version")), async () => (await import("./command/version.ts")).printVersion);
  const completion = sub(root, "completion <shell>", "print the completion script of a shell (bash, zsh or fish)");
  grammar.handle(completion, async () => {
    const { completion: handler } = await import("./command/completion.ts");
    return (context, options: GlobalOptions, shell: string) => handler(context, options, shell, root);
  });
}
