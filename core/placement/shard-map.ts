/**
 * The shard map: which shard owns which keys, on which nodes, led by whom.
 *
 * Invariant I16: the ranges of the shards cover every key exactly once. The epoch counts changes
 * that matter to whoever routes: of ranges, members and leaders. Lease epochs are one counter for
 * the whole cluster. Ids of shards and numbers of changes are never used again.
 */
import {
  asIndex,
  asNodeId,
  asShardId,
  assert,
  asTerm,
  type Key,
  keyMax,
  type NodeId,
  present,
  rangeText,
  type ShardId,
  unreachable,
} from "#core/base";
import { EventKind, type MapState, type MergeDecided, type ShardCreated, type SplitDone } from "#proto";
import type { MapEvent } from "./event.ts";
import { loadReplicas, loadRetired, loadShard, type RetiredShard, type ShardEntry, saveRetired, saveShard, sorted } from "./shard-entry.ts";

export interface ShardMap {
  epoch: number;
  /** Of the newest lease. */
  leaseEpoch: number;
  lastShard: number;
  lastChange: number;
  /** Placement (shard 0) among them. Entries are replaced, never changed. */
  readonly shards: Map<ShardId, ShardEntry>;
  readonly retired: Map<ShardId, RetiredShard>;
}

/** When and where an event was logged. */
export interface LoggedAt {
  readonly timeMs: number;
  /** Log index: the version of the view that the event makes. */
  readonly version: number;
}

export function emptyMap(): ShardMap {
  return { epoch: 0, leaseEpoch: 0, lastShard: 0, lastChange: 0, shards: new Map(), retired: new Map() };
}

export function applyMap(map: ShardMap, event: MapEvent, at: LoggedAt): void {
  switch (event.kind) {
    case EventKind.shardCreated:
      return applyCreated(map, event.body, at);
    case EventKind.replicasWanted:
      return put(map, event.body.shard, { wanted: sorted(event.body.node.map(asNodeId)) }, at);
    case EventKind.replicasChanged:
      map.epoch++;
      return put(map, event.body.shard, loadReplicas(event.body.replicas), at);
    case EventKind.leadershipGranted: {
      const { shard, node, term, epoch } = event.body;
      assert(epoch > map.leaseEpoch, `Cannot grant shard ${shard}: epoch ${epoch} is not above ${map.leaseEpoch}`);
      map.epoch++;
      map.leaseEpoch = epoch;
      return put(map, shard, { lease: { node: asNodeId(node), term: asTerm(term), epoch } }, at);
    }
    case EventKind.splitWanted: {
      const { shard, at: key, child, change } = event.body;
      map.lastShard = Math.max(map.lastShard, child);
      map.lastChange = Math.max(map.lastChange, change);
      return put(map, shard, { change: { kind: "split", change, sinceMs: at.timeMs, at: key, child: asShardId(child) } }, at);
    }
    case EventKind.splitDone:
      return applySplit(map, event.body, at);
    case EventKind.mergeWanted: {
      const { left, right, change } = event.body;
      map.lastChange = Math.max(map.lastChange, change);
      put(map, left, { change: { kind: "merge-left", change, sinceMs: at.timeMs, right: asShardId(right) } }, at);
      return put(map, right, { change: { kind: "merge-right", change, sinceMs: at.timeMs, left: asShardId(left) } }, at);
    }
    case EventKind.mergeDecided:
      return applyMerge(map, event.body, at);
    case EventKind.mergeDone:
      return put(map, event.body.left, { change: undefined, settledMs: at.timeMs }, at);
    case EventKind.changeCancelled: {
      for (const entry of [...map.shards.values()]) {
        if (entry.change?.change !== event.body.change) continue;
        put(map, entry.shard, { change: undefined, settledMs: at.timeMs }, at);
      }
      return;
    }
    default:
      return unreachable(event);
  }
}

function put(map: ShardMap, shard: number, fields: Partial<ShardEntry>, at: LoggedAt): void {
  const entry = present(map.shards.get(asShardId(shard)), `shard ${shard} of the map`);
  map.shards.set(entry.shard, { ...entry, ...fields, version: at.version });
}

function applyCreated(map: ShardMap, body: ShardCreated, at: LoggedAt): void {
  const shard = asShardId(body.shard);
  assert(!map.shards.has(shard) && !map.retired.has(shard), `Cannot create shard ${shard}: it was created before`);
  const replicas = loadReplicas(body.replicas);
  map.epoch++;
  map.lastShard = Math.max(map.lastShard, shard);
  map.shards.set(shard, {
    ...replicas,
    shard,
    range: { first: body.first, last: body.last },
    wanted: replicas.voters,
    lease: undefined,
    change: undefined,
    ancestors: [],
    settledMs: 0,
    version: at.version,
  });
}

