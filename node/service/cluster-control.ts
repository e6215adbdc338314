/**
 * What the cluster service asks of the node that it stands in front of: requests that passed
 * validation, with who asks.
 *
 * Unless a method says otherwise it rejects with `HopError` STORE_UNAVAILABLE where the node
 * belongs to no cluster, or where placement can't be reached now (nothing was changed then).
 */
import type { Key, NodeId, ShardId } from "#core/base";
import type {
  ClusterEntryInit,
  ClusterInitReplyInit,
  ClusterMemberInit,
  ClusterStatusInit,
  Identity,
  NodesInit,
  ProgressInit,
  ReplicationSettingInit,
  ShardInfoInit,
  VerifyReplyInit,
} from "#proto";

/** Who asks, and a signal that aborts when nobody listens to the answer any more. */
export interface Asker {
  readonly identity: Identity;
  readonly gone: AbortSignal;
}

/** `limit` items that follow `after`, in ascending order. */
export interface PageRequest<Position> {
  /** Position of the last item of the page before; left out: from the first. */
  readonly after?: Position;
  readonly limit: number;
}

export interface Page<Item> {
  readonly items: readonly Item[];
  /** Items follow the last of these. */
  readonly isMore: boolean;
}

/** Classes of the entries that are versioned, attributed and watched. */
export type EntryClass = "namespace" | "policy";

export interface EntryChange {
  readonly class: EntryClass;
  readonly name: string;
  readonly value: Uint8Array;
  /** Version that the entry must have; 0 = it must not exist; left out: any. */
  readonly expectedVersion?: number;
}

/** How far a change is; the last one has `finished`. The change goes on when nobody listens. */
export type ProgressStream = AsyncIterable<ProgressInit>;

/** gRPC addresses of the live members, for clients and workers. */
export interface NodeList {
  nodes(): NodesInit;
  /** Calls `listener` after each change, until the returned function is called. */
  onNodes(listener: (nodes: NodesInit) => void): () => void;
}

export interface ClusterControl extends NodeList {
  /** Never rejects: a node in any phase can say how it stands. */
  status(): Promise<ClusterStatusInit>;
  /** Makes a cluster of this node. Rejects with ALREADY_MEMBER. */
  init(asker: Asker): Promise<ClusterInitReplyInit>;
  /**
   * Makes a cluster of this node out of what another one had uploaded; given up when the stream is left. Rejects with
   * ALREADY_MEMBER, BAD_REQUEST for what is not there, HASH_MISMATCH for what is damaged.
   */
  restore(wanted: { readonly objectStore: string; readonly cluster: string }, asker: Asker): ProgressStream;
  /** More seeds for a node that looks for a cluster; ends when it is a member. Rejects with ALREADY_MEMBER. */
  join(seeds: readonly string[], asker: Asker): ProgressStream;
  /** `node` left out: this one. Rejects with NODE_NOT_FOUND, or BAD_REQUEST for the last node. */
  leave(node: NodeId | undefined, asker: Asker): ProgressStream;

  /** By node, ascending. */
  members(page: PageRequest<number> & { readonly withRemoved: boolean }): Promise<Page<ClusterMemberInit>>;
  /** By shard, ascending. */
  shards(page: PageRequest<number>): Promise<Page<ShardInfoInit>>;
  /** Rejects with SHARD_NOT_FOUND. */
  shard(shard: ShardId): Promise<ShardInfoInit>;

  /**
   * Changes of shards reject with SHARD_NOT_FOUND, NODE_NOT_FOUND, SHARD_BUSY while another change
   * of the shard is under way, and BAD_REQUEST for what can't be done (a split outside the range,
   * a merge of the last shard, a move onto a node that has a replica).
   */
  split(shard: ShardId, at: Key | undefined, asker: Asker): ProgressStream;
  merge(left: ShardId, asker: Asker): ProgressStream;
  /** Merges sealed segments. Rejects with SHARD_NOT_FOUND, and BAD_REQUEST where its leader has no object storage. */
  compact(shard: ShardId, asker: Asker): ProgressStream;
  move(move: { readonly shard: ShardId; readonly from: NodeId; readonly to: NodeId }, asker: Asker): ProgressStream;
  transfer(transfer: { readonly shard: ShardId; readonly to: NodeId }, asker: Asker): ProgressStream;

  /** One verdict for each shard; `shard` left out: all of them. */
  verify(shard: ShardId | undefined, asker: Asker): AsyncIterable<VerifyReplyInit>;

  /** Resolves with the setting as it is then. Rejects with BAD_REQUEST for a count that is none. */
  setReplication(wanted: { readonly count: number; readonly reason: string }, asker: Asker): Promise<ReplicationSettingInit | undefined>;

  /** Resolves with the entry's new version. Rejects with VERSION_CONFLICT. */
  setEntry(change: EntryChange, asker: Asker): Promise<number>;
  /** Rejects with ENTRY_NOT_FOUND. */
  entry(entry: { readonly class: EntryClass; readonly name: string }): Promise<ClusterEntryInit>;
  /** By name, ascending. */
  entries(page: PageRequest<string> & { readonly class: EntryClass }): Promise<Page<ClusterEntryInit>>;
}
