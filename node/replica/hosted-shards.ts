/** The replicas of this node, as the rest of the node sees them: ports, loads, digests. */
import { asIndex, asShardId, type Hasher, HopError, placementShard, type ShardId } from "#core/base";
import type { ShardLoadReport } from "#core/placement";
import { digestOf, type ShardFigures } from "#core/shard";
import type { ReplicaDigestInit } from "#proto";
import type { CheckpointStore, LogStore } from "#store";
import type { LedChanged, LocalShards } from "../cluster/local-shards.ts";
import type { ReplicaDigests } from "../cluster/verify.ts";
import type { ShardHost } from "../shard/shard-host.ts";
import { breath, type Timing } from "../timing.ts";
import type { CommittedLog, ShardKeys } from "../visibility-pump.ts";
import type { Group } from "./group.ts";
import type { PlacementReplica } from "./placement-replica.ts";
import type { Replicas } from "./replicas.ts";
import type { ShardReplica } from "./shard-replica.ts";
import { type ShardSize, ShardSizes } from "./shard-sizes.ts";

export interface HostedShardsParts {
  readonly log: LogStore;
  readonly checkpoint: CheckpointStore;
  readonly hasher: Hasher;
  readonly timing: Timing;
  readonly replicas: () => Replicas;
  readonly placement: PlacementReplica;
}

const handOverPollMs = 20;

interface Reported {
  /** Last index then, and when that was: what is between makes the rate. */
  readonly index: number;
  readonly atMs: number;
  readonly leads: boolean;
  readonly size: ShardSize | undefined;
  /** What was reported, where nothing moved. */
  readonly atRest: ShardLoadReport | undefined;
}

export class HostedShards implements LocalShards, ReplicaDigests {
  onLedChanged: LedChanged = () => {};
  private readonly parts: HostedShardsParts;
  private readonly hosts = new Map<ShardId, ShardHost>();
  /** Of each shard at the last report. */
  private readonly before = new Map<ShardId, Reported>();
  private readonly sizes: ShardSizes;

  constructor(parts: HostedShardsParts) {
    this.parts = parts;
    const { checkpoint, timing } = parts;
    this.sizes = new ShardSizes({ checkpoint, timing, rangeOf: (shard) => this.hosts.get(shard)?.range });
  }

  changed(shard: ShardId, host: ShardHost | undefined): void {
    if (host === undefined) this.hosts.delete(shard);
    else {
      this.hosts.set(shard, host);
      this.sizes.of(shard);
    }
    this.onLedChanged(shard, host);
  }

  led(shard: ShardId): ShardHost | undefined {
    return this.hosts.get(shard);
  }

  ledShards(): ShardId[] {
    return [...this.hosts.keys()];
  }

  replicas(): ShardId[] {
    return [...this.parts.replicas().all()].map((each) => each.shard);
  }

  *logs(): Generator<CommittedLog> {
    for (const { shard, replica } of this.parts.replicas().all())
      yield { shard, commitIndex: replica.appliedIndex, keys: () => keysOf(replica) };
  }

  /** Sum over the shards that are led here. */
  figure(name: keyof ShardFigures): number {
    let sum = 0;
    for (const host of this.hosts.values()) sum += host.figures()[name];
    return sum;
  }

  /** A shard at rest costs next to nothing: it stands as it stood a second ago. */
  loads(): Map<ShardId, ShardLoadReport> {
    const loads = new Map<ShardId, ShardLoadReport>();
    const nowMs = this.parts.timing.monotonicMs();
    for (const { shard, group } of this.parts.replicas().all()) {
      const { lastIndex, leads } = group;
      const size = leads ? this.sizes.of(shard) : unled;
      const before = this.before.get(shard);
      const isAsBefore = before?.index === lastIndex && before.leads === leads && before.size === size;
      const atRest = isAsBefore ? before.atRest : undefined;
      const load = atRest ?? this.loadOf(group, size, before && { index: before.index, seconds: (nowMs - before.atMs) / 1000 });
      // Whoever is level with a log that has not grown stays so.
      const isResting = load !== undefined && load.eventsPerSecond === 0 && [...load.lag.values()].every((entries) => entries === 0);
      this.before.set(shard, { index: lastIndex, atMs: nowMs, leads, size, atRest: isResting ? load : undefined });
      if (load !== undefined) loads.set(shard, load);
    }
    return loads;
  }

