/** What placement's log says of leaderships. */
import { decodeEvent, decodeLeadershipGranted, decodeMergeDecided, fromBytes, EventKind as Kind, type Record as LogBody } from "#proto";
import { claim } from "../violation.ts";

interface Grant {
  readonly shard: number;
  readonly node: number;
  readonly term: number;
}

export class PlacementWatch {
  private readonly grants = new Map<number, Grant>();
  /** Newest of each shard. */
  private readonly holders = new Map<number, Grant>();
  private newest = 0;

  fold(record: LogBody): void {
    for (const bytes of record.event) {
      const { kind, payload } = fromBytes(decodeEvent, bytes);
      if (kind === Kind.leadershipGranted) {
        const { epoch, ...grant } = fromBytes(decodeLeadershipGranted, payload);
        this.grant(epoch, grant);
      } else if (kind === Kind.mergeDecided) {
        // The lease of the left one goes on under a new epoch.
        const { left, epoch } = fromBytes(decodeMergeDecided, payload);
        const before = this.holders.get(left);
        if (epoch > 0 && before !== undefined) this.grant(epoch, before);
      }
    }
  }

  private grant(epoch: number, grant: Grant): void {
    oneLeaseHolderAnEpoch(epoch > this.newest, () => `shard ${grant.shard} is granted epoch ${epoch} after epoch ${this.newest}`);
    this.newest = epoch;
    this.grants.set(epoch, grant);
    this.holders.set(grant.shard, grant);
  }

  /** I10: a leader begins under an epoch that placement granted to it, and to nobody else. */
  mayLead(epoch: number, shard: number, node: number): void {
    const grant = this.grants.get(epoch);
    oneLeaseHolderAnEpoch(
      grant?.shard === shard && grant.node === node,
      () => `node ${node} leads shard ${shard} under epoch ${epoch}, granted to ${JSON.stringify(grant)}`,
    );
  }
}

const oneLeaseHolderAnEpoch = (holds: boolean, message: () => string): void => claim("oneLeaseHolderAnEpoch", holds, message);
