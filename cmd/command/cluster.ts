/** `hop cluster`: makes, joins and leaves a cluster, and shows how it stands. */
import { type ClusterMember, type ClusterStatus, MemberState, NodePhase, type ReplicationSetting, type SeedAttempt } from "#proto";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, parseCount } from "../context.ts";
import { formatDuration } from "../duration.ts";
import { timeText } from "../event-text.ts";
import { type ExitCode, exit, UsageError } from "../failure.ts";
import { whoText } from "../history.ts";
import type { Listing, Output } from "../output.ts";
import { allPages } from "../pages.ts";
import type { Remote } from "../remote.ts";
import { bytesText } from "../size.ts";
import { visible } from "../terminal.ts";
import { follow } from "./change.ts";

/** Nodes are started right before it. */
const startMsMax = 10_000;

export async function clusterInit(context: Context, options: GlobalOptions): Promise<ExitCode> {
  const init = async ({ cluster }: Remote): Promise<ExitCode> => {
    const { clusterId, node } = await cluster.init();
    const { output } = context;
    if (output.format === "json" || output.format === "jsonl") output.json({ cluster: clusterId, node });
    else output.line(clusterId);
    if (output.isForPeople) output.say(`This is node ${node} of a new cluster; nodes that have its address as a --seed join by themselves`);
    return exit.ok;
  };
  return withRemote(context, options, init, { startMs: startMsMax });
}

export function clusterJoin(context: Context, options: GlobalOptions, seeds: string[]): Promise<ExitCode> {
  const list = seeds.flatMap((each) => each.split(",")).map((each) => each.trim());
  return follow(context, options, {
    begin: ({ cluster }) => cluster.join(list),
    seeIt: "see what it tries with `hop cluster status`",
  });
}

export function clusterLeave(context: Context, options: GlobalOptions, node: string): Promise<ExitCode> {
  const number = nodeNumber(node);
  return follow(context, options, {
    begin: ({ cluster }) => cluster.leave(number),
    seeIt: "see what it still holds with `hop cluster members`",
  });
}

/** A node as the command line names it. */
export function nodeNumber(text: string, what = "node"): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= 1 && value <= 0xffff_ffff) return value;
  throw new UsageError(`Cannot use ${what} ${JSON.stringify(text)}: want its number, such as 1`, {
    next: "list the nodes with `hop cluster members`",
  });
}

export interface SetReplicationOptions extends GlobalOptions {
  readonly reason?: string;
}

export async function clusterSetReplication(context: Context, options: SetReplicationOptions, text: string): Promise<ExitCode> {
  const count = Number(text);
  if (!["1", "3", "5", "7"].includes(text))
    throw new UsageError(`Cannot set the replication factor to ${JSON.stringify(text)}: want 1, 3, 5 or 7 replicas of each shard`);
  return withRemote(context, options, async ({ cluster }) => {
    const setting = await cluster.setReplication({ count, reason: options.reason ?? "" });
    const { output } = context;
    if (output.isForPeople || output.format === "ids") output.line(String(count));
    else output.json({ replication: count, ...settingJson(setting) });
    if (output.isForPeople) output.say(`${setByText(setting)}; see how far it is with \`hop cluster status\``);
    return exit.ok;
  });
}

/** Who set the replication factor, when and why. */
function setByText(setting: ReplicationSetting | undefined): string {
  if (setting === undefined) return "as the cluster was made";
  const { version, identity, changedMs, reason } = setting;
  const why = reason === "" ? "" : `: ${visible(reason)}`;
  return `version ${version}, set by ${whoText(identity)} at ${timeText(changedMs)}${why}`;
}

const settingJson = (setting: ReplicationSetting | undefined) =>
  setting === undefined
    ? { version: 1, setBy: null, setAt: null, reason: null }
    : {
        version: setting.version,
        setBy: whoText(setting.identity),
        setAt: timeText(setting.changedMs),
        reason: setting.reason === "" ? null : setting.reason,
      };

const phaseWords: Readonly<Record<number, string>> = {
  [NodePhase.joining]: "joining",
  [NodePhase.member]: "member",
  [NodePhase.leaving]: "leaving",
  [NodePhase.removed]: "removed",
};
const memberWords: Readonly<Record<number, string>> = {
  [MemberState.live]: "live",
  [MemberState.unreachable]: "unreachable",
  [MemberState.leaving]: "leaving",
  [MemberState.removed]: "removed",
};
const phaseWord = (phase: number) => phaseWords[phase] ?? `phase ${phase}`;
const memberWord = (state: number) => memberWords[state] ?? `state ${state}`;

