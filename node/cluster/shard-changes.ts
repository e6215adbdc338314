/**
 * Changes of shards and members that people ask for, followed to their end.
 *
 * Placement is told what is wanted; that it came about is seen in the view. So a change goes on
 * when its caller is gone, and a caller that comes back finds it under way or done.
 */
import type { Key, NodeId, ShardId } from "#core/base";
import { HopError, keyText, placementShard, rangeText } from "#core/base";
import { type ClusterView, holders, isSettled, type ShardEntry, shardOf } from "#core/placement";
import type { ProgressInit } from "#proto";
import { askCompaction } from "../seal/compaction-road.ts";
import type { Asker, ProgressStream } from "../service/cluster-control.ts";
import { asHopError } from "../service/status.ts";
import { clusterFigures, isReachable } from "./figures.ts";
import type { Placement } from "./placement.ts";
import { askTransfer, leaderIn } from "./planner-loop.ts";

/** Looks again so often where no view comes. */
const lookMs = 500;
/** A change counts as given up when it is not seen so often, this far apart. */
const goneLooks = 4;
const goneGapMs = 100;
/** Between requests to hand a lead over. */
const transferRetryMs = 500;
const transferMsMax = 15_000;
/** A merge that is not decided within two seconds is given up by placement: it is asked for again. */
const mergeTries = 10;

interface Step {
  readonly text: string;
  readonly done?: number;
  readonly total?: number;
  readonly finished?: boolean;
}

const progress = ({ text, done = 0, total = 0, finished = false }: Step): ProgressInit => ({ text, done, total, finished });

export class ShardChanges {
  private readonly placement: Placement;

  constructor(placement: Placement) {
    this.placement = placement;
  }

  async *split(shard: ShardId, at: Key | undefined, asker: Asker): ProgressStream {
    const entry = this.entry(shard);
    const key = at ?? (await this.middleOf(entry));
    const reply = await this.placement.demand(asker.identity, { kind: "want-split", shard, at: key });
    if (reply.kind !== "split") throw strange("a split", reply.kind);
    const { child } = reply;
    yield progress({ text: `Shard ${shard} is to split at ${keyText(key)}; the new shard is ${child}`, total: 2 });
    yield* this.follow(
      asker,
      (view) => {
        const born = view.shards.get(child);
        if (born === undefined) {
          // Placement gave it up, or this node's view is not there yet.
          if (view.shards.get(shard)?.change?.kind !== "split") return undefined;
          return { text: `Waiting for the leader of shard ${shard}`, done: 0, total: 2 };
        }
        if (born.lease === undefined) return { text: `Shard ${child} was born and elects its leader`, done: 1, total: 2 };
        return { text: `Shard ${child} owns ${rangeText(born.range)}`, done: 2, total: 2, finished: true };
      },
      `the split of shard ${shard} was given up: its leader could not do it`,
    );
  }

  /** Asks whoever leads the shard for one merge of sealed segments after the other, until none is worth it. */
  async *compact(shard: ShardId, asker: Asker): ProgressStream {
    let [merged, made] = [0, 0];
    for (;;) {
      this.entry(shard);
      const leader = leaderIn(this.placement.view, this.placement, shard);
      if (leader === undefined)
        throw new HopError("STORE_UNAVAILABLE", `Cannot compact shard ${shard}: it has no leader now`, { retryAfterMs: 500 });
      const step = await askCompaction(this.placement.parts.net, { leader, shard, gone: asker.gone });
      if (step === undefined) break;
      merged += step.segments;
      made++;
      yield progress({
        text: `${step.segments} segments of ${step.bytesBefore} bytes became one of ${step.bytes}, as manifest ${step.manifest}`,
      });
    }
    const text = made === 0 ? `Nothing of shard ${shard} is worth merging` : `${merged} segments of shard ${shard} became ${made}`;
    yield progress({ text, finished: true });
  }

  async *merge(left: ShardId, asker: Asker): ProgressStream {
    const { ranges } = this.placement.view;
    this.entry(left);
    const right = ranges[ranges.findIndex((each) => each.shard === left) + 1]?.shard;
    if (right === undefined)
      throw new HopError("BAD_REQUEST", `Cannot merge shard ${left}: it owns the last keys, so nothing is to its right`);
    for (let tries = 1; ; tries++) {
      await this.requireReachable(left, right);
      yield* this.together(left, right, asker);
      let isGivenUp = false;
      for await (const step of this.follow(asker, (view) => mergeStep(view, left, right), givenUp)) {
        if (step.text === givenUp) isGivenUp = true;
        else yield step;
      }
      if (!isGivenUp) return;
      if (tries === mergeTries)
        throw new HopError(
          "STORE_UNAVAILABLE",
          `Cannot merge shards ${left} and ${right}: placement gave it up ${tries} times, as not all of their replicas follow`,
        );
      yield progress({ text: `Not all replicas of shard ${right} followed in time; trying again`, total: 3 });
    }
  }

