/**
 * What those who run a cluster ask of it.
 *
 * Reads are tried again, at any node. Whatever changes something, or is meant for the very node
 * that is asked, is sent once: after a lost answer nobody knows whether it was done.
 */
import type {
  ClusterEntry,
  ClusterInitReply,
  ClusterRestoreRequestInit,
  ClusterStatus,
  ListEntriesReply,
  ListEntriesRequestInit,
  ListMembersReply,
  ListMembersRequestInit,
  ListShardsReply,
  ListShardsRequestInit,
  MoveShardRequestInit,
  Progress,
  ReplicationSetting,
  SetEntryRequestInit,
  ShardInfo,
  SplitShardRequestInit,
  TransferShardRequestInit,
  VerifyReply,
  VerifyShardRequestInit,
} from "#proto";
import { clusterMethods as methods } from "#proto/descriptors";
import { type Channel, call, callOnce, stream } from "./rpc.ts";

/** How far a change is, until one is `finished`. Leaving the loop early does not stop the change. Throws `HopError`. */
export type ProgressOf = AsyncGenerator<Progress>;

export class ClusterClient {
  private readonly channel: Channel;

  constructor(channel: Channel) {
    this.channel = channel;
  }

  /** How the node that is asked stands, also while it belongs to no cluster. */
  status(): Promise<ClusterStatus> {
    return callOnce(this.channel, methods.status, {});
  }

  /** Makes a cluster of the node that is asked. Rejects with ALREADY_MEMBER. */
  init(): Promise<ClusterInitReply> {
    return callOnce(this.channel, methods.init, {});
  }

  /** Rebuilds a cluster from object storage on the node that is asked. Leaving the loop early gives it up. */
  restore(request: ClusterRestoreRequestInit): ProgressOf {
    return stream(this.channel, methods.restore, request);
  }

  /** Gives the node that is asked more seeds, and follows it until it is a member. */
  join(seed: readonly string[]): ProgressOf {
    return stream(this.channel, methods.join, { seed });
  }

  /** Moves everything off a node and removes it. */
  leave(node: number): ProgressOf {
    return stream(this.channel, methods.leave, { node });
  }

  /** One page, by number. */
  members(request: ListMembersRequestInit = {}): Promise<ListMembersReply> {
    return call(this.channel, methods.listMembers, request);
  }

  /** One page, by number. */
  shards(request: ListShardsRequestInit = {}): Promise<ListShardsReply> {
    return call(this.channel, methods.listShards, request);
  }

  shard(shard: number): Promise<ShardInfo> {
    return call(this.channel, methods.showShard, { shard });
  }

  split(request: SplitShardRequestInit): ProgressOf {
    return stream(this.channel, methods.splitShard, request);
  }

  merge(left: number): ProgressOf {
    return stream(this.channel, methods.mergeShard, { left });
  }

  /** Merges small sealed segments of the shard, as far as that goes. */
  compact(shard: number): ProgressOf {
    return stream(this.channel, methods.compactShard, { shard });
  }

  move(request: MoveShardRequestInit): ProgressOf {
    return stream(this.channel, methods.moveShard, request);
  }

  transfer(request: TransferShardRequestInit): ProgressOf {
    return stream(this.channel, methods.transferShard, request);
  }

  /** Compares replicas: one reply for each shard. */
  verify(request: VerifyShardRequestInit): AsyncGenerator<VerifyReply> {
    return stream(this.channel, methods.verifyShard, request);
  }

  /** How many replicas each shard is to have. Resolves with who set it; undefined where it is what the cluster was made with. */
  async setReplication(wanted: { readonly count: number; readonly reason?: string }): Promise<ReplicationSetting | undefined> {
    return (await callOnce(this.channel, methods.setReplication, wanted)).replication;
  }

  /** Resolves with the entry's new version. Rejects with VERSION_CONFLICT. */
  async setEntry(request: SetEntryRequestInit): Promise<number> {
    return (await callOnce(this.channel, methods.setEntry, request)).version;
  }

  entry(request: { readonly class: string; readonly name: string }): Promise<ClusterEntry> {
    return call(this.channel, methods.getEntry, request);
  }

  /** One page, by name. */
  entries(request: ListEntriesRequestInit): Promise<ListEntriesReply> {
    return call(this.channel, methods.listEntries, request);
  }
}