  private loadOf(
    group: Group,
    size: ShardSize | undefined,
    before: { readonly index: number; readonly seconds: number } | undefined,
  ): ShardLoadReport | undefined {
    if (size === undefined) return undefined;
    const { lastIndex, leads } = group;
    const isKnown = before !== undefined && before.seconds > 0;
    const eventsPerSecond = isKnown ? Math.max(lastIndex - before.index, 0) / before.seconds : 0;
    const lag = new Map([...group.status().progress].map(([node, { match }]) => [node, Math.max(lastIndex - match, 0)]));
    const { bytes, partitions, splitAt } = size;
    return { leads, bytes, eventsPerSecond, partitions, lastIndex, lag, ...(splitAt === undefined ? {} : { splitAt }) };
  }

  async digest(shard: ShardId, index: number, behind: number): Promise<ReplicaDigestInit> {
    const { placement, replicas, log } = this.parts;
    const replica = shard === placementShard ? placement.replica : replicas().get(shard)?.replica;
    if (replica === undefined) throw new HopError("SHARD_NOT_FOUND", `Cannot digest shard ${shard}: this node has no replica of it`);
    const through = index === 0 ? replica.appliedIndex : asIndex(index);
    if (!replica.isWhole || replica.appliedIndex < through || log.durableIndex(shard) < through)
      throw new HopError("STORE_UNAVAILABLE", `Cannot digest shard ${shard} at index ${through}: this replica is not that far`, {
        retryAfterMs: 100,
      });
    // A leader's states may be ahead of what is committed.
    const stateHash = replica.machine.lastIndex === through ? await this.stateHash(shard) : new Uint8Array(0);
    const from = asIndex(Math.max(behind, log.released(shard)));
    return { appliedIndex: through, stateHash, logHash: await this.logHash(shard, from, through), behind: from };
  }

  /** Gives each lead to another voter that can take it, for as long as that takes, but not longer. */
  async handOver(msMax: number): Promise<void> {
    const { timing } = this.parts;
    const untilMs = timing.monotonicMs() + msMax;
    const pause = () => new Promise<void>((resolve) => void timing.after(handOverPollMs, resolve));
    while (timing.monotonicMs() < untilMs) {
      const leading = [...this.parts.replicas().everyGroup()].filter((group) => group.leads && !group.isSoleVoter);
      if (leading.length === 0) return;
      for (const group of leading) group.handOver();
      await pause();
    }
  }

  /** Makes everything that was decided durable and saves the states, if that is done within `msMax`. */
  async settle(msMax: number): Promise<void> {
    const { log, timing } = this.parts;
    const untilMs = timing.monotonicMs() + msMax;
    const over = () => timing.monotonicMs() >= untilMs || !log.hasRoom();
    const pause = () => new Promise<void>((resolve) => void timing.after(2, resolve));
    for (const host of this.hosts.values()) host.hurry();
    const replicas = [...this.parts.replicas().all()];
    while (!over() && replicas.some(({ group }) => group.leads && group.commitIndex < group.lastIndex)) await pause();
    let left = replicas.length;
    for (const replica of replicas) replica.flush(() => left--);
    while (!over() && left > 0) await pause();
  }

  /** Of the states as of now, whatever happens while they are read. */
  private async stateHash(shard: ShardId): Promise<Uint8Array> {
    const sum = new Uint8Array(32);
    if (shard === placementShard) {
      this.parts.hasher.sha256(this.parts.placement.replica.machine.encodeState(), sum);
      return sum;
    }
    for (const part of this.parts.replicas().get(shard)?.stateParts() ?? []) {
      const one = digestOf(part, this.parts.hasher);
      for (const [i, byte] of one.entries()) sum[i] = (sum[i] as number) ^ byte;
      await breath(this.parts.timing);
    }
    return sum;
  }

  private async logHash(shard: ShardId, behind: number, through: number): Promise<Uint8Array> {
    const { log } = this.parts;
    const hash = new Bun.CryptoHasher("sha256");
    for await (const { index, term, kind, body } of log.scan(shard, asIndex(behind + 1), asIndex(through + 1))) {
      hash.update(`${index} ${term} ${kind} ${body.length}\n`);
      hash.update(body);
    }
    return new Uint8Array(hash.digest().buffer);
  }
}

/** What does not lead has nothing to say of it. */
const unled: ShardSize = { bytes: 0, partitions: 0 };

/** Keys as of the last record that is folded in, which at a leader may be one that is not committed. */
function keysOf({ machine }: ShardReplica["replica"]): ShardKeys {
  const { first, last, ancestor, changedIndex } = machine.header();
  return { range: { first, last }, ancestors: ancestor.map(asShardId), changedIndex };
}
