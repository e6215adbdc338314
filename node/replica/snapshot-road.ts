/** Snapshots between nodes: a new member fetches what its leader offered, chunk by chunk. */
import { asNodeId, asShardId, type NodeId, type ShardId } from "#core/base";
import type { Message } from "#core/raft";
import { decodeSnapshotAsked, encodeSnapshotAsked, fromBytes, toBytes } from "#proto";
import type { PeerNet } from "../peer/peer-net.ts";
import { asHopError } from "../service/status.ts";
import type { Note } from "../shard/shard-host.ts";
import type { ShardReplica } from "./shard-replica.ts";
import { SnapshotSink, type SnapshotStores, snapshotChunks } from "./snapshot.ts";

const snapshotCall = "replica.snapshot";

/** `done` is told whether the node has all of it. */
export function serveSnapshots(net: PeerNet, stores: SnapshotStores, done: (shard: ShardId, node: NodeId, isTaken: boolean) => void): void {
  net.serveStream(snapshotCall, async function* (from, body, gone) {
    const shard = asShardId(fromBytes(decodeSnapshotAsked, body).shard);
    let isWhole = false;
    try {
      for (const chunk of snapshotChunks(stores, shard)) {
        if (gone.aborted) return;
        yield chunk;
      }
      isWhole = true;
    } finally {
      done(shard, asNodeId(from), isWhole);
    }
  });
}

export interface FetchParts {
  readonly stores: SnapshotStores;
  readonly net: PeerNet;
  readonly note: Note;
}

const fetching = new WeakMap<PeerNet, Set<ShardId>>();

/** One that fails is offered again by the leader. */
export function fetchSnapshot(parts: FetchParts, replica: ShardReplica, offered: Message): void {
  const { shard } = replica;
  const under = fetching.get(parts.net) ?? new Set<ShardId>();
  fetching.set(parts.net, under);
  if (under.has(shard)) return;
  under.add(shard);
  void fetch(parts, replica, offered)
    .catch((error: unknown) =>
      parts.note("warn", "snapshot not taken, and fetched again", { shard, from: offered.from, reason: asHopError(error).message }),
    )
    .finally(() => under.delete(shard));
}

async function fetch({ stores, net, note }: FetchParts, replica: ShardReplica, offered: Message): Promise<void> {
  const { shard } = replica;
  const startedMs = performance.now();
  const sink = new SnapshotSink(stores, shard, (index, range) => replica.mayTake(index, range));
  let bytes = 0;
  try {
    for await (const chunk of net.stream(offered.from, snapshotCall, toBytes(encodeSnapshotAsked, { shard }))) {
      bytes += chunk.length;
      const received = sink.take(chunk);
      if (received === undefined) continue;
      replica.installed({ ...offered, snapshot: received.meta });
      note("info", "snapshot taken", { shard, from: offered.from, bytes, ms: Math.round(performance.now() - startedMs) });
      return;
    }
  } catch (error) {
    sink.drop();
    throw error;
  }
  sink.drop();
  throw new Error("the stream ended before the snapshot did");
}
