/**
 * Puts processes together: a worker with its V8 host, alone or beside a server in one process.
 *
 * An embedded worker speaks to its server through an in-process connection: the same frames,
 * without a socket.
 */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { limits } from "#core/base";
import type { RunningNode as Node, NodeConfig } from "#node";
import { dispatchCodec, localPair, workerCodec } from "#proto/connection";
import type { BlobSource, Connect, Worker, WorkerOptions } from "#worker";
import { extractAssets } from "./assets/assets.ts";
import { checkAddress, parseCount } from "./context.ts";
import { parseDuration } from "./duration.ts";
import { CommandError, exit, exitCodeOf, reasonOf, UsageError } from "./failure.ts";
import { faultText } from "./input.ts";
import type { Level, Log } from "./log.ts";
import { ActivityFiles } from "./project/activities.ts";
import { activityFilesBeside, existingFiles } from "./project/sources.ts";
import { parseSize } from "./size.ts";
import { version } from "./version.ts";

/** Options of every command that runs a worker. */
export interface WorkerFlags {
  readonly activities?: string[];
  readonly slots?: string;
  readonly lane?: "dense" | "isolate";
  readonly id?: string;
}

/** How a worker reaches its server: by address, or within the process. */
export type Road = { readonly address: string } | { readonly connect: Connect; readonly blobs: BlobSource };

export interface WorkerPlan {
  readonly flags: WorkerFlags;
  readonly namespace: string;
  readonly road: Road;
  readonly activities: WorkerOptions["activities"];
  readonly log: Log;
  /** For what workflow code says; `log` when left out. */
  readonly codeLog?: Log;
}

/** Options of every command that runs a server. */
export interface NodeFlags {
  readonly listen?: string;
  readonly http?: string;
  readonly data?: string;
  readonly seed?: string;
  readonly bootstrap?: boolean;
  readonly peerPort?: string;
  readonly advertise?: string;
  readonly zone?: string;
  readonly peerCa?: string;
  readonly peerCert?: string;
  readonly peerKey?: string;
  readonly objectStore?: string;
  readonly sealSize?: string;
  readonly objectGrace?: string;
  readonly sealAge?: string;
  readonly keepSize?: string;
  readonly tailSize?: string;
  readonly blobGrace?: string;
}

export interface NodePlan {
  readonly flags: NodeFlags;
  /** Data folder where none is named. */
  readonly dataDefault: string;
  readonly log: Log;
}

export interface RunningNode {
  /** `host:port` of the services, and of metrics and health. */
  readonly grpc: string;
  readonly http: string;
  /** Absolute path. */
  readonly data: string;
  /** False while it looks for a cluster. */
  readonly isMember: boolean;
  /** Resolves when it is a member and serves. */
  readonly member: Promise<void>;
  /** For a worker in this process. */
  readonly road: Road;
  /** Resolves with the cause when the server can't go on. */
  readonly failed: Promise<Error>;
  close(): Promise<void>;
}

const listenDefault = "127.0.0.1:7070";
const httpDefault = "127.0.0.1:7071";
const slotsMax = 100_000;

/** Starts a server. */
export async function composeNode({ flags, dataDefault, log }: NodePlan): Promise<RunningNode> {
  const listen = hostAndPort(flags.listen ?? listenDefault, "--listen");
  const http = hostAndPort(flags.http ?? httpDefault, "--http");
  const cluster = clusterConfig(flags);
  const { startNode } = await import("#node");
  const failed = Promise.withResolvers<Error>();
  const logAt = (level: Level) => (message: string, fields?: Readonly<Record<string, unknown>>) => log(level, message, fields);
  const started = startNode({
    dataDir: resolve(flags.data ?? dataDefault),
    version,
    host: listen.host,
    grpcPort: listen.port,
    httpHost: http.host,
    httpPort: http.port,
    ...cluster,
    ...coldConfig(flags),
    ...(flags.blobGrace === undefined ? {} : { blobGraceMs: parseDuration(flags.blobGrace, "--blob-grace") }),
    logger: { debug: logAt("debug"), info: logAt("info"), warn: logAt("warn"), error: logAt("error") },
    onFailed: failed.resolve,
  });
  // Its messages say what to do; the advice for callers of a server does not fit here.
  const node = await started.catch((error: unknown) => {
    throw error instanceof Error && reasonOf(error) !== "INTERNAL"
      ? new CommandError(exitCodeOf(error), error.message, { cause: error })
      : error;
  });
  return {
    grpc: node.grpc,
    http: node.http,
    data: node.dataDir,
    isMember: node.isMember,
    member: node.member,
    road: roadWithin(node),
    failed: failed.promise,
    close: () => node.close(),
  };
}

/** What the flags say of the node's cluster. */
function clusterConfig(flags: NodeFlags): Partial<NodeConfig> {
  const { seed, bootstrap = false, peerPort, advertise, zone, peerCa, peerCert, peerKey } = flags;
  if (bootstrap && seed !== undefined)
    throw new UsageError("Cannot start with both --bootstrap and --seed: a node makes a new cluster, or joins the one of its seeds");
  const tls = [peerCa, peerCert, peerKey].filter((file) => file !== undefined);
  if (tls.length > 0 && tls.length < 3)
    throw new UsageError("Cannot encrypt links between nodes: want all of --peer-ca, --peer-cert and --peer-key");
  const port = parseCount(peerPort, "peer-port", { min: 0, max: 65_535 });
  const [ca, cert, key] = tls.map(pemText);
  return {
    seeds: seed === undefined ? [] : seedList(seed),
    bootstrap,
    ...(port === undefined ? {} : { peerPort: port }),
    ...(advertise === undefined ? {} : { advertise }),
    ...(zone === undefined ? {} : { zone }),
    ...(ca === undefined || cert === undefined || key === undefined ? {} : { peerTls: { ca, cert, key } }),
  };
}

