import { expect, test } from "bun:test";
import { asRequestId, type Effect, type Partition, Prng, type Reply, type RunId, runPartition, schedulePartition } from "#core/base";
import { type Command, digestOf, type Input, type ShardMachine } from "#core/shard";
import {
  decodeChildEnded,
  decodeChildSpawned,
  decodeChildStarted,
  decodeEvent,
  decodeRecord,
  decodeRunStarted,
  decodeScheduleCommand,
  decodeScheduleFired,
  decodeScheduleMissed,
  EventKind,
  encodeScheduleCommand,
  fromBytes,
  InstantOutcome,
  MessageKind,
  OverlapPolicy,
  RunStatus,
  type ScheduleCommandInit,
  type ScheduleSpecInit,
  toBytes,
} from "#proto";
import { bunHasher } from "../../tests/hashers.ts";
import { lead, makeShard, RecordLog, StateTable, soleShard } from "../../tests/shard-maker.ts";

const epochMs = 1_800_000_000_000;
const id = "default:nightly" as RunId;
const partition = schedulePartition(id);
const ann = { issuer: "local", subject: "ann", verified: false, causeSeq: 0 };
const everyMs = 10_000;

/** A led shard that carries its own messages; its log is durable at once. Runs live until they are ended. */
class Lab {
  nowMs = epochMs;
  readonly log = new RecordLog();
  readonly table = new StateTable();
  readonly replies = new Map<number, Reply>();
  machine: ShardMachine;
  /** Messages leave, and do not arrive. */
  isCut = false;
  deployed = true;
  private epoch = 1;
  private requests = 0;
  /** When the machine wants a tick. */
  private armedMs = 0;

  constructor() {
    this.machine = makeShard({ log: this.log, states: this.table, idleMs: 0 });
    lead(this.machine, { nowMs: epochMs });
  }

  step(input: Input): void {
    this.take(this.machine.step(input));
  }

  take(effects: readonly Effect[]): void {
    for (const effect of effects) {
      if (effect.kind === "arm-timer") this.armedMs = effect.atMs;
      if (effect.kind === "reply") this.replies.set(effect.request, effect.reply);
      if (effect.kind === "send" && !this.isCut) this.carry(effect);
    }
  }

  private carry({ envelope, to }: Extract<Effect, { kind: "send" }>): void {
    // Whoever carries a start chooses the code.
    const message = envelope.message.map((one) =>
      one.kind === MessageKind.start && one.start !== undefined && this.deployed
        ? { ...one, start: { ...one.start, bundle: new Uint8Array(32) } }
        : one,
    );
    const request = asRequestId(++this.requests);
    this.step({ kind: "envelope", request, envelope: { ...envelope, message }, nowMs: this.nowMs });
    const reply = this.replies.get(request);
    if (reply?.kind !== "enveloped") throw new Error(`An envelope was answered with ${reply?.kind}`);
    this.step({ kind: "envelope-answered", from: envelope.from as Partition, to, answer: reply.answer, nowMs: this.nowMs });
  }

  command(command: Command): Reply | undefined {
    const request = asRequestId(++this.requests);
    this.step({ kind: "command", request, identity: ann, command, nowMs: this.nowMs });
    return this.replies.get(request);
  }

  /** The reason of a refusal, else what is answered. */
  ask(ask: ScheduleCommandInit) {
    const reply = this.command({ kind: "schedule", run: id, ask: fromBytes(decodeScheduleCommand, toBytes(encodeScheduleCommand, ask)) });
    if (reply?.kind === "rejected") return reply.rejection.reject;
    if (reply?.kind !== "scheduled") throw new Error(`A command was answered with ${reply?.kind}`);
    return reply.answer;
  }

  create(overlap: number, spec: ScheduleSpecInit = { everyMs }, catchUpMs = 60_000) {
    return this.ask({ kind: "create", value: { config: { spec, action: { type: "t" }, policy: { overlap, catchUpMs } } } });
  }

  advance(ms: number): void {
    this.nowMs += ms;
    this.tick();
  }

  /** Until nothing is due any more. */
  private tick(): void {
    do {
      this.armedMs = Number.POSITIVE_INFINITY;
      this.step({ kind: "tick", nowMs: this.nowMs });
    } while (this.armedMs <= this.nowMs);
  }

