/** What must hold once everything is well again: nothing that was accepted hangs. */
import type { RunId } from "#core/base";
import { EventKind as Kind } from "#proto";
import type { Journal } from "../journal.ts";
import type { RunModel } from "../model.ts";
import type { Simulation } from "../simulation.ts";
import { claim } from "../violation.ts";

/** What a live run can't give itself: a resumption, or a signal. */
export interface Need {
  readonly key: string;
  readonly run: RunId;
  /** Undefined = it is blocked. */
  readonly signal: string | undefined;
}

/** Counts live runs, says what each needs from outside, and when the next of them is due. */
export function healingNeeds(journal: Journal, tell: (need: Need) => void): { live: number; nextDueMs: number } {
  let live = 0;
  let nextDueMs = Number.POSITIVE_INFINITY;
  for (const { partition, model } of journal.partitions.values()) {
    if (!model.isLive) continue;
    live++;
    const run = partition.slice(4) as RunId;
    if (model.blocked !== undefined) tell({ key: `${partition} ${model.blocked.seq}`, run, signal: undefined });
    for (const o of model.ops.values()) {
      if (o.closedBy === 0 && o.opened.kind === Kind.signalAwaited) tell({ key: `${partition} ${o.opened.seq}`, run, signal: o.name });
    }
    nextDueMs = Math.min(nextDueMs, dueOf(model));
  }
  return { live, nextDueMs };
}

function dueOf(model: RunModel): number {
  let due = model.deadlineAtMs || Number.POSITIVE_INFINITY;
  for (const o of model.ops.values()) {
    if (o.closedBy !== 0) continue;
    if (o.opened.kind === Kind.timerStarted || o.attempt > 1) due = Math.min(due, o.dueMs);
  }
  return due;
}

/** Bound on a healing that makes events but comes to no end, in rounds of half a second. */
const roundsMax = 4000;
const idleMsMax = 60_000;

/** Every accepted run ends within 60 s of what its timers need. */
export function endsInTime(sim: Simulation, at: { idleMs: number; waitMs: number; round: number; live: number }): void {
  claim("endsInTime", at.live > 0 || at.idleMs < idleMsMax, () => `requests are never answered: ${openCalls(sim)}`);
  const told = () => `${at.live} runs live after ${at.round} rounds, idle for ${at.idleMs} ms, next due in ${at.waitMs} ms: ${lively(sim)}`;
  claim("endsInTime", at.round < roundsMax, told);
  claim("endsInTime", at.idleMs < idleMsMax || (at.waitMs > 40_000 && at.waitMs < Number.POSITIVE_INFINITY), told);
}

function lively(sim: Simulation): string {
  const live = [...sim.journal.partitions.values()].filter((p) => p.model.isLive).slice(0, 3);
  return live
    .map(({ partition, model }) => {
      const open = [...model.ops.values()]
        .filter((o) => o.closedBy === 0)
        .map((o) => `${o.op} ${o.name || "timer"} ${o.attempt}.${o.delivery} due ${o.dueMs}`);
      return `${partition} #${model.generation}${model.blocked === undefined ? "" : " blocked"} [${open.join("; ")}]`;
    })
    .join(", ");
}

const openCalls = (sim: Simulation) =>
  sim.clients
    .flatMap((c) => c.openCalls.map((call) => `${c.name} ${call.command.kind} ${call.command.run}`))
    .slice(0, 5)
    .join(", ");
