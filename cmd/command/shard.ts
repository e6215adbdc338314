/** `hop shard`: lists, splits, merges, moves and compares shards. */
import { keyMax, toHex } from "#core/base";
import type { ReplicaHashes, ReplicaInfo, ShardInfo, VerifyReply } from "#proto";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, parseCount } from "../context.ts";
import { timeText } from "../event-text.ts";
import { type ExitCode, exit, UsageError } from "../failure.ts";
import type { Listing, Output } from "../output.ts";
import { allPages } from "../pages.ts";
import { bytesText } from "../size.ts";
import type { Column } from "../table.ts";
import { visible } from "../terminal.ts";
import { follow } from "./change.ts";
import { nodeNumber, type PageOptions, rowsMax, unknown } from "./cluster.ts";

const listShards = "list the shards with `hop shard list`";

/** Placement is shard 0: it can be shown, moved and verified, but not split or merged. */
function anyShard(text: string): number {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (value <= 0xffff_ffff) return value;
  throw new UsageError(`Cannot use shard ${JSON.stringify(text)}: want its number, such as 1`, { next: listShards });
}

/** A shard that has keys. */
function dataShard(text: string, doing: string): number {
  const shard = anyShard(text);
  if (shard !== 0) return shard;
  throw new UsageError(`Cannot ${doing} shard 0: it is placement, which holds no keys; want a shard of data, from 1`, { next: listShards });
}

export async function shardList(context: Context, options: PageOptions): Promise<ExitCode> {
  const limit = parseCount(options.limit, "limit", { min: 1, max: rowsMax }) ?? rowsMax;
  return withRemote(context, options, async ({ cluster }) => {
    const shards = await allPages(limit, async (page) => {
      const reply = await cluster.shards(page);
      return { items: reply.shard, next: reply.nextPageToken };
    });
    context.output.list(shards, shardListing(context.output));
    return exit.ok;
  });
}

const votersOf = ({ replica }: ShardInfo) => replica.filter(({ learner }) => !learner);
const lagOf = ({ replica }: ShardInfo) => Math.max(0, ...replica.map(({ lag }) => lag));
/** A figure that only a leader knows. */
const told = ({ reportedMs }: ShardInfo, text: string) => (reportedMs === 0 ? unknown : text);
const leaderText = ({ leader }: ShardInfo) => (leader === 0 ? "none" : String(leader));

function shardListing(output: Output): Listing<ShardInfo> {
  return {
    columns: [
      { title: "SHARD", value: (shard) => String(shard.shard), align: "right" },
      {
        title: "LEADER",
        value: leaderText,
        align: "right",
        paint: (text, { leader }) => (leader === 0 ? output.paint("yellow", text) : text),
      },
      { title: "REPLICAS", value: (shard) => replicasText(shard) },
      { title: "RANGE", value: ({ range }) => range, drop: true },
      { title: "LAG", value: (shard) => told(shard, String(lagOf(shard))), align: "right" },
      { title: "SIZE", value: (shard) => told(shard, bytesText(shard.bytes)), align: "right", drop: true },
      { title: "RATE", value: (shard) => told(shard, rateText(shard)), align: "right", drop: true },
      { title: "UNDER WAY", value: ({ change }) => change, shrink: true, drop: true },
    ],
    id: ({ shard }) => String(shard),
    json: shardJson,
    empty: "No shards",
  };
}

/** Nodes of the replicas: one that is unreachable is marked, one that still learns is in parentheses. */
function replicasText({ replica }: ShardInfo): string {
  return replica.map(({ node, learner, live }) => (learner ? `(${node})` : `${node}${live ? "" : "!"}`)).join(" ");
}

const rateText = ({ rateMilli }: ShardInfo) => `${(rateMilli / 1000).toFixed(rateMilli < 10_000 ? 1 : 0)}/s`;

function shardJson(shard: ShardInfo) {
  return {
    shard: shard.shard,
    range: shard.range,
    leader: shard.leader === 0 ? null : shard.leader,
    epoch: shard.epoch,
    term: shard.term,
    voters: votersOf(shard).map(({ node }) => node),
    learners: shard.replica.filter(({ learner }) => learner).map(({ node }) => node),
    lastIndex: shard.lastIndex,
    replicas: shard.replica,
    bytes: shard.bytes,
    ratePerSecond: shard.rateMilli / 1000,
    change: shard.change === "" ? null : shard.change,
    reportedAt: shard.reportedMs === 0 ? null : timeText(shard.reportedMs),
  };
}

export async function shardShow(context: Context, options: GlobalOptions, shard: string): Promise<ExitCode> {
  const number = anyShard(shard);
  return withRemote(context, options, async ({ cluster }) => {
    const info = await cluster.shard(number);
    const { output } = context;
    if (output.format === "ids") output.line(String(info.shard));
    else if (output.isForPeople) show(output, info);
    else output.json(shardJson(info));
    return exit.ok;
  });
}

const replicaColumns = (shard: ShardInfo): readonly Column<ReplicaInfo>[] => [
  { title: "NODE", value: ({ node }) => String(node), align: "right" },
  { title: "ROLE", value: ({ learner }) => (learner ? "learner" : "voter") },
  { title: "STATE", value: ({ live, progress }) => (live ? progress || unknown : "unreachable") },
  { title: "HAS", value: ({ matchIndex }) => told(shard, String(matchIndex)), align: "right" },
  { title: "LAG", value: ({ lag }) => told(shard, String(lag)), align: "right" },
];

