/**
 * Gives every blob of this node to the nodes that are to have it, whenever the members change: so
 * a cluster that grew, or lost a node, has as many copies of old blobs as of new ones.
 */
import type { NodeId } from "#core/base";
import type { Timing } from "../timing.ts";
import { type BlobNodes, type ClusterBlobs, homesOf } from "./cluster-blobs.ts";

export interface BlobKeeperParts {
  readonly blobs: Pick<ClusterBlobs, "lackedBy" | "sendTo">;
  readonly nodes: BlobNodes;
  readonly timing: Timing;
  /** Hashes of this node's blobs. */
  readonly stored: () => AsyncIterable<Uint8Array>;
  readonly note: (level: "info" | "warn", what: string, fields?: Record<string, string | number>) => void;
}

/** Members change in groups. */
const settleMs = 2_000;
const failedMs = 10_000;
const batchMax = 500;

export class BlobKeeper {
  private readonly parts: BlobKeeperParts;
  private members = "";
  private stopTimer: (() => void) | undefined;
  private isPassing = false;
  private isClosed = false;

  constructor(parts: BlobKeeperParts) {
    this.parts = parts;
  }

  /** To be called with each view. */
  onMembers(): void {
    const { nodes } = this.parts;
    const members = `${nodes.replicas()}:${nodes.members().join()}`;
    if (members === this.members) return;
    this.members = members;
    this.passSoon(settleMs);
  }

  close(): void {
    this.isClosed = true;
    this.stopTimer?.();
  }

  private passSoon(ms: number): void {
    this.stopTimer?.();
    this.stopTimer = this.parts.timing.after(ms, () => {
      this.stopTimer = undefined;
      if (this.isPassing) this.passSoon(settleMs);
      else void this.pass();
    });
  }

  private async pass(): Promise<void> {
    this.isPassing = true;
    try {
      const given = await this.giveAll();
      if (given > 0) this.parts.note("info", "blobs were copied to other nodes", { blobs: given });
    } catch (error) {
      this.parts.note("info", "blobs could not be copied to other nodes, and are tried again", { error: String(error) });
      if (!this.isClosed) this.passSoon(failedMs);
    } finally {
      this.isPassing = false;
    }
  }

  private async giveAll(): Promise<number> {
    const { nodes, stored } = this.parts;
    const batches = new Map<NodeId, Uint8Array[]>();
    let given = 0;
    for await (const sha256 of stored()) {
      for (const node of homesOf(sha256, nodes.members()).slice(0, nodes.replicas())) {
        if (node === nodes.self || this.isClosed) continue;
        const batch = batches.get(node) ?? [];
        batches.set(node, batch);
        batch.push(sha256);
        if (batch.length >= batchMax) given += await this.give(node, batch.splice(0));
      }
    }
    for (const [node, batch] of batches) given += await this.give(node, batch);
    return given;
  }

  private async give(node: NodeId, batch: readonly Uint8Array[]): Promise<number> {
    if (batch.length === 0) return 0;
    const lacking = await this.parts.blobs.lackedBy(node, batch);
    for (const sha256 of lacking) if (!this.isClosed) await this.parts.blobs.sendTo(node, sha256);
    return lacking.length;
  }
}