export interface StatusOptions extends GlobalOptions {
  readonly waitNodes?: string;
}

export async function clusterStatus(context: Context, options: StatusOptions): Promise<ExitCode> {
  const nodes = parseCount(options.waitNodes, "wait-nodes", { min: 1, max: nodesMax });
  let lacking: string | undefined;
  const onLack = (lack: string): void => {
    lacking = lack;
    context.output.progress().update(`waiting: ${lack}`);
  };
  const body = async ({ cluster }: Remote): Promise<ExitCode> => {
    const { output, interrupt } = context;
    const status =
      nodes === undefined ? await cluster.status() : await untilWhole(output, interrupt, { nodes, onLack, ask: () => cluster.status() });
    if (output.format === "ids") output.line(status.clusterId);
    else if (output.isForPeople) showStatus(output, status);
    else output.json(statusJson(status));
    return exit.ok;
  };
  return withRemote(context, options, body, { startMs: nodes === undefined ? 0 : startMsMax, lacking: () => lacking });
}

const nodesMax = 10_000;
const lookMs = 250;

/** Asks until so many nodes are live, and every shard and placement have all replicas that are wanted, and a leader. */
async function untilWhole(
  output: Output,
  interrupt: AbortSignal,
  { nodes, onLack, ask }: { readonly nodes: number; readonly onLack: (lack: string) => void; readonly ask: () => Promise<ClusterStatus> },
): Promise<ClusterStatus> {
  try {
    for (;;) {
      const status = await ask();
      const lack = lackOf(status, nodes);
      if (lack === undefined || interrupt.aborted) return status;
      onLack(lack);
      await Bun.sleep(lookMs);
    }
  } finally {
    output.progress().done();
  }
}

/** What a cluster of `nodes` lacks to be whole, or undefined. */
function lackOf(status: ClusterStatus, nodes: number): string | undefined {
  if (status.phase !== NodePhase.member) return `the node is ${phaseWord(status.phase)}`;
  if (status.nodesLive < nodes) return `${status.nodesLive} of ${nodes} nodes are live`;
  if (status.placementLeader === 0) return "placement has no leader";
  if (status.placementVoter.length < status.replicationFactor)
    return `placement has ${status.placementVoter.length} of ${status.replicationFactor} voters`;
  if (status.shardsWithoutLeader > 0) return `${status.shardsWithoutLeader} shards have no leader`;
  return status.shardsUnderReplicated > 0 ? `${status.shardsUnderReplicated} shards are under-replicated` : status.underWay[0];
}

function showStatus(output: Output, status: ClusterStatus): void {
  const bad = (isBad: boolean, text: string) => (isBad ? output.paint("yellow", text) : text);
  const phase = phaseWord(status.phase);
  output.field("cluster", status.clusterId === "" ? bad(true, "none yet") : status.clusterId);
  const who = status.node === 0 ? phase : `${status.node}, ${phase}`;
  output.field(
    "node",
    `${bad(status.phase !== NodePhase.member, who)}, version ${status.version}${status.peer === "" ? "" : `, peers reach it at ${status.peer}`}`,
  );
  for (const seed of status.seed) output.field("seed", seedText(seed));
  if (status.clusterId === "") return;
  const { placementLeader, placementVoter, nodesLive, nodesTotal } = status;
  const leader = placementLeader === 0 ? bad(true, "no leader") : `led by node ${placementLeader}`;
  output.field("placement", `${leader}, voters ${placementVoter.join(", ")}`);
  output.field("nodes", bad(nodesLive < nodesTotal, `${nodesLive} live of ${nodesTotal}`));
  const { shardsTotal, shardsUnderReplicated, shardsWithoutLeader } = status;
  output.field("replicas", replicasText(status, bad));
  output.field(
    "shards",
    `${shardsTotal}, ${bad(shardsUnderReplicated > 0, `${shardsUnderReplicated} under-replicated`)}, ${bad(shardsWithoutLeader > 0, `${shardsWithoutLeader} without leader`)}`,
  );
  output.field("map", `epoch ${status.epoch}`);
  const versions = status.versions.map(({ version, nodes }) => `${version} on ${nodes} ${nodes === 1 ? "node" : "nodes"}`);
  output.field("versions", bad(versions.length > 1, versions.join(", ")));
  if (status.unsealed !== "") output.field("sealing", bad(true, visible(status.unsealed)));
  for (const change of status.underWay) output.field("under way", visible(change));
}

