/** Object storage that is away for an hour of virtual time: what goes on meanwhile, and that all of it is sealed afterwards. */

import { expect, test } from "bun:test";
import { status } from "@grpc/grpc-js";
import { HopError, type Rejection, type Reply, type RunId } from "#core/base";
import type { Command } from "#core/shard";
import type { Identity } from "#proto";
import { fromStatus, toStatus } from "../../node/service/status.ts";
import { newestManifest } from "./check/sealed.ts";
import { heal } from "./healing.ts";
import { bundles, type Node, programOf, typeOf } from "./program.ts";
import { Simulation } from "./simulation.ts";
import { comeUp, reach } from "./simulator.ts";
import { one } from "./strikes.ts";

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
/** Of each shard: the bound of the hot tail is reached after some minutes of the outage. */
const tailBytesMax = 150_000;
const everyMs = 3000;
const identity: Identity = { issuer: "local", subject: "producer", verified: false, causeSeq: 0 };

const kindsOf = (node: Node): string[] => [node.kind, ...("of" in node ? node.of.flatMap(kindsOf) : [])];
const types = Array.from({ length: 400 }, (_, i) => typeOf(i));
/** Runs that come to their end by themselves. */
const working = types.filter((type) => kindsOf(programOf(type)).every((kind) => kind === "activity" || kind === "seq")).slice(0, 8);
const waiting = types.find((type) => kindsOf(programOf(type))[1] === "signal") as string;

/** Starts runs, one after the other: the next one after a while, or the same again when a refusal says so. */
class Producer {
  readonly acceptedMs: number[] = [];
  readonly refused: { readonly atMs: number; readonly rejection: Rejection }[] = [];
  private readonly sim: Simulation;
  private made = 0;

  constructor(sim: Simulation) {
    this.sim = sim;
  }

  next(): void {
    const type = working[this.made % working.length] as string;
    this.start(type, `order-${++this.made}`);
  }

  private start(type: string, name: string): void {
    const { sim } = this;
    ask(sim, startOf(type, name), (reply) => {
      if (reply.kind === "started") {
        this.acceptedMs.push(sim.schedule.nowMs);
        sim.schedule.after(everyMs, () => this.next());
      } else if (reply.kind === "rejected" && reply.rejection.reject === "BUFFER_FULL") {
        this.refused.push({ atMs: sim.schedule.nowMs, rejection: reply.rejection });
        sim.schedule.after(reply.rejection.retryAfterMs ?? 0, () => this.start(type, name));
      } else throw new Error(`${name} is answered ${JSON.stringify(reply)}`);
    });
  }
}

type StartCommand = Extract<Command, { kind: "start" }>;

const startOf = (type: string, name: string): StartCommand => ({
  kind: "start",
  run: `default:${name}` as RunId,
  type,
  bundle: bundles[0],
  input: { data: new Uint8Array(200).fill(65), ref: undefined },
  contention: "attach",
  idempotencyKey: "",
  deadlineMs: 0,
  awaitResult: false,
});

/** As a service asks the router of some node. */
function ask(sim: Simulation, command: Command, done: (reply: Reply) => void): void {
  const node = one(sim, [...sim.nodes.values()]);
  node?.take(() => node.router.command({ identity, epoch: 0, budgetMs: 6000 }, command, done));
}

function answer(sim: Simulation, command: Command): Reply {
  let answered: Reply | undefined;
  ask(sim, command, (reply) => {
    answered = reply;
  });
  reach(sim, `an answer to ${command.kind}`, () => answered !== undefined);
  return answered as unknown as Reply;
}

/** Records of the shard that are not sealed, and those that its leader's log has. */
function tailOf(sim: Simulation) {
  const [shard] = sim.view()?.shards.keys() ?? [];
  const node = shard === undefined ? undefined : sim.leaderOf(shard);
  if (shard === undefined || node === undefined) throw new Error("nobody leads");
  const last = sim.journal.lastIndex(shard);
  return { unsealed: last - (newestManifest(sim, shard)?.through ?? 0), kept: last - node.log.released(shard) };
}

test("an hour without object storage stops nothing until the tail is full, then what brings work; afterwards all of it is sealed", () => {
  const sim = new Simulation(11, {
    workload: {
      nodes: 3,
      replication: 3,
      clients: 1,
      workers: 2,
      timed: new Map(),
      chances: new Map(),
      driftPpm: 0,
      offsetMs: 0,
      hasReference: true,
      sealing: { bytesMax: 20_000, ageMsMax: 10_000, keptBytes: 0, hotTailBytesMax: tailBytesMax, lookMs: 1000 },
    },
  });
  comeUp(sim);
  for (const worker of sim.workers) worker.connect();
  const { schedule } = sim;
  const waiters = [1, 2].map((i) => startOf(waiting, `waiter-${i}`));
  for (const waiter of waiters) expect(answer(sim, waiter)).toMatchObject({ kind: "started" });
  const producer = new Producer(sim);
  producer.next();
  sim.runUntil(schedule.nowMs + 3 * minuteMs);
  const before = tailOf(sim);
  expect(producer.refused).toEqual([]);

  const begunMs = schedule.nowMs;
  sim.cold.isOut = true;
  reach(sim, "a producer is refused", () => producer.refused.length > 0, hourMs);
  const fullMs = schedule.nowMs;
  const full = tailOf(sim);
  expect(fullMs - begunMs).toBeGreaterThan(2 * minuteMs);
  expect(producer.acceptedMs.filter((atMs) => atMs > begunMs + minuteMs).length).toBeGreaterThan(20);
  const refusal = producer.refused[0]?.rejection as Rejection;
  expect(refusal).toMatchObject({ reject: "BUFFER_FULL", retryAfterMs: 1000 });
  expect(refusal.message).toContain("it goes on by itself when object storage answers again");
  const wire = toStatus(HopError.from(refusal));
  expect([wire.code, fromStatus(wire as never).retryAfterMs]).toEqual([status.RESOURCE_EXHAUSTED, 1000]);

  // What is there already goes on; what ends a run is taken, and what brings work to it is not.
  sim.runUntil(schedule.nowMs + 10 * minuteMs);
  const payload = { data: new Uint8Array(0), ref: undefined };
  const [first, second] = waiters as [StartCommand, StartCommand];
  expect(answer(sim, { kind: "signal", run: first.run, name: "s0", payload, id: "" })).toMatchObject({
    kind: "rejected",
    rejection: { reject: "BUFFER_FULL", retryAfterMs: 1000 },
  });
  expect(answer(sim, { kind: "terminate", run: second.run, reason: "not wanted" })).not.toMatchObject({ kind: "rejected" });
  sim.runUntil(begunMs + hourMs);
  expect(producer.acceptedMs.filter((atMs) => atMs > fullMs + minuteMs)).toEqual([]);
  expect(producer.refused.length).toBeGreaterThan(2000);
  expect(tailOf(sim).unsealed).toBeGreaterThan(0.9 * full.unsealed);

  sim.cold.isOut = false;
  const backMs = schedule.nowMs;
  reach(sim, "a producer is taken again", () => (producer.acceptedMs.at(-1) ?? 0) > backMs, 5 * minuteMs);
  reach(sim, "the tail is what it was", () => tailOf(sim).unsealed <= 2 * before.unsealed + 50, 3 * minuteMs);
  // States are uploaded when the records behind them have grown to their size, and the log is kept up to there.
  reach(sim, "the log is forgotten", () => tailOf(sim).kept < full.kept / 3, 10 * minuteMs);
  // Every replica has all of it, its histories verify, and what is sealed is what was committed, byte for byte.
  heal(sim);
}, 300_000);
