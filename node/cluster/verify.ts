/** Compares the replicas of a shard: they must be equal at one index, state and log. */
import type { NodeId, ShardId } from "#core/base";
import { asShardId, bytesEqual, HopError } from "#core/base";
import { holders, type ShardEntry, shardOf } from "#core/placement";
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
   * The log behind `behind`, or behind what the replica has forgotten, as the digest says.
   * `index` 0: state and log as of what the replica has applied now. Else the log through `index`,
   * which is what `appliedIndex` says then, and the state where the replica has applied just that;
   * without it `stateHash` is empty. Rejects with STORE_UNAVAILABLE where the replica is not that far,
   * with SHARD_NOT_FOUND where there is none here.
   */
  digest(shard: ShardId, index: number, behind: number): Promise<ReplicaDigestInit>;
}

const digestCall = "replica.digest";
const digestMsMax = 30_000;
const triesMax = 20;
/** A replica that says nothing is waited for so long. */
const silentMsMax = 5_000;
const pauseMs = 100;

type Answer = { readonly node: NodeId } & ({ readonly digest: ReplicaDigest } | { readonly problem: string });

export interface Verdict extends VerifyReplyInit {
  /** Replicas were compared, and one is another's equal no more. */
  readonly isDifferent: boolean;
}

export class Verifier {
  private readonly placement: Placement;

  constructor(placement: Placement, own: ReplicaDigests) {
    this.placement = placement;
    placement.parts.net.serve(digestCall, async (_, body) => {
      const { shard, index, behind } = fromBytes(decodeDigestRequest, body);
      return toBytes(encodeReplicaDigest, await own.digest(asShardId(shard), index, behind));
    });
  }

  /** One verdict for each shard; all of them where `shard` is left out. */
  async *verify(shard: ShardId | undefined, gone: AbortSignal): AsyncIterable<Verdict> {
    const { view } = this.placement;
    const shards = shard === undefined ? allShards(view).map((each) => each.shard) : [shard];
    for (const each of shards) {
      if (gone.aborted) return;
      yield await this.one(each);
    }
  }

  private async one(shard: ShardId): Promise<Verdict> {
    const entry = shardOf(this.placement.view, shard);
    if (entry === undefined) throw new HopError("SHARD_NOT_FOUND", `Cannot verify shard ${shard}: no shard has this number`);
    let found: Found = { compared: [], behind: [] };
    // What one replica has forgotten of the log is compared with none.
    let from = 0;
    const startedMs = this.placement.parts.timing.monotonicMs();
    // While the shard is written to, replicas are rarely at one index: what is compared is taken again then.
    for (let tries = 0; tries < triesMax; tries++) {
      found = withoutBehind(entry, await this.ask(shard, holders(entry), { index: 0, behind: from }));
      // A node that has just come back answers in a moment.
      if (found.compared.some((each) => "problem" in each)) {
        if (this.placement.parts.timing.monotonicMs() - startedMs > silentMsMax) return verdictOf(shard, found);
        await new Promise<void>((resolve) => void this.placement.parts.timing.after(pauseMs, resolve));
        tries--;
        continue;
      }
      const begins = found.compared.map(behindOf);
      from = Math.max(from, ...begins);
      if (begins.some((begin) => begin !== from)) continue;
      if (new Set(found.compared.map(indexOf)).size === 1) return verdictOf(shard, found);
      await new Promise<void>((resolve) => void this.placement.parts.timing.after(pauseMs, resolve));
    }
    const { compared, behind } = found;
    const nodes = compared.map((each) => each.node);
    const index = Math.min(...compared.map(indexOf));
    return verdictOf(shard, { compared: await this.ask(shard, nodes, { index, behind: from }), behind });
  }

  private ask(shard: ShardId, nodes: readonly NodeId[], at: { readonly index: number; readonly behind: number }): Promise<Answer[]> {
    const body = toBytes(encodeDigestRequest, { shard, ...at });
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

const behindOf = (answer: Answer) => ("digest" in answer ? answer.digest.behind : 0);
const indexOf = (answer: Answer) => ("digest" in answer ? answer.digest.appliedIndex : 0);

interface Found {
  readonly compared: readonly Answer[];
  /** Replicas that have not caught up: what they lack is no difference. */
  readonly behind: readonly Answer[];
}

function withoutBehind({ learners }: ShardEntry, answers: readonly Answer[]): Found {
  const voting = answers.filter((each) => "digest" in each && !learners.includes(each.node)).map(indexOf);
  const least = Math.min(...voting.filter((index) => index > 0));
  const isBehind = (each: Answer) =>
    least !== Number.POSITIVE_INFINITY && (learners.includes(each.node) ? indexOf(each) < least : "digest" in each && indexOf(each) === 0);
  return { compared: answers.filter((each) => !isBehind(each)), behind: answers.filter(isBehind) };
}

function verdictOf(shard: ShardId, { compared: answers, behind }: Found): Verdict {
  const replica: ReplicaHashesInit[] = answers.map((each) => ("digest" in each ? { node: each.node, ...each.digest } : each));
  for (const each of behind)
    replica.push({ node: each.node, appliedIndex: indexOf(each), problem: "it still learns the shard, and was not compared" });
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
  const learns = behind.length === 0 ? "" : `; node ${behind.map((each) => each.node).join(", ")} still learns the shard`;
  const ok = silent.length === 0 && differing.length === 0;
  return { shard, index, replica, ok, verdict: verdict + learns, isDifferent: silent.length === 0 && differing.length > 0 };
}

/** A state that was not taken, as the replica has gone on, can't differ. */
function isSame(a: ReplicaDigest, b: ReplicaDigest): boolean {
  const isState = a.stateHash.length === 0 || b.stateHash.length === 0 || bytesEqual(a.stateHash, b.stateHash);
  return a.appliedIndex === b.appliedIndex && isState && bytesEqual(a.logHash, b.logHash);
}
