/**
 * The cluster as it will be when everything planned so far is done: what one round of planning
 * works on, so that its steps do not get in each other's way.
 */
import type { NodeId, ShardId } from "#core/base";
import type { NodeEntry } from "../node-entry.ts";
import { holders, isSettled, type ShardEntry, sorted } from "../shard-entry.ts";
import type { ClusterView } from "../view.ts";
import { type NodeReport, type PlanInput, type PlanOptions, type PlanStep, planDefaults, type ShardLoadReport } from "./plan-input.ts";

export class Outlook {
  readonly view: ClusterView;
  readonly options: PlanOptions;
  readonly nowMs: number;
  readonly steps: PlanStep[] = [];
  /** Shards that this round changes. */
  readonly taken = new Set<ShardId>();
  /** Splits and merges under way, or begun in this round. */
  keyChanges = 0;
  private readonly input: PlanInput;
  private readonly all: readonly ShardEntry[];
  private readonly memberList: readonly NodeEntry[];
  private readonly moving = new Set<ShardId>();
  private readonly wantedSets = new Map<ShardId, readonly NodeId[]>();
  private readonly replicas = new Map<NodeId, number>();
  private readonly leaders = new Map<NodeId, number>();

  constructor(input: PlanInput) {
    this.input = input;
    this.view = input.view;
    this.nowMs = input.nowMs;
    this.options = { ...planDefaults, ...input.options };
    const { placement, shards, nodes } = this.view;
    this.all = placement === undefined ? [...shards.values()] : [placement, ...shards.values()];
    this.memberList = [...nodes.values()].filter((each) => each.standing === "member");
    for (const entry of this.all) if (!isSettled(entry)) this.moving.add(entry.shard);
    for (const entry of shards.values()) {
      if (entry.change !== undefined && entry.change.kind !== "merge-right") this.keyChanges++;
      for (const node of entry.wanted) add(this.replicas, node, 1);
      const leader = this.leaderOf(entry);
      if (leader !== undefined) add(this.leaders, leader, 1);
    }
  }

  /** A new leader of placement knows too little to plan until it has heard of all, or listened long enough. */
  get isListening(): boolean {
    if (this.nowMs - this.input.leadsSinceMs >= this.options.listenMs) return false;
    return this.members().some(({ node }) => !this.hears(node));
  }

  node(node: NodeId): NodeEntry | undefined {
    return this.view.nodes.get(node);
  }

  /** Nodes that are to hold replicas. */
  members(): readonly NodeEntry[] {
    return this.memberList;
  }

  /** Placement first, then the shards of data. */
  shards(): readonly ShardEntry[] {
    return this.all;
  }

  isMember(node: NodeId): boolean {
    return this.node(node)?.standing === "member";
  }

  /** Heard of just now. */
  isReachable(node: NodeId): boolean {
    return this.hears(node) && this.silenceMs(node) <= this.options.silentAfterMs;
  }

  /** Said to be lost, or not heard for long. */
  isDead(node: NodeId): boolean {
    const standing = this.node(node)?.standing;
    return standing === undefined || standing === "lost" || standing === "removed" || this.silenceMs(node) > this.options.deadAfterMs;
  }

  /** Its disk takes nothing more. */
  isFull(node: NodeId): boolean {
    return this.heard(node)?.isFull ?? false;
  }

  /** May be given replicas and leads. */
  isOpen(node: NodeId): boolean {
    return this.isMember(node) && this.isReachable(node) && !this.isFull(node);
  }

  /** Nodes of one zone fail together; a node without a zone is a zone of its own. */
  zone(node: NodeId): string {
    const zone = this.node(node)?.info.zone ?? "";
    return zone === "" ? `node ${node}` : `zone ${zone}`;
  }

  /** Replicas of `nodes` that share a zone with another one. */
  crowding(nodes: readonly NodeId[]): number {
    return nodes.length - new Set(nodes.map((node) => this.zone(node))).size;
  }

  wanted(entry: ShardEntry): readonly NodeId[] {
    return this.wantedSets.get(entry.shard) ?? entry.wanted;
  }

  replicaCount(node: NodeId): number {
    return this.replicas.get(node) ?? 0;
  }

  leaderCount(node: NodeId): number {
    return this.leaders.get(node) ?? 0;
  }

  leaderOf(entry: ShardEntry): NodeId | undefined {
    return entry.shard === 0 ? this.input.self : entry.lease?.node;
  }

  /** What the shard's leader told. */
  load(entry: ShardEntry): ShardLoadReport | undefined {
    const leader = this.leaderOf(entry);
    const report = leader === undefined ? undefined : this.heard(leader)?.loads.get(entry.shard);
    return report?.leads === true ? report : undefined;
  }

  /** A majority of the voters is there, in both halves of a joint configuration: the shard can change. */
  hasQuorum(entry: ShardEntry): boolean {
    const most = (nodes: readonly NodeId[]) => nodes.filter((node) => this.isReachable(node)).length * 2 > nodes.length;
    return most(entry.voters) && (entry.outgoing.length === 0 || most(entry.outgoing));
  }

  /** Not changed by this round, nor by an earlier one. */
  isIdle(entry: ShardEntry): boolean {
    return entry.change === undefined && isSettled(entry) && !this.taken.has(entry.shard);
  }

  /** Its keys were not changed, nor was a change of them given up, for so long. */
  isSettledFor({ settledMs }: ShardEntry, ms: number): boolean {
    return settledMs === 0 || this.nowMs - settledMs >= ms;
  }

  /** Shards whose members are changing, placement too. */
  movesUnderWay(): number {
    return this.moving.size;
  }

  holds(node: NodeId): boolean {
    return this.all.some((each) => holders(each).includes(node) || each.wanted.includes(node));
  }

  wantReplicas(entry: ShardEntry, nodes: readonly NodeId[], why: string): void {
    const next = sorted(nodes);
    if (entry.shard !== 0) {
      for (const node of this.wanted(entry)) add(this.replicas, node, -1);
      for (const node of next) add(this.replicas, node, 1);
    }
    this.wantedSets.set(entry.shard, next);
    this.moving.add(entry.shard);
    this.command(entry.shard, { kind: "want-replicas", shard: entry.shard, nodes: next }, why);
  }

  transfer(entry: ShardEntry, to: NodeId, why: string): void {
    const from = this.leaderOf(entry);
    if (from === undefined) return;
    add(this.leaders, from, -1);
    add(this.leaders, to, 1);
    this.taken.add(entry.shard);
    this.steps.push({ kind: "transfer", shard: entry.shard, from, to, why });
  }

  command(shard: ShardId | undefined, command: Extract<PlanStep, { kind: "command" }>["command"], why: string): void {
    if (shard !== undefined) this.taken.add(shard);
    if (command.kind === "want-split" || command.kind === "want-merge") this.keyChanges++;
    this.steps.push({ kind: "command", command, why });
  }

  private hears(node: NodeId): boolean {
    return this.heard(node) !== undefined;
  }

  private heard(node: NodeId): NodeReport | undefined {
    return this.input.reports.get(node);
  }

  private silenceMs(node: NodeId): number {
    // Whoever was not heard since this node leads may have spoken to the leader before.
    return this.nowMs - Math.max(this.heard(node)?.lastHeardMs ?? 0, this.input.leadsSinceMs);
  }
}

function add(counts: Map<NodeId, number>, node: NodeId, by: number): void {
  counts.set(node, (counts.get(node) ?? 0) + by);
}
