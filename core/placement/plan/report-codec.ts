/** A node's report of its load to and from bytes. */
import { asNodeId, asShardId, type NodeId, type ShardId } from "#core/base";
import { decodeNodeReport, encodeNodeReport, fromBytes, toBytes } from "#proto";
import type { NodeReport, ShardLoadReport } from "./plan-input.ts";

export function encodeReport(node: NodeId, loads: ReadonlyMap<ShardId, ShardLoadReport>, isFull = false): Uint8Array {
  const shard = [...loads].map(([id, load]) => ({
    shard: id,
    leads: load.leads,
    bytes: Math.floor(load.bytes),
    rateMilli: Math.round(load.eventsPerSecond * 1000),
    partitions: load.partitions,
    lastIndex: load.lastIndex,
    splitAt: load.splitAt ?? 0,
    replica: [...load.lag].map(([member, lag]) => ({ node: member, lag })),
  }));
  return toBytes(encodeNodeReport, { node, shard, full: isFull });
}

/** Throws `CodecError`. */
export function decodeReport(bytes: Uint8Array, heardMs: number): { readonly node: NodeId; readonly report: NodeReport } {
  const { node, shard, full } = fromBytes(decodeNodeReport, bytes);
  const loads = shard.map((each): [ShardId, ShardLoadReport] => [
    asShardId(each.shard),
    {
      leads: each.leads,
      bytes: each.bytes,
      eventsPerSecond: each.rateMilli / 1000,
      partitions: each.partitions,
      lastIndex: each.lastIndex,
      ...(each.splitAt === 0 ? {} : { splitAt: each.splitAt }),
      lag: new Map(each.replica.map((replica) => [asNodeId(replica.node), replica.lag])),
    },
  ]);
  return { node: asNodeId(node), report: { lastHeardMs: heardMs, loads: new Map(loads), isFull: full } };
}
