/**
 * Runs one seed: a cluster comes up, then a phase in which work arrives and faults strike, then
 * one in which everything is well again and all that was accepted must come to its end.
 */
import { asNodeId, placementShard, type RunId } from "#core/base";
import type { StartRequest } from "#core/run";
import { EventKind as Kind } from "#proto";
import { beginChannels } from "./channels.ts";
import type { ClientReply, SimulatedClient } from "./client.ts";
import { heal } from "./healing.ts";
import { bundles, channelOf, codeOf, keyedOf, sagaOf, signalNames, streamOf, typeOf } from "./program.ts";
import { beginSchedules } from "./schedules.ts";
import { Simulation, type SimulationOptions } from "./simulation.ts";
import { askPlacement, one, repeat } from "./strikes.ts";
import { takeRaised, Violation } from "./violation.ts";
import type { Fault, Workload } from "./workload.ts";

export interface Report {
  readonly seed: number;
  readonly nodes: number;
  readonly hash: number;
  readonly events: number;
  readonly steps: number;
  /** Milliseconds of virtual time, without those that were skipped. */
  readonly simulatedMs: number;
  readonly runs: number;
  readonly lives: number;
  readonly messages: number;
  /** Of clients. */
  readonly requests: number;
  readonly fired: ReadonlyMap<Fault, number>;
  /** What was broken, or undefined. */
  readonly failure: { readonly invariant: string; readonly message: string; readonly atMs: number; readonly step: number } | undefined;
}

const [bundle, second] = bundles;

export function simulate(seed: number, options: SimulationOptions = {}): Report {
  const sim = new Simulation(seed, options);
  let failure: Report["failure"];
  // Refusals are thrown by the thousand, and nobody looks at where they come from.
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = options.isVerbose === true ? stackTraceLimit : 0;
  try {
    comeUp(sim);
    const untilMs = sim.schedule.nowMs + sim.workload.faultMs;
    begin(sim);
    sim.runUntil(untilMs);
    heal(sim);
  } catch (thrown) {
    const error = takeRaised() ?? thrown;
    const invariant = error instanceof Violation ? error.invariant : error instanceof Error ? error.name : "unknown";
    const message = error instanceof Violation ? error.message : error instanceof Error ? (error.stack ?? error.message) : String(error);
    failure = { invariant, message, atMs: sim.schedule.nowMs, step: sim.schedule.steps };
  }
  Error.stackTraceLimit = stackTraceLimit;
  let runs = 0;
  for (const { events } of sim.journal.partitions.values()) runs += events.filter((e) => e.kind === Kind.runStarted).length;
  const { signals, results } = sim.journal.messages.counts;
  const { spawned } = sim.journal.children.counts;
  return {
    seed,
    nodes: sim.workload.nodes,
    hash: (sim.journal.hash ^ Math.imul(sim.hash, 31) ^ sim.schedule.steps) >>> 0,
    events: sim.journal.eventCount,
    steps: sim.schedule.steps,
    simulatedMs: sim.schedule.nowMs - sim.schedule.skippedMs,
    runs,
    lives: sim.lives,
    messages: signals + results + spawned,
    requests: sim.requests,
    fired: sim.fired,
    failure,
  };
}

const comeUpMsMax = 60_000;

/** One node founds the cluster, the others join it, and every group gets its replicas. */
export function comeUp(sim: Simulation): void {
  const { nodes, replication } = sim.workload;
  sim.startNode(asNodeId(1), sim.newMachine(), true);
  reach(sim, "the first node leads", () => sim.view()?.clusterId === "sim" && sim.placementLeader() !== undefined);
  for (let i = 2; i <= nodes; i++) {
    const machine = sim.newMachine(`10.0.0.${i}`);
    askPlacement(sim, { kind: "join", info: machine.info() }, (reply) => {
      if (reply?.kind === "joined") sim.startNode(reply.node, machine);
    });
  }
  const wanted = Math.min(nodes, replication);
  const isWhole = () => {
    const view = sim.view();
    if (view?.placement === undefined) return false;
    return [view.placement, ...view.shards.values()].every(
      (entry) =>
        entry.voters.length === (entry.shard === placementShard ? Math.min(nodes, 5, Math.max(wanted, entry.voters.length)) : wanted) &&
        entry.outgoing.length === 0,
    );
  };
  reach(sim, "all groups have their replicas", isWhole);
}

export function reach(sim: Simulation, what: string, isReached: () => boolean, withinMs = comeUpMsMax): void {
  const endMs = sim.schedule.nowMs + withinMs;
  while (!isReached()) {
    if (sim.schedule.nowMs > endMs)
      throw new Violation(
        "comesUp",
        `not reached within ${withinMs} ms: ${what}: ${JSON.stringify([...(sim.view()?.shards.values() ?? [])])}`,
      );
    sim.runUntil(sim.schedule.nowMs + 20);
  }
}

function begin(sim: Simulation): void {
  const { prng, schedule, workload } = sim;
  if (workload.schedules) deployAll(sim);
  sim.begin();
  if (workload.schedules) beginSchedules(sim);
  if (workload.channels) beginChannels(sim);
  for (const worker of sim.workers) schedule.after(prng.below(300), () => worker.connect());
  for (const client of sim.clients) schedule.after(prng.below(100), () => client.connect());
  for (let i = 0; i < workload.starts; i++) schedule.after(prng.fraction() * workload.faultMs * 0.9, () => startSomething(sim));
  for (const [fault, meanMs] of workload.timed) repeat(sim, fault, meanMs);
  impatience(sim);
  if (workload.nodes > 1) compare(sim);
}

