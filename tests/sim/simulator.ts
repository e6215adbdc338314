/**
 * Runs one seed: a phase in which work arrives and faults strike, then one in which everything is
 * well again and all that was accepted must come to its end.
 */
import type { Reply, RunId } from "#core/base";
import { EventKind as Kind } from "#proto";
import { endsInTime, healingNeeds } from "./check/liveness.ts";
import { SimulatedClient } from "./client.ts";
import { exponential } from "./network.ts";
import { signalNames, typeOf } from "./program.ts";
import { Simulation, type SimulationOptions } from "./simulation.ts";
import { Violation } from "./violation.ts";
import type { Fault, TimedFault } from "./workload.ts";

export interface Report {
  readonly seed: number;
  readonly hash: number;
  readonly events: number;
  readonly steps: number;
  readonly simulatedMs: number;
  readonly runs: number;
  readonly lives: number;
  readonly fired: ReadonlyMap<Fault, number>;
  /** What was broken, or undefined. */
  readonly failure: { readonly invariant: string; readonly message: string; readonly atMs: number; readonly step: number } | undefined;
}

const bundle = new Uint8Array(32).fill(7);
const second = new Uint8Array(32).fill(8);

export function simulate(seed: number, options: SimulationOptions = {}): Report {
  const sim = new Simulation(seed, options);
  let failure: Report["failure"];
  try {
    begin(sim);
    while (sim.schedule.nextMs < sim.workload.faultMs) sim.schedule.step();
    heal(sim);
  } catch (error) {
    const invariant = error instanceof Violation ? error.invariant : error instanceof Error ? error.name : "unknown";
    const message = error instanceof Violation ? error.message : error instanceof Error ? (error.stack ?? error.message) : String(error);
    failure = { invariant, message, atMs: sim.schedule.nowMs, step: sim.schedule.steps };
  }
  let runs = 0;
  let events = 0;
  for (const { events: all } of sim.journal.partitions.values()) {
    events += all.length;
    runs += all.filter((e) => e.kind === Kind.runStarted).length;
  }
  const hash = (sim.journal.hash ^ Math.imul(sim.hash, 31) ^ sim.schedule.steps) >>> 0;
  return {
    seed,
    hash,
    events,
    steps: sim.schedule.steps,
    simulatedMs: sim.schedule.nowMs,
    runs,
    lives: sim.lives,
    fired: sim.fired,
    failure,
  };
}

function begin(sim: Simulation): void {
  const { prng, schedule, workload } = sim;
  sim.startServer();
  for (const worker of sim.workers) schedule.after(prng.below(300), () => worker.connect());
  for (const client of sim.clients) schedule.after(prng.below(100), () => client.connect());
  for (let i = 0; i < workload.starts; i++) schedule.after(prng.fraction() * workload.faultMs * 0.9, () => startSomething(sim));
  for (const [fault, meanMs] of workload.timed) repeat(sim, fault, meanMs);
}

function repeat(sim: Simulation, fault: TimedFault, meanMs: number): void {
  sim.schedule.after(exponential(sim.prng, meanMs), () => {
    if (!sim.isFaulty) return;
    strike(sim, fault);
    repeat(sim, fault, meanMs);
  });
}

const one = <T>(sim: Simulation, of: readonly T[]): T => of[sim.prng.below(of.length)] as T;

function strike(sim: Simulation, fault: TimedFault): void {
  const { prng, server, schedule } = sim;
  sim.count(fault);
  sim.note(() => `fault ${fault}`);
  switch (fault) {
    case "serverCrash":
      return sim.crashServer(fault);
    case "serverStop":
      return server?.checkpoint(10_000, () => sim.crashServer(fault));
    case "serverPause":
      return server?.pause(prng.chance(0.9) ? prng.below(1500) : prng.below(30_000));
    case "diskBroken":
      sim.disk.failure = new Error("EIO");
      return;
    case "diskFull":
      sim.disk.isFull = true;
      schedule.after(prng.below(2000), () => {
        sim.disk.isFull = false;
      });
      return;
    case "wallJump":
      sim.time.jumpedMs += one(sim, [-3_600_000, 3_600_000, -1000, 1000, -5000, 5000, 400, -400]);
      return;
    case "clientBreak":
      return one(sim, sim.clients).disconnect();
    case "workerBreak":
      return one(sim, sim.workers).disconnect();
    case "workerCrash":
      return one(sim, sim.workers).crash();
    case "workerStall":
      return one(sim, sim.workers).stall(100 + prng.below(3000));
    case "workerDrain":
      return one(sim, sim.workers).drain();
    case "guestEvict":
      return one(sim, sim.workers).evict(false);
    case "guestLoss":
      return one(sim, sim.workers).evict(true);
    case "checkpoint":
      return server?.checkpoint(1 + prng.below(prng.chance(0.5) ? 4 : 100));
    case "evictIdle":
      return server?.evictIdle();
  }
}

