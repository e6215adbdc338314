/**
 * A cluster in small: placement itself is the real machine; nodes and shards do, a step a round,
 * what placement wants of them. Each round checks what a plan may never break.
 */
import { asNodeId, asTerm, type NodeId, type Prng } from "#core/base";
import { type Placement, pair, set } from "../machine-fixture.ts";
import { holders, isVoter, type ShardEntry, sameNodes } from "../shard-entry.ts";
import { planCluster } from "./plan.ts";
import type { NodeReport, PlanInput, PlanOptions, PlanStep, ShardLoadReport } from "./plan-input.ts";

export class SimulatedCluster {
  readonly placement: Placement;
  readonly dead = new Set<NodeId>();
  /** Nodes whose disk takes nothing more. */
  readonly full = new Set<NodeId>();
  readonly options: Partial<PlanOptions>;
  /** Bytes in all, even over the keys. */
  bytes = 0;
  readonly prng: Prng;
  readonly leadsSinceMs: number;
  steps: PlanStep[] = [];
  /** Everything that was ever planned, by kind. */
  readonly planned = new Map<string, number>();
  private readonly heard = new Map<NodeId, number>();
  /** Chance that a shard, or a handed-over lead, gets on in a round. */
  private readonly pace: number;

  constructor(placement: Placement, prng: Prng, options: Partial<PlanOptions> = {}, pace = 0.8) {
    this.placement = placement;
    this.prng = prng;
    this.options = options;
    this.pace = pace;
    this.leadsSinceMs = placement.nowMs;
  }

  get shards(): ShardEntry[] {
    const { placement, shards } = this.placement.view;
    return [...(placement === undefined ? [] : [placement]), ...shards.values()];
  }

  isAlive(node: NodeId): boolean {
    return !this.dead.has(node) && this.placement.view.nodes.get(node)?.standing !== "removed";
  }

  hasQuorum(entry: ShardEntry, without?: NodeId): boolean {
    const most = (nodes: readonly NodeId[]) => nodes.filter((node) => node !== without && this.isAlive(node)).length * 2 > nodes.length;
    return most(entry.voters) && (entry.outgoing.length === 0 || most(entry.outgoing));
  }

  /** The node is gone from now on, unless a shard would lose its quorum. */
  kill(node: NodeId): boolean {
    if (!this.shards.every((entry) => this.hasQuorum(entry, node))) return false;
    this.dead.add(node);
    return true;
  }

  input(): PlanInput {
    const { view, nowMs } = this.placement;
    const reports = new Map<NodeId, NodeReport>();
    const loads = this.loads();
    for (const [node, lastHeardMs] of this.heard)
      reports.set(node, { lastHeardMs, loads: loads.get(node) ?? new Map(), isFull: this.full.has(node) });
    const self = this.leaderOf(view.placement as ShardEntry) ?? asNodeId(1);
    return { view, reports, nowMs, self, leadsSinceMs: this.leadsSinceMs, options: this.options };
  }

  /** A second passes: nodes report, shards get on, placement plans. Returns what was planned. */
  round(): PlanStep[] {
    const { placement } = this;
    placement.nowMs += 1000;
    for (const { node } of placement.view.nodes.values()) if (this.isAlive(node)) this.heard.set(node, placement.nowMs);
    for (const entry of this.shards) this.work(entry);
    const before = new Map(this.shards.map((entry) => [entry.shard, this.hasQuorum(entry)]));
    this.steps = planCluster(this.input());
    for (const step of this.steps) this.take(step);
    for (const entry of this.shards) {
      if (before.get(entry.shard) === true && !this.hasQuorum(entry)) throw new Error(`Shard ${entry.shard} lost its quorum by a plan`);
    }
    return this.steps;
  }

  /** Rounds until nothing is planned and nothing moves, for `quiet` rounds on end. Throws above `most`. */
  settle(most: number, quiet = 7): number {
    let calm = 0;
    for (let rounds = 1; rounds <= most; rounds++) {
      this.round();
      const isAtRest = this.shards.every(
        (entry) => entry.change === undefined && (sameNodes(entry.voters, entry.wanted) || !this.hasQuorum(entry)),
      );
      calm = this.steps.length === 0 && isAtRest ? calm + 1 : 0;
      if (calm === quiet) return rounds;
    }
    const restless = this.shards.filter((entry) => entry.change !== undefined || !sameNodes(entry.voters, entry.wanted));
    const told = restless.map(
      (entry) => `shard ${entry.shard} on ${entry.voters.join()} wanted on ${entry.wanted.join()} ${entry.change?.kind ?? ""}`,
    );
    throw new Error(
      `Not settled after ${most} rounds: ${JSON.stringify(this.steps.slice(0, 3))} ${told.join("; ")}; dead ${[...this.dead].join()}`,
    );
  }