/** What a schedule starts runs on code that is deployed. */
function deployAll(sim: Simulation): void {
  const deploy = { bundle, size: codeOf(bundle).length, types: sim.workload.programs.map((program) => typeOf(program)) };
  askPlacement(sim, { kind: "deploy", namespace: "default", deploy });
  reach(sim, "code is deployed", () => (sim.view()?.deployments.get("default")?.version ?? 0) > 0);
}

/** Clients turn away from a node that keeps them waiting. */
function impatience(sim: Simulation): void {
  sim.schedule.after(500 + sim.prng.below(500), () => {
    for (const client of sim.clients) client.losePatience(2000 + sim.prng.below(6000));
    impatience(sim);
  });
}

function compare(sim: Simulation): void {
  sim.schedule.after(5000 + sim.prng.below(10_000), () => {
    sim.compareReplicas();
    if (sim.isFaulty) compare(sim);
  });
}

/** One start, and what its client goes on to do with the run. */
function startSomething(sim: Simulation): void {
  const { prng, workload } = sim;
  const client = one(sim, sim.clients) as SimulatedClient;
  const program = one(sim, workload.programs) as number;
  const type = typeFor(workload, program);
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
      ...(workload.contends ? contending(sim) : {}),
      deadlineMs: prng.chance(0.1) ? 500 + prng.below(20_000) : 0,
      // Asked again, it would be another run.
      awaitResult: instance !== "" && prng.chance(0.25),
    },
    { isUnnamed: instance === "", onReply: (reply) => onStarted(sim, client, reply) },
  );
}

function typeFor(workload: Workload, program: number): string {
  const type = plainTypeFor(workload, program);
  return workload.keys && program % 5 > 0 ? keyedOf(type) : type;
}

function plainTypeFor({ undoes, streams, spawns, channels }: Workload, program: number): string {
  if (channels && program % 5 > 1) return channelOf(program);
  if (undoes && program % 3 > 0) return sagaOf(program);
  return streams && program % 4 > 0 ? streamOf(program) : typeOf(program, spawns);
}

/** What a start does where its name is live, and how long it waits. */
function contending({ prng }: Simulation): Pick<StartRequest, "contention" | "budgetMs" | "overrideReason"> {
  const draw = prng.below(10);
  if (draw < 1) return { contention: "supersede", overrideReason: `it is stuck ${prng.below(100)}`, budgetMs: 0 };
  const budgetMs = prng.chance(0.5) ? 1 + prng.below(prng.chance(0.3) ? 200_000 : 5000) : 0;
  return { contention: draw < 6 ? "queue" : draw < 9 ? "attach" : "reject", budgetMs, overrideReason: "" };
}

/** Some read what the run yields: at once, or later. */
function consumers(sim: Simulation, run: RunId): void {
  const { prng, schedule } = sim;
  for (let i = prng.below(3); i > 0; i--) {
    const reader = one(sim, sim.clients) as SimulatedClient;
    const ms = prng.below(prng.chance(0.5) ? 100 : 20_000);
    schedule.after(ms, () => sim.isFaulty && reader.ask({ kind: "consume", run, generation: 0 }));
  }
}

/** An operator holds the run, and perhaps lets it go on later. */
function hold(sim: Simulation, client: SimulatedClient, to: { readonly run: RunId; readonly ticket: number }): void {
  client.ask({ kind: "pause", ...to, reason: "a vendor is down" });
  const isLetGo = sim.prng.chance(0.8);
  const ms = sim.prng.below(sim.prng.chance(0.5) ? 500 : 20_000);
  if (isLetGo) sim.schedule.after(ms, () => client.ask({ kind: "unpause", ...to, reason: "it is up" }));
}

function onStarted(sim: Simulation, client: SimulatedClient, reply: ClientReply): void {
  if (reply.kind !== "started") return;
  const { prng, schedule } = sim;
  const { run, ticket = 0 } = reply;
  const to = { run, ticket };
  const later = (act: () => void) => schedule.after(prng.below(prng.chance(0.5) ? 200 : 8000), () => sim.isFaulty && act());
  for (let i = prng.below(6); i > 0; i--) later(() => client.signal(run, one(sim, signalNames) as string, ticket));
  for (let i = prng.below(3); i > 0; i--) later(() => client.ask({ kind: "query", ...to, name: "state", input: undefined }));
  for (let i = prng.below(4); i > 0; i--) later(() => (one(sim, sim.clients) as SimulatedClient).ask({ kind: "describe", run }));
  if (prng.chance(0.2)) later(() => client.ask({ kind: "history", run }));
  if (prng.chance(0.5)) later(() => client.ask({ kind: "await-result", ...to }));
  if (sim.workload.streams) consumers(sim, run);
  if (prng.chance(0.2)) later(() => client.ask({ kind: "cancel", ...to, reason: "not needed" }));
  if (prng.chance(0.08)) later(() => client.ask({ kind: "terminate", ...to, reason: "wrong" }));
  if (sim.workload.pauses && prng.chance(0.3)) later(() => hold(sim, client, to));
  if (prng.chance(0.1)) later(() => client.ask({ kind: "resume", ...to, bundle: prng.chance(0.5) ? second : new Uint8Array(0) }));
}
