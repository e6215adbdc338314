/**
 * Removes blobs that no event ever named, on every node, from where placement is led.
 *
 * A pass asks all nodes which blobs are old, then all of them which of those their logs name, then
 * object storage which of the rest it has: that holds what sealed events name, and nothing else.
 * What is left is named by nobody. Who does not answer may know better: then nothing is removed.
 * A node does not remove what was claimed meanwhile, so it makes no difference how long a pass takes.
 */
import { errorText, fromHex, type NodeId, toHex } from "#core/base";
import type { ClusterView } from "#core/placement";
import { decodeBlobHashes, decodeOldBlobs, encodeBlobHashes, encodeBlobRequest, fromBytes, toBytes } from "#proto";
import type { PeerNet } from "../peer/peer-net.ts";
import { Rounds } from "../rounds.ts";
import type { Timing } from "../timing.ts";
import { bundlesIn } from "./blob-nodes.ts";
import { removalCalls } from "./blob-removal.ts";
import type { StoredBlobs } from "./cluster-blobs.ts";

export interface BlobCollectorParts {
  readonly net: Pick<PeerNet, "call">;
  readonly placement: { readonly leads: boolean; readonly view: ClusterView };
  /** Undefined where the node has no object storage. */
  readonly stored: Pick<StoredBlobs, "size"> | undefined;
  readonly timing: Timing;
  readonly graceMs: number;
  readonly note: (level: "info" | "warn", what: string, fields?: Record<string, string | number>) => void;
}

const passMsMin = 500;
const passMsMax = 6 * 3600 * 1000;
/** A log is read from its beginning. */
const readMsMax = 3600 * 1000;
/** Hashes in one call. */
const batchMax = 20_000;
/** Questions to object storage at one time. */
const lanesCount = 8;

/** Why a pass removed nothing. */
class NotNow extends Error {}

export class BlobCollector {
  private readonly parts: BlobCollectorParts;
  private readonly rounds: Rounds;

  constructor(parts: BlobCollectorParts) {
    this.parts = parts;
    const { timing, graceMs, note } = parts;
    this.rounds = new Rounds({
      timing,
      everyMs: Math.min(Math.max(graceMs / 4, passMsMin), passMsMax),
      round: () => this.passAndTell(),
      failed: (error) => note("info", "no blobs were collected this time", { reason: errorText(error) }),
    });
  }

  start(): void {
    this.rounds.start();
  }

  close(): void {
    this.rounds.stop();
  }

  private async passAndTell(): Promise<void> {
    const removed = this.parts.placement.leads ? await this.pass() : 0;
    if (removed > 0) this.parts.note("info", "blobs that nothing names were removed", { blobs: removed });
  }

  /**
   * Returns how many blobs it removed. Rejects where it could not be certain, and then nothing was
   * removed, or where a node could not be told: that keeps its copies until a later pass.
   */
  async pass(): Promise<number> {
    const { placement } = this.parts;
    const before = placement.view;
    const nodes = [...before.nodes.values()].filter(({ standing }) => standing !== "removed").map(({ node }) => node);
    const old = await this.old(nodes);
    for (const bundle of bundlesIn(before)) old.delete(toHex(bundle));
    if (old.size === 0) return 0;
    for (const node of nodes) for (const name of await this.namedBy(node, old)) old.delete(name);
    await this.leaveStored(old);
    for (const bundle of bundlesIn(placement.view)) old.delete(toHex(bundle));
    // Records that went from one node to another may have passed by both questions.
    if (!placement.leads || placement.view.mapEpoch !== before.mapEpoch || !haveSameNodes(before, placement.view))
      throw new NotNow("replicas moved meanwhile");
    const removed = new Set<string>();
    for (const node of nodes) for (const name of await this.ask(node, removalCalls.forget, old)) removed.add(name);
    return removed.size;
  }

  private async old(nodes: readonly NodeId[]): Promise<Set<string>> {
    const { net, stored } = this.parts;
    const old = new Set<string>();
    // Where nodes have more than they answer with, each pass gets others, and all nodes tell of the same ones.
    const body = toBytes(encodeBlobRequest, { sha256: crypto.getRandomValues(new Uint8Array(2)) });
    for (const node of nodes) {
      const answer = fromBytes(decodeOldBlobs, await net.call(node, removalCalls.old, body, { timeoutMs: readMsMax }));
      if (answer.hasReleased && stored === undefined)
        throw new NotNow(`node ${node} has sealed history, and this node is not told of its object storage`);
      for (const sha256 of answer.sha256) old.add(toHex(sha256));
    }
    return old;
  }

  private namedBy(node: NodeId, names: ReadonlySet<string>): Promise<string[]> {
    return this.ask(node, removalCalls.named, names);
  }

  private async ask(node: NodeId, call: string, names: ReadonlySet<string>): Promise<string[]> {
    const all = [...names].map((name) => fromHex(name) as Uint8Array);
    const answered: string[] = [];
    for (let at = 0; at < all.length; at += batchMax) {
      const body = toBytes(encodeBlobHashes, { sha256: all.slice(at, at + batchMax) });
      const answer = fromBytes(decodeBlobHashes, await this.parts.net.call(node, call, body, { timeoutMs: readMsMax }));
      answered.push(...answer.sha256.map(toHex));
    }
    return answered;
  }

  /** Takes away from `names` what object storage has. */
  private async leaveStored(names: Set<string>): Promise<void> {
    const { stored } = this.parts;
    if (stored === undefined) return;
    const queue = [...names];
    const lane = async (): Promise<void> => {
      for (let name = queue.shift(); name !== undefined; name = queue.shift())
        if ((await stored.size(fromHex(name) as Uint8Array)) !== undefined) names.delete(name);
    };
    await Promise.all(Array.from({ length: lanesCount }, lane));
  }
}

const haveSameNodes = (a: ClusterView, b: ClusterView) =>
  [...a.nodes.values()].map(({ node, standing }) => `${node}:${standing}`).join() ===
  [...b.nodes.values()].map(({ node, standing }) => `${node}:${standing}`).join();
