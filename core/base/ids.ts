/**
 * Names and numbers that must not be mixed up.
 *
 * A run is addressed `namespace:instance`; its partition is `run/namespace:instance`. Index,
 * term and seq are safe integers; a key is a point in 0 … 2^64−1.
 */
import { limits } from "./limits.ts";

declare const brand: unique symbol;
type Branded<T, Name extends string> = T & { readonly [brand]: Name };

/** Name of an ordered log, with its kind: `run/default:order-1`. */
export type Partition = Branded<string, "Partition">;
/** Address of a run: `namespace:instance`. */
export type RunId = Branded<string, "RunId">;
/** Position in a shard's log, from 1. */
export type Index = Branded<number, "Index">;
export type Term = Branded<number, "Term">;
/** Position of an event in its partition, from 0: the MMR leaf index. */
export type Seq = Branded<number, "Seq">;
/** Version of the shard map. */
export type Epoch = Branded<number, "Epoch">;
export type ShardId = Branded<number, "ShardId">;
/** A member of the cluster, numbered by placement from 1; also its number in each Raft group. */
export type NodeId = Branded<number, "NodeId">;
/** A connected worker stream, unique in one life of a node. */
export type SessionId = Branded<number, "SessionId">;
/** A client's open request, unique in one life of a node. */
export type RequestId = Branded<number, "RequestId">;

export const asIndex = (value: number) => value as Index;
export const asSeq = (value: number) => value as Seq;
export const asTerm = (value: number) => value as Term;
export const asShardId = (value: number) => value as ShardId;
export const asNodeId = (value: number) => value as NodeId;

/** The group that holds placement: nodes, the shard map, deployments. Shards of data begin at 1. */
export const placementShard = asShardId(0);
export const firstDataShard = asShardId(1);
export const asSessionId = (value: number) => value as SessionId;
export const asRequestId = (value: number) => value as RequestId;

export const runPartition = (run: RunId) => `run/${run}` as Partition;
/** The partition of a schedule, which is addressed as a run is: `namespace:id`. */
export const schedulePartition = (schedule: RunId) => `sched/${schedule}` as Partition;
export const isSchedule = (partition: string) => partition.startsWith("sched/");
/** The partition of a channel, which is addressed as a run is: `namespace:name`. */
export const channelPartition = (channel: RunId) => `chan/${channel}` as Partition;
export const isChannel = (partition: string) => partition.startsWith("chan/");
/** The partition of an activity's idempotency key, which is addressed as a run is: `namespace:activity:key`. */
export const keyPartition = (key: RunId) => `key/${key}` as Partition;
export const isKey = (partition: string) => partition.startsWith("key/");
/** Core carries it on without a worker: it is a schedule's, a channel's or a key's, and no run's. */
export const isCarriedByCore = (partition: string) => isSchedule(partition) || isChannel(partition) || isKey(partition);
/** The address in the partition of a run, a schedule, a channel or a key. */
export const runOf = (partition: Partition) => partition.slice(partition.indexOf("/") + 1) as RunId;
export const namespaceOf = (run: RunId) => run.slice(0, run.indexOf(":"));
export const instanceOf = (run: RunId) => run.slice(run.indexOf(":") + 1);

/** UTF-8 length of `text`. */
export function utf8Bytes(text: string): number {
  let bytes = 0;
  for (const char of text) {
    const code = char.codePointAt(0) as number;
    bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  }
  return bytes;
}

/**
 * What is wrong with `name` as a name, or undefined.
 *
 * Any text of 1–255 bytes that holds no control character and no lone surrogate is a name: it is
 * carried through intact, spaces, slashes, quotes and emoji included.
 */
export function nameProblem(name: string): string | undefined {
  if (name === "") return "is empty";
  if (utf8Bytes(name) > limits.nameBytesMax) return `has ${utf8Bytes(name)} bytes, at most ${limits.nameBytesMax} are allowed`;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
  if (/[\u0000-\u001f\u007f]/.test(name)) return "holds a control character";
  if (!name.isWellFormed()) return "is not well-formed Unicode";
  return undefined;
}

/** A namespace keeps to letters, digits, `-`, `_` and `.`, so that the first `:` ends it. */
export function namespaceProblem(name: string): string | undefined {
  return /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(name)
    ? undefined
    : "is not 1–63 letters, digits, '-', '_' or '.', beginning with a letter or digit";
}

/** `namespace:instance`, or what is wrong with it. */
export function parseRunId(text: string): RunId | { readonly problem: string } {
  const colon = text.indexOf(":");
  if (colon < 0) return { problem: "has no ':' between namespace and instance" };
  const space = namespaceProblem(text.slice(0, colon));
  if (space !== undefined) return { problem: `its namespace ${space}` };
  const name = nameProblem(text.slice(colon + 1));
  return name === undefined ? (text as RunId) : { problem: `its instance name ${name}` };
}

/** A name's run, or one start that waited in its queue: `default:order-1`, `12@default:order-1`. */
export interface RunAddress {
  readonly run: RunId;
  /** 0 = whichever run of the name is the newest. */
  readonly ticket: number;
}

/** No namespace holds an `@`, so an address is never a name. */
export const addressText = ({ run, ticket }: RunAddress): string => (ticket === 0 ? run : `${ticket}@${run}`);

/** `namespace:instance` or `ticket@namespace:instance`, or what is wrong with it. */
export function parseAddress(text: string): RunAddress | { readonly problem: string } {
  const [, ticket = "0", rest = text] = /^([1-9][0-9]{0,14})@(.*)$/s.exec(text) ?? [];
  const run = parseRunId(rest);
  return typeof run === "string" ? { run, ticket: Number(ticket) } : run;
}
