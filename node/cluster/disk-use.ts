/** What nodes' data folders take on their disks: each node looks at its own when somebody asks, and not too often. */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import type { NodeId } from "#core/base";
import { decodeDiskUse, encodeDiskUse, fromBytes, toBytes } from "#proto";
import type { PeerNet } from "../peer/peer-net.ts";

const method = "node.disk-use";
/** A list of members waits no longer for a node that fell silent. */
const askMsMax = 500;
/** One answer serves all who ask until this long after it was found. */
const keptMs = 5_000;
const blockBytes = 512;
const noBody = new Uint8Array(0);

export function serveDiskUse(net: Pick<PeerNet, "serve">, dataDir: string): void {
  let bytes: Promise<number> | undefined;
  let keptUntilMs = Number.POSITIVE_INFINITY;
  net.serve(method, async () => {
    if (bytes === undefined || performance.now() > keptUntilMs) {
      // Whoever asks while it is being found gets the same.
      keptUntilMs = Number.POSITIVE_INFINITY;
      bytes = bytesBelow(dataDir).finally(() => {
        keptUntilMs = performance.now() + keptMs;
      });
    }
    return toBytes(encodeDiskUse, { bytes: await bytes });
  });
}

/** Of those that answered. */
export async function diskUses(net: Pick<PeerNet, "call">, nodes: readonly NodeId[]): Promise<ReadonlyMap<NodeId, number>> {
  const asked = nodes.map(async (node): Promise<[NodeId, number][]> => {
    try {
      return [[node, fromBytes(decodeDiskUse, await net.call(node, method, noBody, { timeoutMs: askMsMax })).bytes]];
    } catch {
      return [];
    }
  });
  return new Map((await Promise.all(asked)).flat());
}

/** Space that is taken on the disk, by all files below. One that goes away meanwhile counts as none. */
export async function bytesBelow(folder: string): Promise<number> {
  let bytes = 0;
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
  for (const entry of entries) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) bytes += await bytesBelow(path);
    else
      bytes += await stat(path).then(
        ({ blocks }) => blocks * blockBytes,
        () => 0,
      );
  }
  return bytes;
}
