/** Placement's replica on this node, as the rest of the node asks it. */
import { HopError, type NodeId } from "#core/base";
import type { ClusterView, PlacementCommand, PlacementReply } from "#core/placement";
import { isVoter } from "#core/raft";
import type { Identity } from "#proto";
import type { LocalPlacement } from "../cluster/local-shards.ts";
import type { PlacementReplica } from "./placement-replica.ts";

export class LocalVoter implements LocalPlacement {
  onView: (view: ClusterView) => void = () => {};
  private readonly replica: PlacementReplica;

  constructor(replica: PlacementReplica) {
    this.replica = replica;
  }

  /** The replica has something new to show. */
  changed(): void {
    this.onView(this.view());
  }

  leads(): boolean {
    return this.replica.leads();
  }

  leaderHint(): NodeId | undefined {
    const { group } = this.replica;
    // One that left the group, or only learns, may hear of no later leader: whom it followed last says nothing any more.
    if (group.leader === 0 || !isVoter(group.conf, group.status().id)) return undefined;
    return group.leader;
  }

  command(identity: Identity, command: PlacementCommand): Promise<PlacementReply> {
    return new Promise((resolve, reject) => {
      this.replica.command(identity, command, (reply) => {
        if (reply.kind === "rejected" && isNoAnswer(reply.rejection.reject)) reject(HopError.from(reply.rejection));
        else resolve(reply);
      });
    });
  }

  view(): ClusterView {
    return this.replica.view();
  }
}

/** Not placement's word, but that this replica can't speak for it. */
const isNoAnswer = (reject: string) => reject === "NOT_LEADER" || reject === "STORE_UNAVAILABLE" || reject === "NO_SPACE";
