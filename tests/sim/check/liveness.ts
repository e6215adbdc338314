/** What must hold once everything is well again: nothing that was accepted hangs. */
import { isChannel, isSchedule, type Partition, type RunId, runOf } from "#core/base";
import { type ClusterView, isSettled } from "#core/placement";
import { EventKind as Kind } from "#proto";
import type { SimulatedClient } from "../client.ts";
import type { Journal } from "../journal.ts";
import type { RunModel } from "../model.ts";
import type { Simulation } from "../simulation.ts";
import { claim } from "../violation.ts";

/** What a live run can't give itself. */
export type Need = { readonly key: string; readonly run: RunId } & (
  | { readonly kind: "resume" | "unpause" | "terminate" | "delete" | "close" }
  | { readonly kind: "signal"; readonly signal: string }
  | { readonly kind: "cancel"; readonly ticket: number }
);

interface Needs {
  readonly live: number;
  /** When the next live run is due, in milliseconds since 1970. */
  readonly nextDueMs: number;
  readonly needs: readonly Need[];
}

/** Starts of one name that are left to wait for their turn while all heals. */
const queuedMax = 3;

/** Counts live runs, and says what each needs from outside. Where nothing happens any more, runs may wait for each other in a circle. */
export function healingNeeds(journal: Journal, isIdle: boolean): Needs {
  let live = 0;
  let nextDueMs = Number.POSITIVE_INFINITY;
  const needs: Need[] = [];
  const waiting: Need[] = [];
  for (const { partition, model } of journal.partitions.values()) {
    if (!model.isLive) continue;
    live++;
    const run = runOf(partition as Partition);
    if (isSchedule(partition)) needs.push({ key: partition, run, kind: "delete" });
    // Whoever reads is told that no more comes; one that reads later opens it anew.
    if (isChannel(partition)) needs.push({ key: `${partition} ${model.started?.seq}`, run, kind: "close" });
    if (model.blocked !== undefined) needs.push({ key: `${partition} ${model.blocked.seq}`, run, kind: "resume" });
    if (model.paused !== undefined) needs.push({ key: `${partition} ${model.paused.seq}`, run, kind: "unpause" });
    // They come one after the other, and some sleep for years.
    for (const { ticket } of model.queue.slice(queuedMax)) needs.push({ key: `${partition} ${ticket}`, run, kind: "cancel", ticket });
    for (const o of model.ops.values()) {
      if (o.closedBy !== 0) continue;
      const key = `${partition} ${o.opened.seq}`;
      const { event } = o.opened;
      if (event.kind === Kind.signalAwaited) needs.push({ key, run, kind: "signal", signal: o.name });
      if (event.kind === Kind.resultAwaited && journal.of(`run/${event.body.to}`).model.isLive)
        waiting.push({ key, run, kind: "terminate" });
    }
    nextDueMs = Math.min(nextDueMs, dueOf(model));
  }
  const [first] = waiting;
  if (isIdle && needs.length === 0 && first !== undefined && nextDueMs === Number.POSITIVE_INFINITY) needs.push(first);
  return { live, nextDueMs, needs };
}

function dueOf(model: RunModel): number {
  let due = model.deadlineAtMs || Number.POSITIVE_INFINITY;
  for (const { expiresAtMs } of model.queue) due = Math.min(due, expiresAtMs);
  for (const o of model.ops.values()) {
    if (o.closedBy !== 0) continue;
    if (o.opened.kind === Kind.timerStarted || o.attempt > 1) due = Math.min(due, o.dueMs);
  }
  return due;
}

/** Bound on a healing that makes events but comes to no end, in rounds of half a second. */
const roundsMax = 4000;
const idleMsMax = 60_000;

/** Every accepted run ends within 60 s of what its timers need, every call is answered, every change of the cluster is done. */
export function endsInTime(
  sim: Simulation,
  at: { idleMs: number; waitMs: number; round: number; live: number; open: number; operator: SimulatedClient },
): void {
  const { live, idleMs, waitMs, round, open } = at;
  const told = () => `${live} runs live after ${round} rounds, idle for ${idleMs} ms, next due in ${waitMs} ms: ${lively(sim)}`;
  claim("endsInTime", round < roundsMax, told);
  if (idleMs < idleMsMax || (live > 0 && waitMs > 40_000 && waitMs < Number.POSITIVE_INFINITY)) return;
  claim("endsInTime", live === 0, told);
  claim("endsInTime", open === 0, () => `requests are never answered: ${openCalls([...sim.clients, at.operator])}`);
  sim.journal.children.checkEnd();
  claim("messagesSettled", !sim.journal.messages.isOpen, () => `messages stay unsettled: ${sim.journal.messages.openOnes()}`);
  const view = sim.view();
  const left = view === undefined ? "there is no view" : changesDone(sim, view);
  claim("changesEnd", false, () => `the cluster does not come to rest: ${left ?? restless(sim)}`);
}

/** What is wanted of the cluster and not done, or undefined. */
export function changesDone(sim: Simulation, view: ClusterView): string | undefined {
  const gone = [...view.nodes.values()].find((each) => each.standing !== "removed" && !sim.machines.has(each.node));
  if (gone !== undefined) return `node ${gone.node} is gone and ${gone.standing}`;
  for (const entry of [view.placement, ...view.shards.values()]) {
    if (entry === undefined) continue;
    const { shard, change, voters, wanted, learners, outgoing } = entry;
    if (change !== undefined) return `shard ${shard} has a ${change.kind} under way`;
    if (!isSettled(entry))
      return `shard ${shard} has voters ${voters.join()}, learners ${learners.join()}, outgoing ${outgoing.join()}, wanted ${wanted.join()}`;
  }
  return undefined;
}

function restless(sim: Simulation): string {
  const groups = [...sim.nodes.values()].flatMap((node) =>
    [...node.replicas.everyGroup()].map(
      (g) =>
        `${node.id}/${g.shard}: ${g.leads ? "leads " : ""}term ${g.term} commit ${g.commitIndex} of ${g.lastIndex}, applied ${node.replicas.get(g.shard)?.replica.appliedIndex}`,
    ),
  );
  return groups.join("; ");
}

function lively(sim: Simulation): string {
  const live = [...sim.journal.partitions.values()].filter((p) => p.model.isLive).slice(0, 3);
  return live
    .map(({ partition, model }) => {
      const open = [...model.ops.values()]
        .filter((o) => o.closedBy === 0)
        .map((o) => `${o.op} kind ${o.opened.kind} ${o.name} ${o.attempt}.${o.delivery} due ${o.dueMs}`);
      return `${partition} #${model.generation}${model.blocked === undefined ? "" : " blocked"} [${open.join("; ")}]`;
    })
    .join(", ");
}

const openCalls = (clients: readonly SimulatedClient[]) =>
  clients
    .flatMap((c) => c.openCalls.map((call) => `${c.name} ${call.command.kind} ${call.command.run}`))
    .slice(0, 5)
    .join(", ");
