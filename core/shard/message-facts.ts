/**
 * What messages between partitions leave in the log beside events: appended by the leader, folded
 * in by every other replica.
 *
 * A record's facts are folded before its events, and either order gives the same state: a number
 * taken by an event only raises what the facts say.
 */
import { assert, type Partition } from "#core/base";
import { applyForgotten, applySettled, applyTaken } from "#core/run";
import {
  type Envelope,
  encodeInboxForgotten,
  encodeInboxTaken,
  encodeOutboxSettled,
  type InboxForgotten,
  type InboxTaken,
  type Record as LogRecord,
  type Message,
  type OutboxSettled,
} from "#proto";
import type { ShardContext } from "./context.ts";
import type { LiveRun } from "./live-run.ts";

/** Fields of `Record`. */
const field = { taken: 8, settled: 9, forgotten: 10 } as const;

/** What is told of a message that was taken without an event. */
type ToldOfTaken = Pick<InboxTaken, "refusal"> & Partial<Pick<InboxTaken, "of" | "offset" | "count" | "lingerMs">>;

export function recordTaken(
  ctx: ShardContext,
  live: LiveRun,
  { from, settled }: Pick<Envelope, "from" | "settled">,
  { number, kind, op, generation }: Pick<Message, "number" | "kind" | "op" | "generation">,
  told: ToldOfTaken,
): void {
  const blank = { of: 0, offset: 0, count: 0, lingerMs: 0 };
  const fact: InboxTaken = { partition: live.partition, sender: from, number, settled, kind, op, generation, ...blank, ...told };
  ctx.appendFact(live, field.taken, encodeInboxTaken, fact);
  applyTaken(live.run, fact);
}

export function settleFact(ctx: ShardContext, live: LiveRun, fact: OutboxSettled): void {
  ctx.appendFact(live, field.settled, encodeOutboxSettled, fact);
  applySettled(live.run, fact);
}

export function forgetFact(ctx: ShardContext, live: LiveRun, fact: InboxForgotten): void {
  ctx.clock.witness({ timeMs: fact.timeMs, logical: 0 });
  ctx.appendFact(live, field.forgotten, encodeInboxForgotten, fact);
  applyForgotten(live.run, fact);
}

type Facts = Pick<LogRecord, "taken" | "settled" | "forgotten">;

/** Folds a record's facts in. Returns the runs that they changed. */
export function recoverFacts(ctx: ShardContext, index: number, { taken, settled, forgotten }: Facts): LiveRun[] {
  for (const fact of forgotten) ctx.clock.witness({ timeMs: fact.timeMs, logical: 0 });
  if (taken.length + settled.length + forgotten.length === 0) return [];
  const changed = new Set<LiveRun>();
  const each = <T extends { readonly partition: string }>(facts: readonly T[], apply: (live: LiveRun, fact: T) => void) => {
    for (const fact of facts) {
      const partition = fact.partition as Partition;
      if (!ctx.owns(partition)) {
        assert(index <= ctx.headerIndex, `record ${index} of shard ${ctx.options.shard} tells of its own: got ${partition}`);
        continue;
      }
      const live = ctx.findOrCreate(partition);
      // Its saved state has all of this record.
      if (live.appliedIndex >= index) continue;
      apply(live, fact);
      changed.add(live);
    }
  };
  each(taken, (live, fact) => applyTaken(live.run, fact));
  each(settled, (live, fact) => applySettled(live.run, fact));
  each(forgotten, (live, fact) => applyForgotten(live.run, fact));
  return [...changed];
}