  private take(step: PlanStep): void {
    const name = step.kind === "transfer" ? "transfer" : step.command.kind;
    this.planned.set(name, (this.planned.get(name) ?? 0) + 1);
    if (step.kind === "command") {
      if (step.command.kind === "want-replicas") this.checkTargets(step.command.nodes);
      const reply = this.placement.do(step.command);
      if (reply.kind === "rejected") throw new Error(`A plan was refused: ${reply.rejection.message}`);
      return;
    }
    const entry = this.shards.find((each) => each.shard === step.shard) as ShardEntry;
    this.checkRest(entry, step.from);
    if (entry.shard !== 0 && entry.lease?.node !== step.from) throw new Error(`Node ${step.from} does not lead shard ${step.shard}`);
    if (this.prng.chance(this.pace) && isVoter(entry, step.to) && this.isAlive(step.to)) this.elect(entry, step.to);
  }

  /** A lead that may stay does, for some seconds after the shard's keys changed. */
  private checkRest(entry: ShardEntry, from: NodeId): void {
    const mayStay = this.isAlive(from) && !this.full.has(from) && this.placement.view.nodes.get(from)?.standing === "member";
    if (mayStay && entry.settledMs > 0 && this.placement.nowMs - entry.settledMs < 5000)
      throw new Error(`The lead of shard ${entry.shard} moves ${this.placement.nowMs - entry.settledMs} ms after its keys changed`);
  }

  /** Nothing goes to a node that is known to be silent; most of what a shard is to be on is there. */
  private checkTargets(nodes: readonly NodeId[]): void {
    const silent = nodes.filter((node) => this.placement.nowMs - (this.heard.get(node) ?? 0) > 5000);
    if (silent.length * 2 >= nodes.length) throw new Error(`A shard is to be on ${nodes.join()}, of which ${silent.join()} are silent`);
  }

  private leaderOf(entry: ShardEntry): NodeId | undefined {
    const leader = entry.lease?.node;
    return leader !== undefined && isVoter(entry, leader) && this.isAlive(leader) ? leader : undefined;
  }

  private elect(entry: ShardEntry, node: NodeId): void {
    this.placement.lease(entry.shard, node, (entry.lease?.term ?? 0) + 1);
  }

  /** What the shard's leader does in a round. */
  private work(entry: ShardEntry): void {
    if (!this.hasQuorum(entry) || !this.prng.chance(this.pace)) return;
    if (this.leaderOf(entry) === undefined) {
      const able = holders({ ...entry, learners: [] }).filter((node) => this.isAlive(node));
      return this.elect(entry, able[this.prng.below(able.length)] as NodeId);
    }
    if (entry.change !== undefined) return this.changeKeys(entry);
    const report = (fields: Parameters<typeof set>[2], voters: readonly NodeId[]) =>
      this.placement.do({ kind: "replicas-changed", shard: entry.shard, replicas: set(voters, entry.configIndex + 1, fields) });
    const strangers = entry.wanted.filter((node) => !entry.voters.includes(node));
    if (entry.outgoing.length > 0) report({}, entry.voters);
    else if (strangers.some((node) => !entry.learners.includes(node))) report({ learners: strangers }, entry.voters);
    else if (strangers.some((node) => !this.isAlive(node))) return;
    else if (!sameNodes(entry.voters, entry.wanted)) report({ outgoing: entry.voters }, entry.wanted);
    else if (entry.learners.length > 0) report({}, entry.voters);
  }

  private changeKeys(entry: ShardEntry): void {
    const { change } = entry;
    if (change?.kind === "split")
      this.placement.lease(change.child, entry.lease?.node as NodeId, asTerm(1), { parent: entry.shard, at: change.at });
    if (change?.kind === "absorb") this.placement.do({ kind: "merge-done", ...pair(entry.shard, change.right) });
    // A replica that is dead never catches up: then the merge is cancelled.
    if (change?.kind === "merge-right" && entry.voters.every((node) => this.isAlive(node))) {
      const epoch = entry.lease?.epoch ?? 0;
      this.placement.do({ kind: "merge-frozen", ...pair(change.left, entry.shard), change: change.change, through: 7 as never, epoch });
    }
  }

  private loads(): Map<NodeId, Map<ShardEntry["shard"], ShardLoadReport>> {
    const loads = new Map<NodeId, Map<ShardEntry["shard"], ShardLoadReport>>();
    for (const entry of this.placement.view.shards.values()) {
      const bytes = this.bytes * ((entry.range.last - entry.range.first) / 2 ** 48);
      for (const node of holders(entry)) {
        const leads = entry.lease?.node === node;
        const own = loads.get(node) ?? new Map<ShardEntry["shard"], ShardLoadReport>();
        loads.set(node, own.set(entry.shard, { leads, bytes, eventsPerSecond: 0, partitions: 100, lastIndex: 10, lag: new Map() }));
      }
    }
    return loads;
  }
}
