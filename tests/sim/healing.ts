/**
 * Everything is well again: every node is back, the wires bring everything. An operator resumes
 * what is blocked, sends what is waited for, and ends what waits for itself. All that was accepted
 * has to come to its end, every message to be settled, every change of the cluster to be done.
 */
import type { Partition, ShardId } from "#core/base";
import { isSettled } from "#core/placement";
import { channelAsk } from "./channels.ts";
import { archivesAreSealed } from "./check/archives.ts";
import { changesDone, endsInTime, healingNeeds, type Need } from "./check/liveness.ts";
import { historiesVerify, noAckedEventLost } from "./check/recovery.ts";
import { checkReplicas, logsAreEqual } from "./check/replicas.ts";
import { sealedIsCommitted } from "./check/sealed.ts";
import { eachKeyOwnedOnce } from "./check/shards.ts";
import { SimulatedClient } from "./client.ts";
import { scheduleAsk } from "./schedules.ts";
import type { Simulation } from "./simulation.ts";

const roundMs = 500;

export function heal(sim: Simulation): void {
  const { schedule, journal } = sim;
  sim.note(() => "healing");
  sim.calmDown();
  const operator = new SimulatedClient(sim, "operator");
  const asked = new Map<string, number>();
  operator.connect();
  let seen = -1;
  let idleMs = 0;
  for (let round = 0; ; round++) {
    sim.runUntil(schedule.nowMs + roundMs);
    idleMs = journal.eventCount === seen ? idleMs + roundMs : 0;
    seen = journal.eventCount;
    const own = sim.clients.reduce((sum, c) => sum + c.openCalls.length, 0);
    const open = own + operator.openCalls.length;
    const needs = healingNeeds(journal, idleMs >= 4000);
    for (const need of needs.needs) tend(operator, need, asked, schedule.nowMs);
    const { live, nextDueMs } = needs;
    if (live === 0 && open === 0 && !journal.messages.isOpen && !journal.children.isOpen && isCalm(sim)) break;
    const waitMs = nextDueMs - sim.clockFloor();
    endsInTime(sim, { idleMs, waitMs, round, live, open, operator });
    if (idleMs < 3000 || waitMs < 40_000 || waitMs === Number.POSITIVE_INFINITY || operator.openCalls.length > 0) continue;
    skip(sim, waitMs - 25_000);
    idleMs = 0;
  }
  checkEnd(sim);
}

/** Every node is back and follows, and nothing that is wanted is still to be done. */
function isCalm(sim: Simulation): boolean {
  const view = sim.view();
  if (view?.placement === undefined || changesDone(sim, view) !== undefined) return false;
  for (const node of sim.nodes.values())
    for (const { shard, replica, group } of node.replicas.all())
      if (!replica.isWhole || replica.appliedIndex !== sim.journal.lastIndex(shard) || group.lastIndex !== group.commitIndex) return false;
  for (const shard of view.shards.keys()) if (sim.leaderOf(shard) === undefined) return false;
  return [view.placement, ...view.shards.values()].every(isSettled);
}

function tend(operator: SimulatedClient, need: Need, asked: Map<string, number>, nowMs: number): void {
  if (nowMs - (asked.get(need.key) ?? Number.NEGATIVE_INFINITY) < 2000) return;
  asked.set(need.key, nowMs);
  const { run } = need;
  if (need.kind === "signal") operator.signal(run, need.signal);
  else if (need.kind === "cancel") operator.ask({ kind: "cancel", run, ticket: need.ticket, reason: "too many wait" });
  else if (need.kind === "delete") operator.ask(scheduleAsk(run, { kind: "delete", value: { reason: "all is done" } }));
  else if (need.kind === "close") operator.ask(channelAsk(run, { kind: "close", value: { reason: "all is done" } }));
  else if (need.kind === "unpause") operator.ask({ kind: "unpause", run, reason: "all is well" });
  else if (need.kind === "resume") operator.ask({ kind: "resume", run, bundle: new Uint8Array(0) });
  else operator.ask({ kind: "terminate", run, reason: "it waits for itself" });
}

/** Nothing will happen for long: all machines sleep meanwhile. */
function skip(sim: Simulation, ms: number): void {
  sim.note(() => `skips ${ms} ms`);
  sim.schedule.skip(ms);
}

/** Everything once more, from the bytes alone. */
function checkEnd(sim: Simulation): void {
  const { journal } = sim;
  noAckedEventLost(journal, sim.acked);
  journal.messages.checkEnd();
  journal.schedules.checkEnd();
  journal.children.checkEnd();
  journal.keys.checkEnd();
  eachKeyOwnedOnce([...journal.shards.values()].map((each) => each.record));
  checkReplicas(sim, { isAll: true });
  logsAreEqual(sim);
  archivesAreSealed(sim);
  sealedIsCommitted(sim);
  historiesVerify(journal, (partition) => headOf(sim, partition));
}

function headOf(sim: Simulation, partition: Partition) {
  for (const node of sim.nodes.values())
    for (const shard of node.hosted.ledShards()) {
      const host = node.hosted.led(shard as ShardId);
      if (host?.owns(partition)) return node.replicas.get(shard)?.replica.machine.describe(partition);
    }
  return undefined;
}
