/**
 * What a shard's leader does so that the shard becomes what placement wants.
 *
 * It is looked at again and again and never remembered, so whoever leads next goes on where the one
 * before stopped.
 */
import { asIndex, type Index, type ShardId } from "#core/base";
import { isSettled, type ReplicaSet, type ShardEntry } from "#core/placement";
import { isJoint } from "#core/raft";
import type { ShardHost } from "../shard/shard-host.ts";
import { membershipStep } from "./membership-step.ts";
import type { ShardReplica } from "./shard-replica.ts";
import type { ReplicaSurroundings } from "./surroundings.ts";

/** Entries a member may be behind when its shard is frozen: the clients' pause is as long as they take. */
const freezeLagMax = 64;
const againMs = 2;

export class Reconciler {
  private readonly own: ShardReplica;
  private readonly around: ReplicaSurroundings;
  /** Leads, and saves states before a split. */
  private preparing: ShardHost | undefined;

  constructor(own: ShardReplica, around: ReplicaSurroundings) {
    this.own = own;
    this.around = around;
  }

  /** Does the next thing. Views of placement before version `actsFrom` say nothing to this leader. */
  reconcile(host: ShardHost, actsFrom: number): void {
    const { placement } = this.around;
    const entry = placement.version() < actsFrom ? undefined : placement.entry(this.own.shard);
    if (entry === undefined) return;
    this.reconcileMembers(entry);
    if (this.own.host === host) this.reconcileKeys(entry, host);
  }

  /** The shard is as placement wants it, and placement knows it as it is: only something new is to be looked at. */
  isContent(): boolean {
    const entry = this.around.placement.entry(this.own.shard);
    if (entry === undefined || entry.change !== undefined || this.own.isChanging() || !isSettled(entry)) return false;
    const replicas = this.own.replicaSet();
    return sameMembers(entry, replicas) && entry.configIndex <= replicas.configIndex;
  }

  private reconcileMembers(entry: ShardEntry): void {
    const { group, conf, appliedIndex } = this.own.replica;
    const { self, placement } = this.around;
    const replicas = this.own.replicaSet();
    if (!sameMembers(entry, replicas) && replicas.configIndex > entry.configIndex) placement.replicasChanged(this.own.shard, replicas);
    const { progress, lastIndex } = group.status();
    const isChanging = isJoint(conf) || group.hasUnappliedChange(appliedIndex);
    const match = new Map([...progress].map(([node, each]) => [node, node === self ? lastIndex : each.match]));
    const active = new Set([...progress].filter(([node, each]) => node === self || each.recentActive).map(([node]) => node));
    const step = membershipStep({ self, voters: conf.voters, learners: conf.learners, isChanging, match, lastIndex, active }, entry.wanted);
    switch (step.kind) {
      case "add-learners":
        return void group.proposeMembers({ addLearners: step.nodes });
      case "change-voters":
        return void group.proposeMembers({ addVoters: step.add, remove: step.remove });
      case "remove":
        return void group.proposeMembers({ remove: step.nodes });
      case "transfer":
        return group.transfer(step.to);
      default:
    }
  }

  private reconcileKeys(entry: ShardEntry, host: ShardHost): void {
    const { change } = entry;
    const { machine } = this.own.replica;
    const header = machine.header();
    if (header.frozenInto !== 0 && change?.kind !== "merge-right") return void host.change((own, nowMs) => own.thaw(nowMs));
    if (change === undefined || this.own.isChanging()) return;
    switch (change.kind) {
      case "split":
        if (change.at > header.first && change.at <= header.last) this.split(host, change);
        return;
      case "merge-right":
        return this.freeze(host, change);
      case "absorb":
        return this.absorb(host, entry, change);
      default:
    }
  }

  /** Most states are saved before, so that the pause is short. */
  private split(host: ShardHost, { at, child }: { readonly at: number; readonly child: ShardId }): void {
    if (this.preparing === host) return;
    // What an earlier leadership waited for may never come: its machine is gone.
    this.preparing = host;
    this.own.flushThrough(this.own.replica.machine.lastIndex, () => {
      if (this.preparing === host) this.preparing = undefined;
      if (this.own.host !== host) return;
      host.change((machine, nowMs) => machine.split({ at, child }, nowMs));
      this.own.seeDecided();
    });
  }

  private freeze(host: ShardHost, { left, change }: { readonly left: ShardId; readonly change: number }): void {
    const { frozenInto, frozenIndex, epoch } = this.own.replica.machine.header();
    if (frozenInto === 0) {
      // Where one is away the shard would stand still for nothing.
      if (this.allAnswer() && this.allHave(asIndex(Math.max(this.own.replica.group.lastIndex - freezeLagMax, 0))))
        host.change((machine, nowMs) => machine.freeze({ into: left }, nowMs));
      return;
    }
    const through = asIndex(frozenIndex);
    if (this.allHave(through)) this.around.placement.frozen({ left, right: this.own.shard, change, through, epoch });
    else this.around.timing.after(againMs, () => this.own.reconcile());
  }

  private absorb(host: ShardHost, entry: ShardEntry, { right, through }: { readonly right: ShardId; readonly through: Index }): void {
    const { placement, shards } = this.around;
    if (this.own.replica.machine.header().last >= entry.range.last) return placement.absorbed(this.own.shard, right);
    const replica = shards.replica(right);
    if (replica?.finish(through) !== true) return void this.around.timing.after(againMs, () => this.own.reconcile());
    const { machine } = replica.replica;
    const absorption = machine.absorption();
    // Above all that the right one was led under: its workers' tokens are of no future then.
    const epoch = entry.lease?.epoch ?? 0;
    if (host.change((own, nowMs) => own.renew(epoch, nowMs)) !== undefined) return;
    if (host.change((own, nowMs) => own.absorb(absorption, nowMs)) !== undefined) return;
    host.takeOver(machine.takeStalled());
    shards.widened(this.own.shard);
  }

  private allAnswer(): boolean {
    const { self } = this.around;
    for (const [node, { recentActive }] of this.own.replica.group.status().progress) if (node !== self && !recentActive) return false;
    return true;
  }

  private allHave(index: Index): boolean {
    const { self } = this.around;
    const { group } = this.own.replica;
    if (group.commitIndex < index) return false;
    for (const [node, { match }] of group.status().progress) if (node !== self && match < index) return false;
    return true;
  }
}

export function sameMembers(entry: ReplicaSet, now: ReplicaSet): boolean {
  const same = (a: readonly number[], b: readonly number[]) => a.length === b.length && a.every((node) => b.includes(node));
  return same(entry.voters, now.voters) && same(entry.learners, now.learners) && same(entry.outgoing, now.outgoing);
}