  /** Instants pass one by one. */
  pass(instants: number): void {
    for (let i = 0; i < instants; i++) this.advance(everyMs);
  }

  end(instance: string): void {
    this.command({ kind: "terminate", run: `default:${instance}` as RunId, reason: "over" });
  }

  save(): void {
    this.table.checkpoint(soleShard, this.machine);
  }

  /** The node dies: checkpoint and log make the shard anew. */
  crash(): void {
    const { machine, appliedIndex } = this.table.open(soleShard, { log: this.log, idleMs: 0 });
    this.log.feed(machine, appliedIndex + 1);
    this.machine = machine;
    this.take(lead(machine, { nowMs: this.nowMs, epoch: ++this.epoch }));
    this.tick();
  }

  events(of: Partition = partition) {
    const all = this.log.records.flatMap((body) => fromBytes(decodeRecord, body).event.map((bytes) => fromBytes(decodeEvent, bytes)));
    return all.filter((event) => event.partition === of);
  }

  started(): string[] {
    return this.events()
      .filter(({ kind }) => kind === EventKind.childSpawned)
      .map(({ payload }) => fromBytes(decodeChildSpawned, payload).to.slice("default:".length));
  }

  outcomes(): number[] {
    return this.events()
      .filter(({ kind }) => kind === EventKind.scheduleFired)
      .map(({ payload }) => fromBytes(decodeScheduleFired, payload).outcome);
  }
}

const nameAt = (n: number) => `nightly-${new Date(epochMs + n * everyMs).toISOString().replace(".000Z", "Z")}`;
const { started, waits, skipped, replaces } = InstantOutcome;

test("each instant starts a run that is named as it and attributed to the schedule", () => {
  const lab = new Lab();
  lab.create(OverlapPolicy.allowAll);
  lab.pass(3);
  expect(lab.started()).toEqual([nameAt(1), nameAt(2), nameAt(3)]);
  const [begun] = lab.events(runPartition(`default:${nameAt(2)}` as RunId));
  expect(begun?.identity).toMatchObject({ issuer: "schedule", subject: id });
  expect(fromBytes(decodeRunStarted, begun?.payload ?? new Uint8Array()).startedBy).toMatchObject({ partition, generation: 1, op: 2 });
  const told = lab.events().filter(({ kind }) => kind === EventKind.childStarted);
  expect(told.length).toBe(3);
});

test("skip: an instant at which the last run is live does nothing, and the next one after its end starts", () => {
  const lab = new Lab();
  lab.create(OverlapPolicy.skip);
  lab.pass(3);
  expect(lab.outcomes()).toEqual([started, skipped, skipped]);
  lab.end(nameAt(1));
  lab.pass(1);
  expect(lab.started()).toEqual([nameAt(1), nameAt(4)]);
});

test("buffer-one: one instant waits for the run's end, others do nothing", () => {
  const lab = new Lab();
  lab.create(OverlapPolicy.bufferOne);
  lab.pass(3);
  expect(lab.outcomes()).toEqual([started, waits, skipped]);
  lab.end(nameAt(1));
  expect(lab.started()).toEqual([nameAt(1), nameAt(2)]);
  lab.end(nameAt(2));
  lab.pass(1);
  expect(lab.started()).toEqual([nameAt(1), nameAt(2), nameAt(4)]);
});

test("buffer-all: each instant has its run, one after the other", () => {
  const lab = new Lab();
  lab.create(OverlapPolicy.bufferAll);
  lab.pass(3);
  expect(lab.started()).toEqual([nameAt(1)]);
  for (const n of [1, 2, 3]) lab.end(nameAt(n));
  expect(lab.started()).toEqual([nameAt(1), nameAt(2), nameAt(3)]);
});

test("terminate-other: the live run ends by the schedule, and the newest instant follows it", () => {
  const lab = new Lab();
  lab.create(OverlapPolicy.terminateOther);
  lab.pass(2);
  expect(lab.outcomes()).toEqual([started, replaces]);
  expect(lab.started()).toEqual([nameAt(1), nameAt(2)]);
  const last = lab.events(runPartition(`default:${nameAt(1)}` as RunId)).at(-1);
  expect([last?.kind, last?.identity?.issuer, last?.identity?.subject]).toEqual([EventKind.runTerminated, "schedule", id]);
});

