/**
 * A shard that another node leads, over the link to it.
 *
 * A command that fails may have been decided all the same; only what the link never took, and
 * what the leader refused by name, is known not to have been.
 */
import type { NodeId, Partition, Reply, Seq, ShardId } from "#core/base";
import { HopError } from "#core/base";
import type { Command } from "#core/shard";
import {
  type DescribeReply,
  decodeForwardedReply,
  decodeForwardedState,
  decodeHistoryChunk,
  encodeForwardedCommand,
  encodeForwardedRead,
  fromBytes,
  type Identity,
  toBytes,
} from "#proto";
import { neverSent, type PeerNet } from "../peer/peer-net.ts";
import { asHopError } from "../service/status.ts";
import { forwardedOf, type LeaderHint, replyOf } from "./forward-codec.ts";

/** Names of the calls, which `shard-service.ts` answers. */
export const shardCalls = {
  command: "shard.command",
  describe: "shard.describe",
  changed: "shard.changed",
  history: "shard.history",
} as const;

/** What else is known of a reply that another node gave, or did not give. */
export interface Known {
  readonly hint?: LeaderHint | undefined;
  /** The command never left this node. */
  readonly isUnsent?: boolean;
  /** The link failed, or nothing came in time: whether it was decided is not known. */
  readonly isLost?: boolean;
}

export interface RemoteShardParts {
  readonly net: PeerNet;
  readonly node: NodeId;
  readonly shard: ShardId;
  readonly epoch: number;
  /** Aborts when another node leads the shard: one that is gone without a word is not waited for. */
  readonly deposed: AbortSignal;
}

/** A command that is decided at once is answered within this, or its fate is unknown. */
const decideMsMax = 15_000;
/** As long as timers go: a link that breaks ends a wait long before. */
const waitMsMax = 2 ** 31 - 1;

const isWait = (command: Command) =>
  command.kind === "await-result" ||
  command.kind === "consume" ||
  command.kind === "query" ||
  command.kind === "call" ||
  (command.kind === "start" && command.awaitResult);

/** Issues a command; `done` is called exactly once unless the returned function is called first. */
export function commandRemote(
  parts: RemoteShardParts,
  identity: Identity,
  command: Command,
  done: (reply: Reply, known: Known) => void,
): () => void {
  const { net, node, shard, epoch, deposed } = parts;
  const body = toBytes(encodeForwardedCommand, forwardedOf({ identity, shard, epoch }, command));
  const gone = isWait(command) ? new AbortController() : undefined;
  let isForgotten = false;
  const signal = gone === undefined ? deposed : AbortSignal.any([gone.signal, deposed]);
  net.call(node, shardCalls.command, body, { timeoutMs: gone === undefined ? decideMsMax : waitMsMax, signal }).then(
    (answer) => {
      if (isForgotten) return;
      const { reply, hint } = replyOf(fromBytes(decodeForwardedReply, answer));
      done(reply, { hint });
    },
    (error: unknown) => {
      if (!isForgotten) done(...failed(parts, command, error));
    },
  );
  return () => {
    isForgotten = true;
    gone?.abort();
  };
}

function failed({ node, shard }: RemoteShardParts, command: Command, error: unknown): [Reply, Known] {
  const { reason, message, epoch } = asHopError(error);
  const rejected = (reject: typeof reason, text: string): Reply => ({ kind: "rejected", rejection: { reject, message: text, epoch } });
  if (neverSent(error)) return [rejected("STORE_UNAVAILABLE", message), { isUnsent: true }];
  if (reason !== "STORE_UNAVAILABLE" && reason !== "BUDGET_EXPIRED") return [rejected(reason, message), {}];
  const text = `Cannot say what became of ${command.kind} ${command.run}: node ${node}, which leads shard ${shard}, did not answer (${message}); ask again`;
  return [rejected("STORE_UNAVAILABLE", text), { isLost: true }];
}

/** State of a partition, durable; undefined where there is no such partition. Rejects with `HopError`. */
export async function describeRemote(parts: RemoteShardParts, partition: Partition): Promise<DescribeReply | undefined> {
  const body = toBytes(encodeForwardedRead, { shard: parts.shard, partition });
  return fromBytes(decodeForwardedState, await parts.net.call(parts.node, shardCalls.describe, body, { signal: parts.deposed })).state;
}

/** Resolves as `ShardPort.changed` does. */
export async function changedRemote(parts: RemoteShardParts, partition: Partition, seq: Seq, signal: AbortSignal): Promise<void> {
  const body = toBytes(encodeForwardedRead, { shard: parts.shard, partition, seq });
  try {
    await parts.net.call(parts.node, shardCalls.changed, body, { timeoutMs: waitMsMax, signal: AbortSignal.any([signal, parts.deposed]) });
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/** Event bytes as `ShardPort.history` gives them. */
export async function* historyRemote(parts: RemoteShardParts, partition: Partition, fromSeq: Seq): AsyncIterable<Uint8Array[]> {
  const body = toBytes(encodeForwardedRead, { shard: parts.shard, partition, seq: fromSeq });
  for await (const chunk of parts.net.stream(parts.node, shardCalls.history, body, { signal: parts.deposed })) {
    const { event } = fromBytes(decodeHistoryChunk, chunk);
    if (event.length === 0) throw new HopError("STORE_UNAVAILABLE", `Cannot read ${partition} at node ${parts.node}: a chunk was empty`);
    yield event;
  }
}
