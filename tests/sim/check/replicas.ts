/** What all replicas of a shard must have in common: the fold of the same log, to the byte. */
import { asIndex, bytesEqual, type ShardId } from "#core/base";
import { decodeRunState, fromBytes } from "#proto";
import type { ShardReplica } from "../../../node/replica/shard-replica.ts";
import type { SimNode } from "../node.ts";
import type { Simulation } from "../simulation.ts";
import { claim } from "../violation.ts";

const rule = "replicasAreEqual";

/** Compares the replicas that have applied all that is committed with each other and with the full replay. */
export function checkReplicas(sim: Simulation, { isAll }: { readonly isAll: boolean }): void {
  const first = new Map<ShardId, { readonly node: number; readonly states: ReadonlyMap<string, Uint8Array> }>();
  for (const [shard, { record }] of sim.journal.shards) {
    if (record.isRetired) continue;
    const states = sim.reference?.statesOf(shard);
    if (states !== undefined && shard !== 0) first.set(shard, { node: 0, states });
  }
  for (const node of sim.nodes.values()) {
    if (node.isPaused) continue;
    for (const replica of node.replicas.all()) {
      // What another shard has taken in is not looked at any more.
      if (sim.journal.shards.get(replica.shard)?.record.isRetired === true) continue;
      const isThere = isAtEnd(sim, replica);
      if (isAll)
        claim(
          rule,
          isThere,
          () =>
            `shard ${replica.shard} on node ${node.id} has applied ${replica.replica.appliedIndex}, committed is ${sim.journal.lastIndex(replica.shard)}`,
        );
      if (!isThere) continue;
      const states = new Map<string, Uint8Array>(replica.allStates());
      const other = first.get(replica.shard);
      if (other === undefined) first.set(replica.shard, { node: node.id, states });
      else
        same(
          `shard ${replica.shard} on node ${node.id}`,
          other.node === 0 ? "the full replay" : `node ${other.node}`,
          states,
          other.states,
        );
    }
  }
}

function isAtEnd(sim: Simulation, { shard, replica, host }: ShardReplica): boolean {
  const end = sim.journal.lastIndex(shard);
  return (
    replica.isWhole &&
    replica.appliedIndex === end &&
    (host === undefined ? replica.machine.lastIndex === end : replica.group.lastIndex === end)
  );
}

function same(what: string, than: string, got: ReadonlyMap<string, Uint8Array>, want: ReadonlyMap<string, Uint8Array>): void {
  for (const [partition, state] of want) {
    const other = got.get(partition);
    claim(rule, other !== undefined, () => `${what} lacks ${partition}, which ${than} has`);
    claim(
      rule,
      bytesEqual(state, other),
      () => `${what} has another ${partition} than ${than}:\n  got  ${told(other)}\n  want ${told(state)}`,
    );
  }
  for (const partition of got.keys()) claim(rule, want.has(partition), () => `${what} has ${partition}, which ${than} has not`);
}

/** The log of every replica holds the bytes that were committed. */
export function logsAreEqual(sim: Simulation): void {
  for (const node of sim.nodes.values()) for (const { shard } of node.replicas.all()) logIsCommitted(sim, node, shard);
}

function logIsCommitted(sim: Simulation, node: SimNode, shard: ShardId): void {
  const { log } = node;
  const end = Math.min(log.durableIndex(shard), sim.journal.lastIndex(shard));
  for (const { index, term, body } of log.replay(shard, log.firstIndex(shard), asIndex(end + 1))) {
    const entry = sim.journal.shards.get(shard)?.entry(index);
    claim(
      rule,
      entry !== undefined && entry.term === term && bytesEqual(entry.data, body),
      () =>
        `record ${index} of shard ${shard} on node ${node.id} is of term ${term} and not the one that was committed in term ${entry?.term}`,
    );
  }
}

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");

function told(state: Uint8Array): string {
  return JSON.stringify(fromBytes(decodeRunState, state), (_, value: unknown) =>
    value instanceof Uint8Array ? hex(value).slice(0, 24) : value,
  );
}
