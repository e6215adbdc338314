/** What the routing half of a node needs of the half that hosts replicas, and of placement's local voter. */
import type { NodeId, ShardId } from "#core/base";
import type { ClusterView, PlacementCommand, PlacementReply } from "#core/placement";
import type { Identity } from "#proto";
import type { ShardPort } from "../shard/shard-port.ts";

export type LedChanged = (shard: ShardId, port: ShardPort | undefined) => void;

export interface LocalShards {
  /** Port of a shard that is led here and open for business. */
  led(shard: ShardId): ShardPort | undefined;
  ledShards(): ShardId[];
  /** Called when a shard opens or closes here: leadership won or lost, a split, a merge. */
  onLedChanged: LedChanged;
  /** Every replica here, led or not: others may read history and archive from it. */
  replicas(): ShardId[];
}

/** Undefined where this node is no voter of placement. */
export interface LocalPlacement {
  /** This node leads placement and may answer for it. */
  leads(): boolean;
  /** Who leads it, as far as the local voter knows. */
  leaderHint(): NodeId | undefined;
  /** Resolves when it is committed. Rejects with `HopError` NOT_LEADER where another node leads. */
  command(identity: Identity, command: PlacementCommand): Promise<PlacementReply>;
  view(): ClusterView;
  /** Called with each committed change of the view. */
  onView: (view: ClusterView) => void;
}
