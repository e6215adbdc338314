/**
 * Reads that wait until a majority confirms that its leader was still the leader after they came.
 *
 * Reads are numbered 1, 2, 3… within a term. A heartbeat carries the highest number that waits,
 * its reply echoes it: one round confirms every read before it.
 */
import { asIndex, type Index, type NodeId } from "#core/base";
import { jointIndex } from "./quorum.ts";
import type { ConfState, ReadState } from "./types.ts";

export class Reads {
  private waiting: ReadState[] = [];
  private confirmed = 0;
  private readonly acks = new Map<NodeId, number>();

  /** A read that wants the state as of `index`. */
  add(context: number, index: Index, self: NodeId): void {
    this.waiting.push({ context, index });
    this.acks.set(self, this.highest());
  }

  /** What a heartbeat is to carry; 0 = no read waits. */
  highest(): number {
    return this.waiting.length === 0 ? 0 : this.confirmed + this.waiting.length;
  }

  /** Reads that `from`'s reply confirms. */
  acknowledge(from: NodeId, highest: number, conf: ConfState): ReadState[] {
    this.acks.set(from, Math.max(this.acks.get(from) ?? 0, highest));
    const reached = jointIndex(conf.voters, conf.votersOutgoing, (voter) => this.acks.get(voter) ?? 0);
    const count = Math.min(reached - this.confirmed, this.waiting.length);
    if (count <= 0) return [];
    this.confirmed += count;
    return this.waiting.splice(0, count);
  }
}

export const readState = (context: number, index: number): ReadState => ({ context, index: asIndex(index) });