function show(output: Output, shard: ShardInfo): void {
  output.field("shard", shard.shard === 0 ? "0, placement" : String(shard.shard));
  output.field("keys", shard.range);
  // Placement has no leadership lease.
  const lease = shard.epoch === 0 ? "" : `, epoch ${shard.epoch}, term ${shard.term}`;
  output.field("leader", shard.leader === 0 ? output.paint("yellow", "none") : `node ${shard.leader}${lease}`);
  output.field("log", told(shard, `${shard.lastIndex} entries, ${bytesText(shard.bytes)}, ${rateText(shard)}`));
  if (shard.change !== "") output.field("under way", visible(shard.change));
  output.field("reported", shard.reportedMs === 0 ? "never" : timeText(shard.reportedMs));
  output.line("");
  output.table(replicaColumns(shard), shard.replica);
}

export interface SplitOptions extends GlobalOptions {
  readonly at?: string;
}

export function shardSplit(context: Context, options: SplitOptions, shard: string): Promise<ExitCode> {
  const request = { shard: dataShard(shard, "split"), at: options.at === undefined ? 0 : keyOf(options.at) };
  return follow(context, options, { begin: ({ cluster }) => cluster.split(request), seeIt: `see it with \`hop shard show ${shard}\`` });
}

/** A key as `hop shard show` prints one: 64 bits in hex, of which the first 48 count. */
function keyOf(text: string): number {
  const digits = /^0x([0-9a-f]{16})$/i.exec(text)?.[1];
  const key = digits === undefined ? 0 : Number.parseInt(digits.slice(0, 12), 16);
  if (digits?.endsWith("0000") && key > 0 && key <= keyMax) return key;
  throw new UsageError(`Cannot split at ${JSON.stringify(text)}: want the first key of the new shard, such as 0x8000000000000000`);
}

export function shardMerge(context: Context, options: GlobalOptions, left: string): Promise<ExitCode> {
  const number = dataShard(left, "merge");
  return follow(context, options, { begin: ({ cluster }) => cluster.merge(number), seeIt: `see it with \`hop shard show ${left}\`` });
}

export function shardCompact(context: Context, options: GlobalOptions, shard: string): Promise<ExitCode> {
  const number = dataShard(shard, "compact");
  return follow(context, options, { begin: ({ cluster }) => cluster.compact(number), seeIt: "see it with `hop storage`" });
}

export interface MoveOptions extends GlobalOptions {
  readonly from: string;
  readonly to: string;
}

export function shardMove(context: Context, options: MoveOptions, shard: string): Promise<ExitCode> {
  const request = { shard: anyShard(shard), from: nodeNumber(options.from, "--from"), to: nodeNumber(options.to, "--to") };
  return follow(context, options, { begin: ({ cluster }) => cluster.move(request), seeIt: `see it with \`hop shard show ${shard}\`` });
}

export interface TransferOptions extends GlobalOptions {
  readonly to: string;
}

export function shardTransfer(context: Context, options: TransferOptions, shard: string): Promise<ExitCode> {
  const request = { shard: anyShard(shard), to: nodeNumber(options.to, "--to") };
  return follow(context, options, { begin: ({ cluster }) => cluster.transfer(request), seeIt: `see it with \`hop shard show ${shard}\`` });
}

export interface VerifyOptions extends GlobalOptions {
  readonly all?: boolean;
}

interface VerifiedReplica extends ReplicaHashes {
  readonly of: VerifyReply;
}

/** Exit code 1 where replicas differ, or one could not be compared. */
export async function shardVerify(context: Context, options: VerifyOptions, shard?: string): Promise<ExitCode> {
  if ((shard === undefined) === (options.all !== true)) throw new UsageError("Cannot verify: want the number of a shard, or --all");
  const request = shard === undefined ? { all: true } : { shard: anyShard(shard) };
  return withRemote(context, options, async ({ cluster }) => {
    const { output } = context;
    const replies: VerifyReply[] = [];
    for await (const reply of cluster.verify(request)) {
      replies.push(reply);
      output.progress().update(`${replies.length} compared`);
    }
    output.progress().done();
    showVerified(output, replies);
    return replies.every(({ ok }) => ok) ? exit.ok : exit.failed;
  });
}

function showVerified(output: Output, replies: readonly VerifyReply[]): void {
  if (!output.isForPeople) {
    output.list(replies, { columns: [], id: ({ shard }) => String(shard), json: verifyJson, empty: "" });
    return;
  }
  const rows = replies.flatMap((of) => of.replica.map((replica): VerifiedReplica => ({ ...replica, of })));
  output.table<VerifiedReplica>(
    [
      { title: "SHARD", value: ({ of }) => String(of.shard), align: "right" },
      { title: "NODE", value: ({ node }) => String(node), align: "right" },
      { title: "APPLIED", value: ({ appliedIndex }) => String(appliedIndex), align: "right" },
      { title: "STATE", value: ({ stateHash, problem }) => problem || toHex(stateHash.subarray(0, 8)), shrink: true },
      { title: "LOG", value: ({ logHash }) => toHex(logHash.subarray(0, 8)) },
    ],
    rows,
  );
  for (const { shard, ok, verdict } of replies)
    output.say(`${ok ? output.paintErr("green", "equal:") : output.paintErr("red", "error:")} shard ${shard}: ${visible(verdict)}`);
}

const verifyJson = ({ shard, index, ok, verdict, replica }: VerifyReply) => ({
  shard,
  index,
  ok,
  verdict,
  replicas: replica.map(({ stateHash, logHash, problem, ...each }) => ({
    ...each,
    stateHash: toHex(stateHash),
    logHash: toHex(logHash),
    problem: problem === "" ? null : problem,
  })),
});