/** Both ranges change at once: no key is without an owner in between. */
function applySplit(map: ShardMap, body: SplitDone, at: LoggedAt): void {
  const parent = present(map.shards.get(asShardId(body.shard)), `shard ${body.shard} of the map`);
  const { first, last } = parent.range;
  assert(body.at > first && body.at <= last, `Cannot split shard ${parent.shard}: key ${body.at} is not inside ${rangeText(parent.range)}`);
  map.epoch++;
  map.lastShard = Math.max(map.lastShard, body.child);
  put(map, parent.shard, { range: { first, last: body.at - 1 }, change: undefined, settledMs: at.timeMs }, at);
  map.shards.set(asShardId(body.child), {
    ...loadReplicas(body.replicas),
    shard: asShardId(body.child),
    range: { first: body.at, last },
    wanted: parent.wanted,
    lease: undefined,
    change: undefined,
    ancestors: [parent.shard, ...parent.ancestors],
    settledMs: at.timeMs,
    version: at.version,
  });
}

function applyMerge(map: ShardMap, body: MergeDecided, at: LoggedAt): void {
  const left = present(map.shards.get(asShardId(body.left)), `shard ${body.left} of the map`);
  const right = present(map.shards.get(asShardId(body.right)), `shard ${body.right} of the map`);
  assert(left.range.last + 1 === right.range.first, `Cannot merge shards ${left.shard} and ${right.shard}: they are not neighbours`);
  map.epoch++;
  map.leaseEpoch = Math.max(map.leaseEpoch, body.epoch);
  const through = asIndex(body.through);
  const change = left.change?.change ?? 0;
  put(
    map,
    left.shard,
    {
      range: { first: left.range.first, last: right.range.last },
      change: { kind: "absorb", change, sinceMs: at.timeMs, right: right.shard, through },
      ancestors: [...new Set([...left.ancestors, right.shard, ...right.ancestors])].filter((each) => each !== left.shard),
      lease: left.lease === undefined || body.epoch === 0 ? left.lease : { ...left.lease, epoch: body.epoch },
    },
    at,
  );
  map.shards.delete(right.shard);
  map.retired.set(right.shard, { shard: right.shard, into: left.shard, through, version: at.version });
}

/** The shards of data by their first key. Throws `InvariantError` where a key has no owner, or two. */
export function orderedRanges(shards: Iterable<ShardEntry>): ShardEntry[] {
  const ordered = [...shards].filter((each) => each.shard !== 0).sort((a, b) => a.range.first - b.range.first);
  let next: Key = 0;
  for (const { shard, range } of ordered) {
    assert(
      range.first === next && range.last >= range.first,
      `Shard ${shard} owns ${rangeText(range)}, the first key without an owner is ${next}`,
    );
    next = range.last + 1;
  }
  assert(ordered.length === 0 || next === keyMax + 1, `Keys from ${next} on have no owner`);
  return ordered;
}

/** The shard that owns `key` among `ordered`, which is not empty. */
export function ownerOf(ordered: readonly ShardEntry[], key: Key): ShardEntry {
  let low = 0;
  let high = ordered.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((ordered[middle] as ShardEntry).range.first <= key) low = middle;
    else high = middle - 1;
  }
  return present(ordered[low], "a shard of the map");
}

/** Shards in which the node holds a replica or is to hold one, placement too. */
export function shardsOn(shards: Iterable<ShardEntry>, node: NodeId): ShardEntry[] {
  return [...shards].filter((each) => [each.voters, each.outgoing, each.learners, each.wanted].some((nodes) => nodes.includes(node)));
}

export function saveMap(map: ShardMap): MapState {
  const { epoch, leaseEpoch, lastShard, lastChange } = map;
  // By number: a map that was loaded and one that was folded are the same bytes.
  const shard = [...map.shards.values()].sort((a, b) => a.shard - b.shard).map(saveShard);
  const retired = [...map.retired.values()].sort((a, b) => a.shard - b.shard).map(saveRetired);
  return { epoch, leaseEpoch, lastShard, lastChange, shard, retired };
}

export function loadMap(saved: MapState): ShardMap {
  const { epoch, leaseEpoch, lastShard, lastChange } = saved;
  const shards = new Map(saved.shard.map(loadShard).map((entry) => [entry.shard, entry]));
  const retired = new Map(saved.retired.map(loadRetired).map((entry) => [entry.shard, entry]));
  return { epoch, leaseEpoch, lastShard, lastChange, shards, retired };
}