/** One start, and what its client goes on to do with the run. */
function startSomething(sim: Simulation): void {
  const { prng, workload } = sim;
  const client = one(sim, sim.clients);
  const type = typeOf(one(sim, workload.programs));
  const style = prng.below(10);
  const instance =
    style < 3
      ? ""
      : style < 5
        ? `wf_k${prng.below(workload.instances)}`
        : style < 7
          ? `k${prng.below(workload.instances)}`
          : `i${prng.below(workload.instances)}`;
  const isKeyed = style >= 3 && style < 7;
  const input = { data: new TextEncoder().encode(isKeyed && prng.chance(0.9) ? "same" : `${prng.below(100)}`), ref: undefined };
  client.ask(
    {
      kind: "start",
      run: `default:${instance}` as RunId,
      type,
      bundle,
      input,
      contention: prng.chance(0.7) ? "attach" : "reject",
      idempotencyKey: isKeyed ? `key ${sim.prng.below(2)} of ${instance}` : "",
      deadlineMs: prng.chance(0.1) ? 500 + prng.below(20_000) : 0,
      awaitResult: prng.chance(0.2),
    },
    { isUnnamed: instance === "", onReply: (reply) => onStarted(sim, client, reply) },
  );
}

function onStarted(sim: Simulation, client: SimulatedClient, reply: Reply): void {
  if (reply.kind !== "started") return;
  const { prng, schedule } = sim;
  const { run } = reply;
  const later = (act: () => void) => schedule.after(prng.below(prng.chance(0.5) ? 200 : 6000), () => sim.isFaulty && act());
  for (let i = prng.below(6); i > 0; i--) later(() => client.signal(run, one(sim, signalNames)));
  for (let i = prng.below(4); i > 0; i--) later(() => client.ask({ kind: "query", run, name: "state", input: undefined }));
  if (prng.chance(0.5)) later(() => client.ask({ kind: "await-result", run }));
  if (prng.chance(0.2)) later(() => client.ask({ kind: "cancel", run, reason: "not needed" }));
  if (prng.chance(0.08)) later(() => client.ask({ kind: "terminate", run, reason: "wrong" }));
  if (prng.chance(0.1)) later(() => client.ask({ kind: "resume", run, bundle: prng.chance(0.5) ? second : new Uint8Array(0) }));
}

/** Everything is well again. An operator resumes what is blocked and sends what is waited for. */
function heal(sim: Simulation): void {
  const { schedule } = sim;
  sim.note(() => "healing");
  sim.calmDown();
  const operator = new SimulatedClient(sim, "operator");
  const asked = new Map<string, number>();
  operator.connect();
  let seen = -1;
  let idleMs = 0;
  for (let round = 0; ; round++) {
    const untilMs = schedule.nowMs + 500;
    while (schedule.nextMs <= untilMs) schedule.step();
    schedule.skipTo(untilMs);
    idleMs = sim.journal.lastIndex === seen ? idleMs + 500 : 0;
    seen = sim.journal.lastIndex;
    const open = [...sim.clients, operator].reduce((sum, c) => sum + c.openCalls.length, 0);
    const { live, nextDueMs } = healingNeeds(sim.journal, (need) => tend(operator, need, asked, schedule.nowMs));
    if (live === 0 && open === 0 && sim.server !== undefined && sim.server.durableIndex === sim.journal.lastIndex) break;
    const waitMs = nextDueMs - (sim.server?.nowMs() ?? 0);
    endsInTime(sim, { idleMs, waitMs, round, live });
    if (
      idleMs < 3000 ||
      waitMs < 40_000 ||
      waitMs === Number.POSITIVE_INFINITY ||
      sim.server === undefined ||
      open > sim.clients.reduce((n, c) => n + c.openCalls.length, 0)
    )
      continue;
    skip(sim, waitMs - 25_000);
    idleMs = 0;
  }
  if (sim.server !== undefined) sim.checkEnd(sim.server);
}

function tend(
  operator: SimulatedClient,
  need: { readonly key: string; readonly run: RunId; readonly signal: string | undefined },
  asked: Map<string, number>,
  nowMs: number,
): void {
  if (nowMs - (asked.get(need.key) ?? Number.NEGATIVE_INFINITY) < 2000) return;
  asked.set(need.key, nowMs);
  if (need.signal === undefined) operator.ask({ kind: "resume", run: need.run, bundle: new Uint8Array(0) });
  else operator.signal(need.run, need.signal);
}

/** Nothing will happen for long: the machine sleeps, or is switched off meanwhile. */
function skip(sim: Simulation, ms: number): void {
  const { prng, schedule } = sim;
  sim.note(() => `skips ${ms} ms`);
  if (prng.chance(0.3)) {
    sim.server?.checkpoint(1000);
    const untilMs = schedule.nowMs + 200;
    while (schedule.nextMs <= untilMs) schedule.step();
    if (prng.chance(0.5)) {
      if (prng.chance(0.3)) sim.time.jumpedMs -= ms;
      sim.crashServer("switched off");
    } else sim.server?.evictIdle();
  }
  schedule.skipTo(schedule.nowMs + ms);
}
