/**
 * Splits and merges, as far as placement decides them.
 *
 * A split happens in the parent's log; its child's first lease tells placement. A merge happens
 * here: `MergeDecided` is the point from which the left one owns the keys of both. What a leader
 * reports on the way carries the epoch of its lease, so that one who was deposed changes nothing.
 */
import { asShardId, keyText, rangeText, type ShardId } from "#core/base";
import { EventKind } from "#proto";
import type { CancelChange, MergeCancel, MergeDoneReport, MergeFrozen, WantMerge, WantSplit } from "./command.ts";
import { type Decision, decided, done, onMap, refused } from "./decision.ts";
import type { PlacementState } from "./placement-state.ts";
import { busy, shardMissing, wantReplicas } from "./replicas.ts";
import { isSettled, type ShardEntry, sameNodes } from "./shard-entry.ts";

export function decideWantSplit(state: PlacementState, { shard, at }: WantSplit): Decision {
  const entry = state.map.shards.get(shard);
  if (entry === undefined || shard === 0) return shardMissing(state, shard, "split");
  const { change } = entry;
  if (change?.kind === "split" && change.at === at) return decided({ kind: "split", child: change.child, change: change.change });
  const { first, last } = entry.range;
  if (!Number.isSafeInteger(at) || at <= first || at > last)
    return refused(
      "BAD_REQUEST",
      `Cannot split shard ${shard} at ${keyText(at)}: want a key inside ${rangeText(entry.range)}, above its first`,
    );
  if (change !== undefined || !isSettled(entry)) return busy(entry);
  const child = asShardId(state.map.lastShard + 1);
  const number = state.map.lastChange + 1;
  const event = onMap({ kind: EventKind.splitWanted, body: { shard, at, child, change: number } });
  return decided({ kind: "split", child, change: number }, event);
}

export function decideWantMerge(state: PlacementState, command: WantMerge): Decision {
  const pair = neighbours(state, command.left, command.right);
  if ("reply" in pair) return pair;
  const { left, right } = pair;
  if (left.change?.kind === "merge-left" && left.change.right === right.shard)
    return decided({ kind: "merge", change: left.change.change });
  for (const each of [left, right]) if (each.change !== undefined) return busy(each);
  if (!isSettled(left)) return busy(left);
  if (!sameNodes(right.wanted, left.wanted)) return decided({ kind: "merge", change: 0 }, wantReplicas(right.shard, left.wanted));
  if (!isSettled(right)) return decided({ kind: "merge", change: 0 });
  const change = state.map.lastChange + 1;
  const body = { left: left.shard, right: right.shard, change };
  return decided({ kind: "merge", change }, onMap({ kind: EventKind.mergeWanted, body }));
}

function neighbours(state: PlacementState, left: ShardId, right: ShardId): { left: ShardEntry; right: ShardEntry } | Decision {
  const a = state.map.shards.get(left);
  const b = state.map.shards.get(right);
  if (a === undefined || left === 0) return shardMissing(state, left, "merge");
  if (b === undefined || right === 0) return shardMissing(state, right, "merge");
  if (a.range.last + 1 === b.range.first) return { left: a, right: b };
  return refused("BAD_REQUEST", `Cannot merge shards ${left} and ${right}: ${right} is not the right neighbour of ${left}`);
}

export function decideFrozen(state: PlacementState, command: MergeFrozen): Decision {
  const { left, right, through } = command;
  if (isMerged(state, left, right)) return decided(done);
  const a = state.map.shards.get(left);
  const b = state.map.shards.get(right);
  if (b === undefined) return shardMissing(state, right, "merge");
  const stale = (why: string) => refused("STALE_EPOCH", `Cannot merge shards ${left} and ${right}: ${why}`, { epoch: state.map.epoch });
  if (a === undefined || a.change?.kind !== "merge-left" || a.change.right !== right || a.change.change !== command.change)
    return stale(`change ${command.change} is not under way`);
  if (b.lease === undefined || b.lease.epoch !== command.epoch)
    return stale(`the report is of lease epoch ${command.epoch}, shard ${right} is led under ${b.lease?.epoch ?? 0}`);
  if (!isSettled(a) || !isSettled(b) || !sameNodes(a.voters, b.voters)) return stale("their replicas are not on the same nodes");
  if (!Number.isSafeInteger(through) || through < 1)
    return refused("BAD_REQUEST", `Cannot merge shards ${left} and ${right}: through index ${through}`);
  // Above all that the right one was led under: its workers know that epoch.
  const epoch = a.lease === undefined ? 0 : state.map.leaseEpoch + 1;
  return decided(done, onMap({ kind: EventKind.mergeDecided, body: { left, right, through, epoch } }));
}

export function decideMergeDone(state: PlacementState, { left, right }: MergeDoneReport): Decision {
  const change = state.map.shards.get(left)?.change;
  if (change?.kind === "absorb" && change.right === right)
    return decided(done, onMap({ kind: EventKind.mergeDone, body: { left, right } }));
  return isMerged(state, left, right)
    ? decided(done)
    : refused("BAD_REQUEST", `Cannot end the merge of shards ${left} and ${right}: it was not decided`);
}

export function decideMergeCancel(state: PlacementState, { left, right }: MergeCancel): Decision {
  if (isMerged(state, left, right)) return refused("SHARD_BUSY", `Cannot cancel the merge of shards ${left} and ${right}: it is decided`);
  const change = state.map.shards.get(left)?.change;
  if (change?.kind !== "merge-left" || change.right !== right) return decided(done);
  return decided(done, cancelled(left, change.change, "no answer in time"));
}

export function decideCancelChange(state: PlacementState, command: CancelChange): Decision {
  const entry = state.map.shards.get(command.shard);
  if (entry === undefined) return shardMissing(state, command.shard, "change");
  const { change, lease, shard } = entry;
  if (change === undefined) return decided(done);
  if (change.kind === "absorb")
    return refused("SHARD_BUSY", `Cannot cancel the merge of shard ${change.right} into ${shard}: it is decided`);
  if (change.kind === "split" && lease !== undefined && lease.epoch !== command.epoch)
    return refused(
      "STALE_EPOCH",
      `Cannot cancel the split of shard ${shard}: only its leader knows whether it happened; got lease epoch ${command.epoch ?? 0}, want ${lease.epoch}`,
      { epoch: state.map.epoch },
    );
  return decided(done, cancelled(shard, change.change, command.reason ?? "asked for"));
}

const isMerged = (state: PlacementState, left: ShardId, right: ShardId) => state.map.retired.get(right)?.into === left;

const cancelled = (shard: ShardId, change: number, reason: string) =>
  onMap({ kind: EventKind.changeCancelled, body: { shard, change, reason } });
