/** Snapshots between nodes: a new member fetches what its leader offered, chunk by chunk. */
import { asNodeId, asShardId, HopError, type NodeId, noBytes, type ShardId } from "#core/base";
import type { Message } from "#core/raft";
import { decodeSnapshotAsked, encodeSnapshotAsked, fromBytes, toBytes } from "#proto";
import type { PeerNet } from "../peer/peer-net.ts";
import { asHopError } from "../service/status.ts";
import type { Note } from "../shard/shard-host.ts";
import { realTiming, type Timing } from "../timing.ts";
import { OpenSnapshot, OpenSnapshots } from "./open-snapshots.ts";
import type { ShardReplica } from "./shard-replica.ts";
import { archiveThrough, SnapshotSink, type SnapshotStores } from "./snapshot.ts";

const snapshotCall = "replica.snapshot";

/** How long nobody is waited for: a reader that takes no chunk, or one that has to come back. */
export interface SnapshotPatience {
  readonly timing: Pick<Timing, "after">;
  readonly silentMs: number;
}

/** A snapshot keeps the states of its moment on the disk for so long. */
export const snapshotPatience: SnapshotPatience = { timing: realTiming, silentMs: 30_000 };

/**
 * `done` is told whether the node has all of it. While one is read its states are held; without `patience` that is for as long
 * as it takes, and one that breaks off is over. The returned function lets go of all.
 */
export function serveSnapshots(
  net: PeerNet,
  stores: SnapshotStores,
  done: (shard: ShardId, node: NodeId, isTaken: boolean) => void,
  patience?: SnapshotPatience,
): () => void {
  const kept = patience === undefined ? undefined : new OpenSnapshots(patience.timing, patience.silentMs);
  net.serveStream(snapshotCall, async function* (from, body, gone) {
    const asked = fromBytes(decodeSnapshotAsked, body);
    const shard = asShardId(asked.shard);
    const node = asNodeId(from);
    const snapshot = kept?.take(node, shard, asked) ?? new OpenSnapshot(stores, shard, asked.transfer.slice());
    let isOver = false;
    const end = (isWhole: boolean): void => {
      if (isOver) return;
      isOver = true;
      if (isWhole || kept === undefined) snapshot.close();
      else kept.keep(node, shard, snapshot);
      done(shard, node, isWhole);
    };
    try {
      for (let chunk = snapshot.next(); chunk !== undefined; chunk = snapshot.next()) {
        if (gone.aborted) return;
        const stopTimer = patience?.timing.after(patience.silentMs, () => end(false));
        try {
          yield chunk;
        } finally {
          stopTimer?.();
        }
        if (isOver)
          throw new HopError("STORE_UNAVAILABLE", `The snapshot of shard ${shard} was not read for ${patience?.silentMs} ms`, {
            retryAfterMs: 200,
          });
      }
      end(true);
    } finally {
      end(false);
    }
  });
  return () => kept?.close();
}

export interface FetchParts {
  readonly stores: SnapshotStores;
  readonly net: PeerNet;
  readonly note: Note;
  /** Left out: what breaks off begins anew. */
  readonly patience?: SnapshotPatience;
}

/** What a snapshot is fetched for. */
export type Fetching = Pick<ShardReplica, "shard" | "mayTake" | "installed" | "gone">;

/** A transfer: it is under way, or broke off and may go on. */
interface Transfer {
  readonly source: NodeId;
  readonly replica: Fetching;
  readonly name: Uint8Array;
  readonly sink: SnapshotSink;
  isUnderWay: boolean;
  stopTimer(): void;
}

const nameBytes = 16;
const transfers = new WeakMap<PeerNet, Map<ShardId, Transfer>>();

/** One that fails is offered again by the leader. */
export function fetchSnapshot(parts: FetchParts, replica: Fetching, offered: Message): void {
  const { shard } = replica;
  const own = transfers.get(parts.net) ?? new Map<ShardId, Transfer>();
  transfers.set(parts.net, own);
  const found = own.get(shard);
  if (found?.isUnderWay === true) return;
  found?.stopTimer();
  const transfer = found?.source === offered.from && found.replica === replica ? found : begun(parts, replica, offered);
  own.set(shard, transfer);
  transfer.isUnderWay = true;
  const drop = (): void => {
    if (own.get(shard) === transfer) own.delete(shard);
    transfer.sink.drop();
  };
  fetch(parts, transfer, offered)
    .then(() => own.delete(shard))
    .catch((error: unknown) => {
      transfer.isUnderWay = false;
      const { patience } = parts;
      const isBroken = asHopError(error).reason !== "HASH_MISMATCH" && !replica.gone.signal.aborted;
      if (isBroken && patience !== undefined) transfer.stopTimer = patience.timing.after(patience.silentMs, drop);
      else drop();
      // A replica that has ended, or its successor, is offered its own.
      if (replica.gone.signal.aborted) return;
      parts.note("warn", "snapshot not taken, and fetched again", { shard, from: offered.from, reason: asHopError(error).message });
    });
}

function begun({ stores, patience }: FetchParts, replica: Fetching, offered: Message): Transfer {
  const sink = new SnapshotSink(stores, replica.shard, (index, range) => replica.mayTake(index, range));
  const name = patience === undefined ? noBytes : crypto.getRandomValues(new Uint8Array(nameBytes));
  return { source: offered.from, replica, name, sink, isUnderWay: false, stopTimer: () => {} };
}

async function fetch({ net, note, stores }: FetchParts, { replica, name, sink }: Transfer, offered: Message): Promise<void> {
  const { shard } = replica;
  const { signal } = replica.gone;
  const startedMs = performance.now();
  let bytes = 0;
  const body = toBytes(encodeSnapshotAsked, { shard, transfer: name, from: sink.count });
  for await (const chunk of net.stream(offered.from, snapshotCall, body, { signal })) {
    signal.throwIfAborted();
    bytes += chunk.length;
    const received = sink.take(chunk);
    if (received === undefined) continue;
    replica.installed({ ...offered, snapshot: received.meta });
    // Its log begins behind the snapshot now: what did not come is no part of it.
    stores.log.release(shard, archiveThrough(stores.log, shard, received.sealedThrough));
    note("info", "snapshot taken", { shard, from: offered.from, bytes, ms: Math.round(performance.now() - startedMs) });
    return;
  }
  throw new Error("the stream ended before the snapshot did");
}
