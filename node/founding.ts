/** When a node may make a cluster: while it is of none, and none of its seeds is of one that it would join. */
import { HopError } from "#core/base";
import type { NodeIdentity } from "./identity.ts";
import type { SeedSearch } from "./peer/seeds.ts";

/** Rejects with ALREADY_MEMBER. The seeds are asked now: what they said last may be out of date. */
export async function requireNoCluster(
  identity: () => NodeIdentity | undefined,
  search: Pick<SeedSearch, "clusters"> | undefined,
): Promise<void> {
  const requireNone = () => {
    const own = identity();
    if (own !== undefined) throw refuse(`this node is node ${own.nodeId} of ${own.clusterId} already`);
  };
  requireNone();
  const [other] = (await search?.clusters()) ?? [];
  // It may have joined one meanwhile.
  requireNone();
  if (other === undefined) return;
  const { address, clusterId } = other;
  throw refuse(
    `seed ${address} is of cluster ${clusterId}, which this node joins by itself; to make another one, start the node without that --seed`,
  );
}

const refuse = (why: string) => new HopError("ALREADY_MEMBER", `Cannot make a cluster: ${why}`);
