/** Compares the replicas of a shard: they must be equal at one index, state and log. */
import type { NodeId, ShardId } from "#core/base";
import { asShardId, bytesEqual, HopError } from "#core/base";
import { holders, shardOf } from "#core/placement";
import {
  decodeDigestRequest,
  decodeReplicaDigest,
  encodeDigestRequest,
  encodeReplicaDigest,
  fromBytes,
  type ReplicaDigest,
  type ReplicaDigestInit,
  type ReplicaHashesInit,
  toBytes,
  type VerifyReplyInit,
} from "#proto";
import { asHopError } from "../service/status.ts";
import { allShards } from "./cluster-pages.ts";
import type { Placement } from "./placement.ts";

/** Of a replica on this node. */
export interface ReplicaDigests {
  /**
   * `index` 0: state and log as of what the replica has applied now. Else the log through `index`,
   * which is what `appliedIndex` says then, and the state where the replica has applied just that;
   * without it `stateHash` is empty. Rejects with STORE_UNAVAILABLE where the replica is not that far,
   * with SHARD_NOT_FOUND where there is none here.
   */
  digest(shard: ShardId, index: number): Promise<ReplicaDigestInit>;
}

const digestCall = "replica.digest";
const digestMsMax = 30_000;
const triesMax = 20;
/** A replica that says nothing is waited for so long. */
const silentMsMax = 5_000;
const pauseMs = 100;

type Answer = { readonly node: NodeId } & ({ readonly digest: ReplicaDigest } | { readonly problem: string });

export class Verifier {
  private readonly placement: Placement;

  constructor(placement: Placement, own: ReplicaDigests) {
    this.placement = placement;
    placement.parts.net.serve(digestCall, async (_, body) => {
      const { shard, index } = fromBytes(decodeDigestRequest, body);
      return toBytes(encodeReplicaDigest, await own.digest(asShardId(shard), index));
    });
  }

  /** One verdict for each shard; all of them where `shard` is left out. */
  async *verify(shard: ShardId | undefined, gone: AbortSignal): AsyncIterable<VerifyReplyInit> {
    const { view } = this.placement;
    const shards = shard === undefined ? allShards(view).map((each) => each.shard) : [shard];
    for (const each of shards) {
      if (gone.aborted) return;
      yield await this.one(each);
    }
  }

  private async one(shard: ShardId): Promise<VerifyReplyInit> {
    const entry = shardOf(this.placement.view, shard);
    if (entry === undefined) throw new HopError("SHARD_NOT_FOUND", `Cannot verify shard ${shard}: no shard has this number`);
    const nodes = holders(entry);
    let answers: Answer[] = [];
    const startedMs = this.placement.parts.timing.monotonicMs();
    // While the shard is written to, replicas are rarely at one index: what is compared is taken again then.
    for (let tries = 0; tries < triesMax; tries++) {
      answers = await this.ask(shard, nodes, 0);
      // A node that has just come back answers in a moment.
      if (answers.some((each) => "problem" in each)) {
        if (this.placement.parts.timing.monotonicMs() - startedMs > silentMsMax) return verdictOf(shard, answers);
        await new Promise<void>((resolve) => void this.placement.parts.timing.after(pauseMs, resolve));
        tries--;
        continue;
      }
      if (new Set(answers.map(indexOf)).size === 1) return verdictOf(shard, answers);
      await new Promise<void>((resolve) => void this.placement.parts.timing.after(pauseMs, resolve));
    }
    return verdictOf(shard, await this.ask(shard, nodes, Math.min(...answers.map(indexOf))));
  }

  private ask(shard: ShardId, nodes: readonly NodeId[], index: number): Promise<Answer[]> {
    const body = toBytes(encodeDigestRequest, { shard, index });
    const { net } = this.placement.parts;
    const one = async (node: NodeId): Promise<Answer> => {
      try {
        return { node, digest: fromBytes(decodeReplicaDigest, await net.call(node, digestCall, body, { timeoutMs: digestMsMax })) };
      } catch (error) {
        return { node, problem: asHopError(error).message };
      }
    };
    return Promise.all(nodes.map(one));
  }
}

const indexOf = (answer: Answer) => ("digest" in answer ? answer.digest.appliedIndex : 0);

function verdictOf(shard: ShardId, answers: readonly Answer[]): VerifyReplyInit {
  const replica: ReplicaHashesInit[] = answers.map((each) => ("digest" in each ? { node: each.node, ...each.digest } : each));
  const digests = answers.flatMap((each) => ("digest" in each ? [each.digest] : []));
  const index = digests[0]?.appliedIndex ?? 0;
  const silent = answers.filter((each) => "problem" in each).map((each) => each.node);
  const differing = answers
    .filter((each) => "digest" in each && !isSame(each.digest, digests[0] as ReplicaDigest))
    .map((each) => each.node);
  const hasStates = digests.every((each) => each.stateHash.length > 0);
  const verdict =
    silent.length > 0
      ? `node ${silent.join(", ")} did not answer`
      : differing.length > 0
        ? `node ${differing.join(", ")} differs from node ${answers[0]?.node}`
        : hasStates
          ? "equal"
          : `the logs are equal through index ${index}; the states changed all the time and were not compared`;
  return { shard, index, replica, ok: silent.length === 0 && differing.length === 0, verdict };
}

/** A state that was not taken, as the replica has gone on, can't differ. */
function isSame(a: ReplicaDigest, b: ReplicaDigest): boolean {
  const isState = a.stateHash.length === 0 || b.stateHash.length === 0 || bytesEqual(a.stateHash, b.stateHash);
  return a.appliedIndex === b.appliedIndex && isState && bytesEqual(a.logHash, b.logHash);
}