/** What the flags say of object storage. */
function coldConfig({ objectStore, sealSize, sealAge, keepSize, tailSize, objectGrace }: NodeFlags): Partial<NodeConfig> {
  const url = objectStore ?? process.env.HOP_OBJECT_STORE;
  const sizes = { "seal-size": sealSize, "seal-age": sealAge, "keep-size": keepSize, "tail-size": tailSize };
  for (const [name, value] of Object.entries({ ...sizes, "object-grace": objectGrace }))
    if (value !== undefined && url === undefined) throw new UsageError(`Cannot use --${name} without --object-store: nothing is sealed`);
  if (url === undefined) return {};
  return {
    objectStore: url,
    ...(objectGrace === undefined ? {} : { objectGraceMs: parseDuration(objectGrace, "--object-grace") }),
    sealing: {
      ...(sealSize === undefined ? {} : { bytesMax: parseSize(sealSize, "--seal-size") }),
      ...(sealAge === undefined ? {} : { ageMsMax: parseDuration(sealAge, "--seal-age") }),
      ...(keepSize === undefined ? {} : { keptBytes: parseSize(keepSize, "--keep-size") }),
      ...(tailSize === undefined ? {} : { hotTailBytesMax: parseSize(tailSize, "--tail-size") }),
    },
  };
}

function seedList(text: string): string[] {
  const seeds = text.split(",").map((each) => each.trim());
  if (seeds.includes("")) throw new UsageError(`Cannot use --seed ${JSON.stringify(text)}: want host:port, several with commas`);
  return seeds;
}

function pemText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new UsageError(`Cannot read ${file}: ${faultText(error)}`, { cause: error });
  }
}

function hostAndPort(address: string, option: string): { readonly host: string; readonly port: number } {
  checkAddress(address, option);
  if (address.startsWith("unix:")) throw new CommandError(exit.usage, `Cannot use ${option} ${address}: want host:port`);
  const colon = address.lastIndexOf(":");
  return { host: address.slice(0, colon).replace(/^\[|\]$/g, ""), port: Number(address.slice(colon + 1)) };
}

function roadWithin(node: Node): Road {
  const connect: Connect = (open) =>
    localPair({ codec: dispatchCodec, open: node.acceptWorker }, { codec: workerCodec, open }, limits).client;
  return { connect, blobs: (sha256) => node.blob(sha256) };
}

/** Resolves when the process is asked to end; throws when the server can't go on. */
export async function untilStopped(node: RunningNode, signal: AbortSignal): Promise<void> {
  const cause = await Promise.race([node.failed, untilAborted(signal)]);
  if (cause === undefined) return;
  if (reasonOf(cause) === "NOT_A_MEMBER") throw new CommandError(exit.failed, `The server stops: ${faultText(cause)}`, { cause });
  throw new CommandError(exit.failed, `The server stops: it can't go on: ${faultText(cause)}`, {
    cause,
    next: "see that its disk is sound, then start it again: what was acknowledged is kept",
  });
}

/** Loads the named activity files; where none are named, those beside the workflow files or in the current folder. */
export function loadActivityFiles(flags: WorkerFlags, workflowFiles: readonly string[] = []): Promise<ActivityFiles> {
  const files =
    flags.activities === undefined ? activityFilesBeside(workflowFiles, process.cwd()) : existingFiles(flags.activities, "activity file");
  return ActivityFiles.load(files);
}

/** Starts a worker that runs TypeScript in V8. */
export async function composeWorker(plan: WorkerPlan): Promise<Worker> {
  const { flags, namespace, road, activities, log, codeLog = log } = plan;
  const slots = parseCount(flags.slots, "slots", { min: 1, max: slotsMax });
  const [{ startWorker, V8Host }, assets] = await Promise.all([import("#worker"), extractAssets(["node", "v8"])]);
  const { lane } = flags;
  return startWorker({
    ...road,
    namespace,
    ...(activities === undefined ? {} : { activities }),
    ...(slots === undefined ? {} : { activitySlots: slots }),
    ...(flags.id === undefined ? {} : { workerId: flags.id }),
    version,
    host: (source) => {
      const host = new V8Host({
        source,
        assets: { node: assets.node, addon: assets.addon, child: assets.child, kernel: readFileSync(assets.kernel, "utf8") },
        ...(lane === undefined ? {} : { lane }),
        onLog: ({ run, type, level, message }) => codeLog(levelOf(level), message, { run, type }),
        onProblem: (message) => log("warn", message),
      });
      // Its process starts while the worker connects, not when the first run waits for it.
      host.start().catch((error: Error) => log("warn", error.message));
      return host;
    },
    // An activity's own words carry its name.
    onLog: ({ level, message, fields }) => (fields?.activity === undefined ? log : codeLog)(level, message, fields),
  });
}

const levelOf = (level: string): Level => (level === "debug" || level === "warn" || level === "error" ? level : "info");

/** Resolves when the process is asked to end. */
export function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
