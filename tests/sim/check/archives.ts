/** What becomes of logs that nobody leads any more: sealed to their end, and no burden to the nodes that have them. */
import { placementShard, type ShardId } from "#core/base";
import type { SimNode } from "../node.ts";
import type { Simulation } from "../simulation.ts";
import { claim } from "../violation.ts";
import { newestManifest } from "./sealed.ts";

const rule = "archivesAreSealed";
/** Looks of those who see to it; object storage is well by now. */
const looksMax = 12;

/** Waits until it is so, for as long as it may take. */
export function archivesAreSealed(sim: Simulation): void {
  const { sealing } = sim.workload;
  if (sealing === undefined) return;
  let problem: string | undefined;
  for (let look = 0; look < looksMax; look++) {
    problem = unsealed(sim) ?? unreleased(sim);
    if (problem === undefined) return;
    sim.runUntil(sim.schedule.nowMs + 5 * sealing.lookMs);
  }
  claim(rule, false, () => `${problem}`);
}

function unsealed(sim: Simulation): string | undefined {
  for (const { shard, through, into } of sim.view()?.retired.values() ?? []) {
    const newest = newestManifest(sim, shard);
    if ((newest?.through ?? 0) < through)
      return `shard ${shard} went into shard ${into} with records through ${through}, and is sealed through ${newest?.through ?? 0}`;
  }
  return undefined;
}

function unreleased(sim: Simulation): string | undefined {
  for (const node of sim.nodes.values())
    for (const shard of node.log.usage().shards.keys()) {
      const through = shard === placementShard || node.replicas.get(shard) !== undefined ? 0 : sealedThrough(sim, node, shard);
      if (node.log.released(shard) < through) return `node ${node.id} keeps archive of shard ${shard}, which is sealed through ${through}`;
    }
  return undefined;
}

function sealedThrough(sim: Simulation, node: SimNode, shard: ShardId): number {
  const { isRemoved, hasLog } = { isRemoved: node.log.isRemoved(shard), hasLog: node.log.shards().includes(shard) };
  const through = newestManifest(sim, shard)?.through ?? 0;
  return hasLog && !isRemoved ? Math.min(through, node.log.base(shard).index) : through;
}
