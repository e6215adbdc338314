/** What planners look at, what they may ask for, and their bounds. */
import { assert, type Key, type NodeId, type ShardId } from "#core/base";
import type { PlacementCommand } from "../command.ts";
import type { ClusterView } from "../view.ts";

/** Load of one replica as its node told it; what only the leader knows is 0 elsewhere. */
export interface ShardLoadReport {
  readonly leads: boolean;
  readonly bytes: number;
  readonly eventsPerSecond: number;
  readonly partitions: number;
  readonly lastIndex: number;
  /** Key that halves what the shard holds, where it is known. */
  readonly splitAt?: Key;
  /** Entries that each other member lacks. */
  readonly lag: ReadonlyMap<NodeId, number>;
}

/** The newest report of a node. */
export interface NodeReport {
  readonly lastHeardMs: number;
  readonly loads: ReadonlyMap<ShardId, ShardLoadReport>;
  /** Its log's disk has been full for a while. */
  readonly isFull: boolean;
}

export interface PlanOptions {
  /** A node that was not heard for so long counts as dead, and its replicas are replaced. */
  readonly deadAfterMs: number;
  /** Nothing is given to a node that was not heard for so long. */
  readonly silentAfterMs: number;
  /** How long a new leader of placement listens before it plans. */
  readonly listenMs: number;
  /** How long the shards that a leaving node leads are handed over before they are moved regardless. */
  readonly handOverMs: number;
  /** Shards whose members change at one time. */
  readonly movesMax: number;
  /** Splits and merges at one time. */
  readonly keyChangesMax: number;
  /** A shard above either of these is split. */
  readonly splitBytes: number;
  readonly splitEventsPerSecond: number;
  /** Two neighbours are merged when together they are below this share of what splits one. */
  readonly mergeShare: number;
  /** That many shards or fewer are never merged, and that many or more never split. */
  readonly shardsMin: number;
  readonly shardsMax: number;
  /** How long after a change of its keys, done or cancelled, a shard is left alone. */
  readonly settleMs: number;
  /** How long after a change of its keys a shard's lead stays where it is, unless it has to go: callers notice one thing at a time. */
  readonly leadRestMs: number;
  /** A merge that is not decided by then is cancelled: meanwhile one of the two decides nothing. */
  readonly mergePatienceMs: number;
  /** Difference in replicas, or in leaders, between two nodes that is not evened out, as a share of the mean. */
  readonly balanceBand: number;
}

export const planDefaults: PlanOptions = {
  deadAfterMs: 30_000,
  silentAfterMs: 5000,
  listenMs: 5000,
  handOverMs: 10_000,
  movesMax: 8,
  keyChangesMax: 2,
  splitBytes: 512 * 1024 * 1024,
  splitEventsPerSecond: 5000,
  mergeShare: 0.25,
  shardsMin: 16,
  shardsMax: 1024,
  settleMs: 60_000,
  leadRestMs: 5000,
  mergePatienceMs: 2000,
  balanceBand: 0.1,
};

assert(planDefaults.silentAfterMs < planDefaults.deadAfterMs, "a node is silent before it is dead");
assert(planDefaults.mergeShare <= 0.5, "what was just split is not merged again");

export interface PlanInput {
  readonly view: ClusterView;
  readonly reports: ReadonlyMap<NodeId, NodeReport>;
  readonly nowMs: number;
  /** The node that plans: it leads placement. */
  readonly self: NodeId;
  /** Since when it does: what it has not heard of since, it knows nothing of. */
  readonly leadsSinceMs: number;
  readonly options?: Partial<PlanOptions>;
}

export type PlanStep =
  | { readonly kind: "command"; readonly command: PlacementCommand; readonly why: string }
  /** For the shard's leader: hand the lead over. Not logged; asked again until it has happened. */
  | { readonly kind: "transfer"; readonly shard: ShardId; readonly from: NodeId; readonly to: NodeId; readonly why: string };