test("cancel-other: the live run is asked to end, and until it has the newest instant alone waits", () => {
  const lab = new Lab();
  lab.create(OverlapPolicy.cancelOther);
  lab.pass(3);
  const asked = lab.events(runPartition(`default:${nameAt(1)}` as RunId)).filter(({ kind }) => kind === EventKind.cancelRequested);
  expect(asked.length).toBe(1);
  lab.end(nameAt(1));
  expect(lab.started()).toEqual([nameAt(1), nameAt(3)]);
  expect(lab.machine.describe(partition)?.schedule?.counts).toMatchObject({ started: 2, skipped: 1 });
});

test("nobody led: what is within the window is made up for, the rest is recorded as missed", () => {
  const lab = new Lab();
  lab.create(OverlapPolicy.allowAll, { everyMs }, 25_000);
  lab.save();
  lab.nowMs += 10 * everyMs;
  lab.crash();
  const [missed] = lab.events().filter(({ kind }) => kind === EventKind.scheduleMissed);
  const said = fromBytes(decodeScheduleMissed, missed?.payload ?? new Uint8Array());
  expect(said).toMatchObject({ firstMs: epochMs + everyMs, lastMs: epochMs + 7 * everyMs, count: 7 });
  expect(lab.started()).toEqual([nameAt(8), nameAt(9), nameAt(10)]);
});

test("paused: no instant fires or is made up for; a trigger starts all the same", () => {
  const lab = new Lab();
  lab.create(OverlapPolicy.allowAll);
  lab.ask({ kind: "pause", value: { reason: "moving house" } });
  expect(lab.ask({ kind: "pause", value: {} })).toMatchObject({ count: 0 });
  lab.pass(3);
  expect(lab.started()).toEqual([]);
  expect(lab.machine.describe(partition)?.schedule).toMatchObject({ paused: true, pauseReason: "moving house" });
  const triggered = lab.ask({ kind: "trigger", value: {} });
  expect(triggered).toMatchObject({ outcome: started });
  expect(lab.started().length).toBe(1);
  lab.ask({ kind: "resume", value: {} });
  lab.pass(1);
  expect(lab.started().at(-1)).toBe(nameAt(4));
  expect(lab.started().length).toBe(2);
});

test("what may start beside live runs starts on the next leader too, before any instant comes", () => {
  const lab = new Lab();
  lab.nowMs += 300 * everyMs;
  lab.create(OverlapPolicy.allowAll);
  lab.save();
  // Messages bring no steps that would go on with it.
  lab.isCut = true;
  const fromMs = epochMs + 99 * everyMs;
  expect(lab.ask({ kind: "backfill", value: { fromMs, toMs: fromMs + 130 * everyMs } })).toMatchObject({ count: 130 });
  const before = lab.started().length;
  expect(before).toBeLessThan(130);
  lab.crash();
  for (let ms = 0; ms < 10; ms++) lab.advance(1);
  expect(lab.started().length).toBe(130);
});

test("backfill: instants that passed start one after the other, or at once", () => {
  const lab = new Lab();
  lab.create(OverlapPolicy.skip, { everyMs, fromMs: epochMs + 1000 * everyMs });
  const [fromMs, toMs] = [epochMs - 3 * everyMs, epochMs];
  expect(lab.ask({ kind: "backfill", value: { fromMs, toMs } })).toBe("BAD_REQUEST");
  lab.ask({ kind: "update", value: { spec: { everyMs }, action: { type: "t" } } });
  expect(lab.ask({ kind: "backfill", value: { fromMs, toMs: epochMs + everyMs } })).toBe("BAD_REQUEST");
  expect(lab.ask({ kind: "backfill", value: { fromMs, toMs } })).toMatchObject({ count: 3 });
  expect(lab.started()).toEqual([nameAt(-3)]);
  for (const n of [-3, -2, -1]) lab.end(nameAt(n));
  expect(lab.started()).toEqual([nameAt(-3), nameAt(-2), nameAt(-1)]);
  lab.ask({ kind: "backfill", value: { fromMs, toMs, atOnce: true } });
  expect(lab.started().length).toBe(6);
});

