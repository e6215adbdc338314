/**
 * Has shards that are led here give up histories whose time is over: asks the index of runs what has
 * ended for long enough by each namespace's policy, and lets Core decide, which looks at its own clock
 * and states. The bytes are the compactor's to remove (expired-events.ts).
 *
 * Nothing is remembered between rounds: what was not given up is found again.
 */
import { errorText, HopError, type KeyRange, limits, type Rejection, type RunId, runPartition, type ShardId } from "#core/base";
import type { Entry } from "#core/placement";
import { type RetentionPolicy, retentionOf } from "#core/policy";
import type { DueHistory } from "#core/shard";
import type { RunQuery, RunRow } from "#store";
import type { Replicas } from "../replica/replicas.ts";
import { Rounds } from "../rounds.ts";
import type { Note } from "../shard/shard-host.ts";
import { breath, type Timing } from "../timing.ts";

/** A shard that is led here, whose log is sealed. */
export interface ExpirableShard {
  readonly shard: ShardId;
  readonly range: KeyRange;
  expire(due: readonly DueHistory[]): Rejection | undefined;
  lastIndex(): number;
}

export interface RetentionParts {
  readonly timing: Timing;
  readonly note: Note;
  /** Between two looks. */
  readonly lookMs: number;
  readonly runs: Pick<RunQuery, "ended" | "show" | "hasExpired">;
  readonly namespaces: () => Iterable<Entry>;
  readonly shards: () => Iterable<ExpirableShard>;
  readonly isReady: () => boolean;
  /** Told that histories expired, by events in a shard's log through an index. */
  readonly expired: (shard: ShardId, index: number) => void;
}

/** Of one policy and shard, in one round: a history costs a record of some hundred bytes. */
const pagesMax = 400;

export class Retention {
  private readonly parts: RetentionParts;
  private readonly rounds: Rounds;

  constructor(parts: RetentionParts) {
    this.parts = parts;
    const { timing, lookMs, isReady } = parts;
    this.rounds = new Rounds({ timing, everyMs: lookMs, round: () => (isReady() ? this.round() : undefined) });
  }

  start(): void {
    this.rounds.start();
  }

  stop(): void {
    this.rounds.stop();
  }

  /** One look at every policy. What fails is told, and tried again with the next one. */
  async round(): Promise<void> {
    for (const entry of [...this.parts.namespaces()]) {
      const policy = policyOf(entry);
      if (policy === undefined) continue;
      for (const shard of [...this.parts.shards()]) await this.attempt(shard, entry, policy);
    }
  }

  private async attempt(shard: ExpirableShard, entry: Entry, policy: RetentionPolicy): Promise<void> {
    try {
      for (const [type, retentionMs] of policy.types)
        if (retentionMs !== undefined) await this.expire(shard, entry, { retentionMs, types: { only: type } });
      const { retentionMs } = policy;
      if (retentionMs !== undefined) await this.expire(shard, entry, { retentionMs, types: { except: [...policy.types.keys()] } });
    } catch (error) {
      this.parts.note("warn", "histories not expired, and tried again", {
        shard: shard.shard,
        namespace: entry.name,
        reason: errorText(error),
      });
    }
  }

  private async expire(shard: ExpirableShard, entry: Entry, { retentionMs, types }: Rule): Promise<void> {
    const { runs, timing } = this.parts;
    const wanted = { namespace: entry.name, beforeMs: timing.wallMs() - retentionMs, ranges: [shard.range], types };
    let after: RunRow | undefined;
    for (let page = 0; page < pagesMax && !this.rounds.isStopped; page++) {
      const rows = runs.ended({ ...wanted, after, limit: limits.expiredRunsMax });
      if (rows.length === 0) return;
      const before = shard.lastIndex();
      const refused = shard.expire(rows.map((row) => this.due(row, entry, retentionMs)));
      if (refused !== undefined) throw HopError.from(refused);
      if (shard.lastIndex() > before) this.parts.expired(shard.shard, shard.lastIndex());
      after = rows.at(-1);
      await breath(timing);
    }
  }

  private due({ run, generation }: RunRow, entry: Entry, retentionMs: number): DueHistory {
    const earlier = generation === 1 ? [] : this.parts.runs.show(run as RunId).filter((row) => row.expiredMs === 0 && row.closedMs > 0);
    return {
      partition: runPartition(run as RunId),
      generation,
      earlier: earlier.reverse(),
      retentionMs,
      policy: entry.name,
      policyVersion: entry.version,
      policyIdentity: entry.identity,
    };
  }
}

interface Rule {
  readonly retentionMs: number;
  readonly types: { readonly only: string } | { readonly except: readonly string[] };
}

const policyOf = ({ value }: Entry): RetentionPolicy | undefined => {
  const policy = retentionOf(value, (bytes) => new TextDecoder().decode(bytes));
  // Of one that was set before anybody looked at it, and is none.
  return "problem" in policy ? undefined : policy;
};

/** The shards that are led here. */
export function* expirableShards(replicas: Replicas): Generator<ExpirableShard> {
  for (const { host, shard, replica } of replicas.all()) {
    if (host === undefined) continue;
    const { first, last, manifest } = replica.machine.header();
    // Where nothing is sealed, nothing can be removed.
    if (manifest === 0) continue;
    yield {
      shard,
      range: { first, last },
      expire: (due) => host.change((own, nowMs) => own.expire(due, nowMs)),
      lastIndex: () => replica.machine.lastIndex,
    };
  }
}