  /** A merge waits for every replica: where a node is away the shard would stop for nothing, again and again. */
  private async requireReachable(left: ShardId, right: ShardId): Promise<void> {
    const figures = await clusterFigures(this.placement);
    const silent = this.entry(left).wanted.filter((node) => !isReachable(figures, node, this.placement.parts.self));
    if (silent.length === 0) return;
    throw new HopError(
      "STORE_UNAVAILABLE",
      `Cannot merge shards ${left} and ${right}: node ${silent.join(", ")} can't be reached, and every replica has to follow; start it again, or move its replicas to another node first`,
    );
  }

  /** Brings the replicas of both onto the same nodes, and has the merge wanted. */
  private async *together(left: ShardId, right: ShardId, asker: Asker): ProgressStream {
    for (;;) {
      const reply = await this.placement.demand(asker.identity, { kind: "want-merge", left, right }).catch((error: unknown) => {
        // The replicas are on their way: placement calls that busy.
        if (asHopError(error).reason === "SHARD_BUSY" && !this.isCalm(left, right)) return undefined;
        throw error;
      });
      if (reply !== undefined && reply.kind !== "merge") throw strange("a merge", reply.kind);
      if (reply !== undefined && reply.change !== 0) return;
      yield progress({ text: `The replicas of shard ${right} move to the nodes of shard ${left}`, total: 3 });
      await this.nextView(asker);
    }
  }

  private isCalm(left: ShardId, right: ShardId): boolean {
    const { shards } = this.placement.view;
    return [left, right].every((shard) => {
      const entry = shards.get(shard);
      return entry !== undefined && isSettled(entry);
    });
  }

  async *move(move: { readonly shard: ShardId; readonly from: NodeId; readonly to: NodeId }, asker: Asker): ProgressStream {
    const { shard, from, to } = move;
    const entry = this.entry(shard);
    const target = this.placement.view.nodes.get(to);
    if (target === undefined || target.standing === "removed")
      throw new HopError("NODE_NOT_FOUND", `Cannot move a replica to node ${to}: no member has this number`);
    const cannot = `Cannot move the replica of shard ${shard} from node ${from} to ${to}`;
    if (target.standing !== "member") throw new HopError("BAD_REQUEST", `${cannot}: node ${to} is ${target.standing}`);
    if (!entry.wanted.includes(from))
      throw new HopError("BAD_REQUEST", `${cannot}: node ${from} has none; its nodes are ${entry.wanted.join(", ")}`);
    if (entry.wanted.includes(to)) throw new HopError("BAD_REQUEST", `${cannot}: node ${to} has one already`);
    if (!isSettled(entry) || entry.change !== undefined)
      throw new HopError("SHARD_BUSY", `${cannot}: another change of the shard is under way`);
    const nodes = [...entry.wanted.filter((node) => node !== from), to].sort((a, b) => a - b);
    await this.placement.demand(asker.identity, { kind: "want-replicas", shard, nodes });
    yield progress({ text: `Shard ${shard} is to be on nodes ${nodes.join(", ")}`, total: 3 });
    yield* this.follow(
      asker,
      (view) => moveStep(shardOf(view, shard), { ...move, nodes }),
      `the move of shard ${shard} was given up for another one`,
    );
  }

  async *transfer(transfer: { readonly shard: ShardId; readonly to: NodeId }, asker: Asker): ProgressStream {
    const { shard, to } = transfer;
    const { placement } = this;
    const entry = this.entry(shard);
    const cannot = `Cannot make node ${to} lead shard ${shard}`;
    if (!placement.view.nodes.has(to)) throw new HopError("NODE_NOT_FOUND", `${cannot}: no member has this number`);
    if (!entry.voters.includes(to)) throw new HopError("BAD_REQUEST", `${cannot}: its voters are on nodes ${entry.voters.join(", ")}`);
    const untilMs = placement.parts.timing.monotonicMs() + transferMsMax;
    let last = "its leader did not say why";
    for (let isFirst = true; ; isFirst = false) {
      const leader = leaderIn(placement.view, placement, shard);
      if (leader === to) return yield progress({ text: `Node ${to} leads shard ${shard}`, done: 1, total: 1, finished: true });
      if (isFirst) yield progress({ text: `Node ${leader ?? "?"} hands shard ${shard} over to node ${to}`, total: 1 });
      if (asker.gone.aborted) return;
      if (leader === undefined) last = "it has no leader now";
      else await askTransfer(placement, { shard, from: leader, to }).catch((error: unknown) => (last = asHopError(error).message));
      if (placement.parts.timing.monotonicMs() >= untilMs)
        throw new HopError("STORE_UNAVAILABLE", `${cannot}: it did not happen within ${transferMsMax / 1000} s (${last}); try again`);
      await this.pause(transferRetryMs);
    }
  }