/** How many of each shard are wanted, who said so, and how many there can be. */
function replicasText(status: ClusterStatus, bad: (isBad: boolean, text: string) => string): string {
  const { replicationFactor: possible, replication } = status;
  // A node of an older version tells only what is possible.
  const wanted = Math.max(status.replicationWanted, possible);
  const few = possible < wanted ? `, ${bad(true, `${possible} with the members there are`)}` : "";
  return `${wanted} of each shard wanted${few}${replication === undefined ? "" : ` (${setByText(replication)})`}`;
}

function seedText({ seed, address, problem, triedMs }: SeedAttempt): string {
  if (triedMs === 0) return `${visible(seed)}: not tried yet`;
  const where = address.length === 0 || (address.length === 1 && address[0] === seed) ? "" : ` (${address.map(visible).join(", ")})`;
  const ago = formatDuration(Math.max(0, Date.now() - triedMs));
  return `${visible(seed)}${where}: ${visible(problem === "" ? "answered" : problem)}, ${ago} ago`;
}

function statusJson(status: ClusterStatus) {
  const { clusterId, phase, seed, placementLeader, placementVoter, underWay, replication, ...rest } = status;
  return {
    cluster: clusterId === "" ? null : clusterId,
    ...rest,
    phase: phaseWord(phase),
    seeds: seed.map(({ triedMs, ...each }) => ({ ...each, triedAt: triedMs === 0 ? null : timeText(triedMs) })),
    replication: { wanted: status.replicationWanted, ...settingJson(replication) },
    placement: { leader: placementLeader === 0 ? null : placementLeader, voters: placementVoter },
    underWay,
  };
}

export interface PageOptions extends GlobalOptions {
  readonly limit?: string;
}

export interface MembersOptions extends PageOptions {
  readonly removed?: boolean;
}

/** Stands for a figure that nobody could tell. */
export const unknown = "–";

export const rowsMax = 1_000_000;

export async function clusterMembers(context: Context, options: MembersOptions): Promise<ExitCode> {
  const limit = parseCount(options.limit, "limit", { min: 1, max: rowsMax }) ?? rowsMax;
  return withRemote(context, options, async ({ cluster }) => {
    const members = await allPages(limit, async (page) => {
      const reply = await cluster.members({ ...page, removed: options.removed === true });
      return { items: reply.member, next: reply.nextPageToken };
    });
    context.output.list(members, memberListing(context.output));
    return exit.ok;
  });
}

function memberListing(output: Output): Listing<ClusterMember> {
  const nowMs = Date.now();
  const state = (member: ClusterMember) =>
    member.state === MemberState.unreachable && member.unreachableSinceMs > 0
      ? `unreachable for ${formatDuration(Math.max(0, nowMs - member.unreachableSinceMs))}`
      : memberWord(member.state);
  return {
    columns: [
      { title: "NODE", value: (member) => String(member.node), align: "right" },
      {
        title: "STATE",
        value: state,
        paint: (text, member) => (member.state === MemberState.live ? output.paint("green", text) : output.paint("yellow", text)),
      },
      { title: "LEADS", value: (member) => String(member.shardsLed), align: "right" },
      { title: "REPLICAS", value: (member) => String(member.replicas), align: "right" },
      { title: "DISK", value: ({ diskBytes }) => (diskBytes === 0 ? unknown : bytesText(diskBytes)), align: "right", drop: true },
      { title: "SERVER", value: (member) => member.grpc },
      { title: "PEER", value: (member) => member.peer, drop: true },
      { title: "ZONE", value: (member) => member.zone, drop: true },
      { title: "VERSION", value: (member) => member.version, drop: true },
      { title: "PLACEMENT", value: (member) => (member.placementVoter ? "votes" : ""), drop: true },
    ],
    id: (member) => String(member.node),
    json: ({ unreachableSinceMs, joinedMs, state: number, diskBytes, ...member }) => ({
      ...member,
      diskBytes: diskBytes === 0 ? null : diskBytes,
      state: memberWord(number),
      unreachableSince: unreachableSinceMs === 0 ? null : timeText(unreachableSinceMs),
      joinedAt: joinedMs === 0 ? null : timeText(joinedMs),
    }),
    empty: "No members",
  };
}
