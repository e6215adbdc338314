/**
 * Where the other nodes are: from the newest view, and kept in a file, so that a node that starts
 * again finds them before it has heard anything.
 */
import fs from "node:fs";
import { join } from "node:path";
import { asNodeId, type NodeId } from "#core/base";
import type { ClusterView } from "#core/placement";
import type { PeerNet } from "./peer/peer-net.ts";

const fileName = "peers.json";

export class KnownPeers {
  private readonly path: string;
  private readonly self: NodeId;
  private readonly net: PeerNet;
  private addresses: Map<NodeId, string>;

  constructor(dataDir: string, self: NodeId, net: PeerNet) {
    this.path = join(dataDir, fileName);
    this.self = self;
    this.net = net;
    this.addresses = this.read();
    if (this.addresses.size > 0) net.setPeers(this.addresses);
  }

  /** The node of the folder has known others. */
  static exist(dataDir: string): boolean {
    return fs.existsSync(join(dataDir, fileName));
  }

  nodes(): NodeId[] {
    return [...this.addresses.keys()];
  }

  take(view: ClusterView): void {
    const addresses = new Map<NodeId, string>();
    for (const { node, standing, info } of view.nodes.values())
      if (node !== this.self && standing !== "removed" && info.peer !== "") addresses.set(node, info.peer);
    if (JSON.stringify([...addresses]) === JSON.stringify([...this.addresses])) return;
    this.addresses = addresses;
    this.net.setPeers(addresses);
    this.write();
  }

  /** The file is a hint: one that is not there, or no good, only costs a look at the seeds. */
  private read(): Map<NodeId, string> {
    try {
      const entries = JSON.parse(fs.readFileSync(this.path, "utf8")) as [number, string][];
      return new Map(
        entries.filter(([node, peer]) => Number.isInteger(node) && typeof peer === "string").map(([node, peer]) => [asNodeId(node), peer]),
      );
    } catch {
      return new Map();
    }
  }

  private write(): void {
    try {
      fs.writeFileSync(`${this.path}.new`, JSON.stringify([...this.addresses]));
      fs.renameSync(`${this.path}.new`, this.path);
    } catch {
      // A full disk is not told here: the log tells it.
    }
  }
}
