/** Splits of what is large or busy, merges of small quiet neighbours, and the end of merges that take too long. */
import type { Key } from "#core/base";
import type { ShardEntry } from "../shard-entry.ts";
import type { Outlook } from "./outlook.ts";
import type { ShardLoadReport } from "./plan-input.ts";

export function planCancels(outlook: Outlook): void {
  for (const { shard, change } of outlook.view.ranges) {
    if (change?.kind !== "merge-left" || outlook.nowMs - change.sinceMs <= outlook.options.mergePatienceMs) continue;
    outlook.command(shard, { kind: "merge-cancel", left: shard, right: change.right }, "it was not decided in time");
    outlook.taken.add(change.right);
  }
}

export function planSplits(outlook: Outlook): void {
  const { splitBytes, splitEventsPerSecond, shardsMax } = outlook.options;
  let count = outlook.view.shards.size + outlook.keyChanges;
  // On one node alone two shards do what one does, and cost more.
  const hasOthers = outlook.members().filter(({ node }) => outlook.isOpen(node)).length > 1;
  for (const entry of outlook.view.ranges) {
    if (outlook.keyChanges >= outlook.options.keyChangesMax || count >= shardsMax) return;
    const load = outlook.load(entry);
    if (load === undefined || !mayChange(outlook, entry) || load.partitions < 2) continue;
    const isLarge = load.bytes > splitBytes;
    const isBusy = hasOthers && load.eventsPerSecond > splitEventsPerSecond;
    if (!isLarge && !isBusy) continue;
    const at = splitKey(entry, load);
    if (at === undefined) continue;
    count++;
    const why = isLarge ? `it holds ${load.bytes} bytes` : `it takes ${load.eventsPerSecond} events a second`;
    outlook.command(entry.shard, { kind: "want-split", shard: entry.shard, at }, why);
  }
}

/** What the leader names, or the middle: keys are hashes, so that halves what is there too. */
function splitKey({ range }: ShardEntry, load: ShardLoadReport): Key | undefined {
  const isInside = (key: Key) => key > range.first && key <= range.last;
  if (load.splitAt !== undefined && isInside(load.splitAt)) return load.splitAt;
  const middle = range.first + Math.floor((range.last - range.first) / 2) + 1;
  return isInside(middle) ? middle : undefined;
}

export function planMerges(outlook: Outlook): void {
  const { ranges } = outlook.view;
  let count = ranges.length - outlook.keyChanges;
  for (let i = 0; i + 1 < ranges.length; i++) {
    if (outlook.keyChanges >= outlook.options.keyChangesMax || count <= outlook.options.shardsMin) return;
    const left = ranges[i] as ShardEntry;
    const right = ranges[i + 1] as ShardEntry;
    if (!mayChange(outlook, left) || !mayChange(outlook, right) || !isSmall(outlook, left, right)) continue;
    count--;
    outlook.command(left.shard, { kind: "want-merge", left: left.shard, right: right.shard }, "both are small and quiet");
    outlook.taken.add(right.shard);
  }
}

/** Shards that are merged as soon as may be: to move one of them would only put it off. */
export function mergeable(outlook: Outlook): Set<ShardEntry["shard"]> {
  const found = new Set<ShardEntry["shard"]>();
  const { ranges } = outlook.view;
  if (ranges.length <= outlook.options.shardsMin) return found;
  for (let i = 0; i + 1 < ranges.length; i++) {
    const left = ranges[i] as ShardEntry;
    const right = ranges[i + 1] as ShardEntry;
    // A leader that is new has told nothing yet.
    if (isSmall(outlook, left, right, "counts as quiet")) found.add(left.shard).add(right.shard);
  }
  return found;
}

/** Two of which one is unknown are not small, unless that counts as quiet. */
function isSmall(outlook: Outlook, left: ShardEntry, right: ShardEntry, unknown?: "counts as quiet"): boolean {
  const { splitBytes, splitEventsPerSecond, mergeShare } = outlook.options;
  const loads = [outlook.load(left), outlook.load(right)];
  if (unknown === undefined && loads.includes(undefined)) return false;
  const sum = (of: (load: ShardLoadReport) => number) => loads.reduce((total, load) => total + (load === undefined ? 0 : of(load)), 0);
  return sum((load) => load.bytes) < splitBytes * mergeShare && sum((load) => load.eventsPerSecond) < splitEventsPerSecond * mergeShare;
}

function mayChange(outlook: Outlook, entry: ShardEntry): boolean {
  if (!outlook.isIdle(entry) || !outlook.hasQuorum(entry)) return false;
  return outlook.isSettledFor(entry, outlook.options.settleMs);
}