  async *leave(node: NodeId, asker: Asker): ProgressStream {
    const { placement } = this;
    const entry = placement.view.nodes.get(node);
    if (entry === undefined || entry.standing === "removed")
      throw new HopError("NODE_NOT_FOUND", `Cannot remove node ${node}: no member has this number`);
    await placement.demand(asker.identity, { kind: "leave", node });
    const total = heldBy(placement.view, node);
    yield progress({ text: `Node ${node} gives ${total} replicas away`, total });
    yield* this.follow(
      asker,
      (view) => {
        const standing = view.nodes.get(node)?.standing;
        if (standing === "removed") return { text: `Node ${node} was removed`, done: total, total, finished: true };
        if (standing === "member") return undefined;
        const left = heldBy(view, node);
        return {
          text: left === 0 ? `Node ${node} holds nothing any more` : `Node ${node} still holds ${left} replicas`,
          done: Math.max(total - left, 0),
          total,
        };
      },
      `node ${node} is a member again`,
    );
  }

  /** Tells each step that the view shows until one is the last. `look` answers undefined where the change is no longer under way. */
  private async *follow(asker: Asker, look: (view: ClusterView) => Step | undefined, failure: string): ProgressStream {
    let shown = "";
    while (!asker.gone.aborted) {
      const step = look(this.placement.view) ?? (await this.lookAgain(look));
      if (step === "gone") {
        if (failure === givenUp) return yield progress({ text: givenUp });
        throw new HopError("STORE_UNAVAILABLE", `The change did not happen: ${failure}`);
      }
      if (step !== undefined) {
        const key = JSON.stringify(step);
        if (key !== shown) yield progress(step);
        shown = key;
        if (step.finished === true) return;
      }
      await this.nextView(asker);
    }
  }

  /** This node's view may not have what placement has decided; undefined where that can't be told now. */
  private async lookAgain(look: (view: ClusterView) => Step | undefined): Promise<Step | "gone" | undefined> {
    for (let looks = 0; looks < goneLooks; looks++) {
      // While placement decides one thing after the other, what it shows is behind what it has answered.
      if (looks > 0) await this.pause(goneGapMs);
      try {
        await this.placement.refresh();
      } catch {
        return undefined;
      }
      const step = look(this.placement.view);
      if (step !== undefined) return step;
    }
    return "gone";
  }

  private entry(shard: ShardId): ShardEntry {
    const entry = shardOf(this.placement.view, shard);
    if (entry !== undefined) return entry;
    const into = this.placement.view.retired.get(shard)?.into;
    const why = into === undefined ? "no shard has this number" : `shard ${into} has taken it in`;
    throw new HopError("SHARD_NOT_FOUND", `Cannot change shard ${shard}: ${why}`);
  }

  /** What its leader named as the key that halves it, or the middle of its keys. */
  private async middleOf(entry: ShardEntry): Promise<Key> {
    const { first, last } = entry.range;
    const { nodes } = await clusterFigures(this.placement);
    const leader = entry.lease?.node;
    const named = leader === undefined ? undefined : nodes?.get(leader)?.loads.get(entry.shard)?.splitAt;
    return named !== undefined && named > first && named <= last ? named : first + Math.floor((last - first) / 2) + 1;
  }

  private async nextView(asker: Asker): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const stopTimer = this.placement.parts.timing.after(lookMs, resolve);
    const stopView = this.placement.onView(() => resolve());
    asker.gone.addEventListener("abort", () => resolve(), { once: true });
    await promise;
    stopTimer();
    stopView();
  }

  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => void this.placement.parts.timing.after(ms, resolve));
  }
}

/** Stands for a change that placement gave up and that may be asked for again. */
const givenUp = "given up";

function mergeStep(view: ClusterView, left: ShardId, right: ShardId): Step | undefined {
  const entry = view.shards.get(left);
  if (view.retired.get(right)?.into === left) {
    if (entry?.change?.kind === "absorb") return { text: `Shard ${left} takes in the log of shard ${right}`, done: 2, total: 3 };
    return { text: `Shard ${left} has taken in shard ${right}`, done: 3, total: 3, finished: true };
  }
  if (entry?.change?.kind === "merge-left") return { text: `Shard ${right} stops and its replicas follow`, done: 1, total: 3 };
  return undefined;
}

function moveStep(
  entry: ShardEntry | undefined,
  move: { readonly from: NodeId; readonly to: NodeId; readonly nodes: readonly NodeId[] },
): Step | undefined {
  const { from, to, nodes } = move;
  if (entry === undefined || entry.wanted.join() !== nodes.join()) return undefined;
  if (isSettled(entry)) return { text: `Shard ${entry.shard} is on nodes ${nodes.join(", ")}`, done: 3, total: 3, finished: true };
  if (entry.voters.includes(to)) return { text: `Node ${to} has a vote; node ${from} leaves`, done: 2, total: 3 };
  if (entry.learners.includes(to)) return { text: `Node ${to} learns the shard's log`, done: 1, total: 3 };
  return { text: `Waiting for the leader of shard ${entry.shard === placementShard ? "0 (placement)" : entry.shard}`, done: 0, total: 3 };
}

function heldBy(view: ClusterView, node: NodeId): number {
  const all = view.placement === undefined ? [...view.shards.values()] : [view.placement, ...view.shards.values()];
  return all.filter((each) => holders(each).includes(node) || each.wanted.includes(node)).length;
}

const strange = (what: string, kind: string) => new HopError("INTERNAL", `Placement answered ${what} with ${kind}`);