test("a start that is refused is recorded, and the schedule goes on", () => {
  const lab = new Lab();
  lab.create(OverlapPolicy.skip);
  lab.deployed = false;
  lab.pass(1);
  const [told] = lab.events().filter(({ kind }) => kind === EventKind.childStarted);
  expect(fromBytes(decodeChildStarted, told?.payload ?? new Uint8Array()).failure?.type).toBe("WorkflowNotDeployedError");
  lab.deployed = true;
  lab.pass(1);
  expect(lab.machine.describe(partition)?.schedule?.counts).toEqual({ started: 2, skipped: 0, missed: 0, refused: 1 });
  expect(lab.outcomes()).toEqual([started, started]);
});

test("what a run ends with is known, what it returns is none of the schedule's history", () => {
  const lab = new Lab();
  lab.create(OverlapPolicy.skip);
  lab.pass(1);
  lab.end(nameAt(1));
  const [ended] = lab.events().filter(({ kind }) => kind === EventKind.childEnded);
  expect(fromBytes(decodeChildEnded, ended?.payload ?? new Uint8Array())).toMatchObject({ status: RunStatus.terminated });
  expect(lab.machine.describe(partition)?.schedule?.recent).toEqual([
    { atMs: epochMs + everyMs, instance: nameAt(1), op: 1, outcome: started, status: RunStatus.terminated },
  ]);
});

test("deleted: what it started lives on; another one of that id goes on with the chain", () => {
  const lab = new Lab();
  lab.create(OverlapPolicy.skip);
  expect(lab.create(OverlapPolicy.skip)).toMatchObject({ next: { atMs: epochMs + everyMs } });
  expect(lab.create(OverlapPolicy.allowAll)).toBe("SCHEDULE_EXISTS");
  lab.pass(1);
  lab.ask({ kind: "delete", value: { reason: "done with" } });
  expect(lab.ask({ kind: "trigger", value: {} })).toBe("SCHEDULE_NOT_FOUND");
  lab.pass(2);
  expect(lab.started()).toEqual([nameAt(1)]);
  expect(lab.machine.describe(runPartition(`default:${nameAt(1)}` as RunId))?.summary?.status).toBe(RunStatus.running);
  lab.end(nameAt(1));
  lab.create(OverlapPolicy.skip);
  lab.pass(1);
  expect(lab.started()).toEqual([nameAt(1), nameAt(4)]);
  expect(lab.machine.describe(partition)?.summary?.generation).toBe(2);
});

test("what makes no sense is refused and changes nothing", () => {
  const lab = new Lab();
  expect(lab.create(OverlapPolicy.skip, { cron: ["no"] })).toBe("BAD_REQUEST");
  expect(lab.create(OverlapPolicy.skip, { cron: ["@daily"], zone: "Europe/Berlin" })).toBe("BAD_REQUEST");
  expect(lab.log.records.length).toBe(1);
});

test("crashes, checkpoints and cut roads: each instant has exactly one run", () => {
  for (let seed = 1; seed <= 10; seed++) {
    const prng = new Prng(seed);
    const lab = new Lab();
    lab.create(OverlapPolicy.allowAll, { everyMs, jitterMs: prng.chance(0.5) ? 8000 : 0 });
    for (let i = 0; i < 20; i++) {
      lab.isCut = prng.chance(0.3);
      if (prng.chance(0.3)) lab.save();
      lab.advance(prng.below(2 * everyMs));
      if (prng.chance(0.3)) lab.crash();
    }
    lab.isCut = false;
    lab.crash();
    lab.advance(60_000);
    const fired = lab.started();
    const last = lab.events().filter(({ kind }) => kind === EventKind.scheduleFired).length;
    expect(fired).toEqual(Array.from({ length: last }, (_, n) => nameAt(n + 1)));
    const begun = fired.map(
      (name) => lab.events(runPartition(`default:${name}` as RunId)).filter(({ kind }) => kind === EventKind.runStarted).length,
    );
    expect([seed, begun]).toEqual([seed, fired.map(() => 1)]);
    const whole = makeShard({ log: lab.log });
    lab.log.feed(whole, 1);
    expect(digestOf(whole.states(), bunHasher)).toEqual(digestOf(lab.machine.states(), bunHasher));
  }
}, 30_000);
