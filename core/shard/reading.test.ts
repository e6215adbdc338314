/** What is out of memory and can't be read now: nothing is decided on it, and nothing of it is forgotten. */
import { expect, test } from "bun:test";
import { asRequestId, type Effect, HopError, isUnavailable, type RunId, runPartition, type StateReader } from "#core/base";
import type { Command, Input } from "#core/shard";
import { RunStatus } from "#proto";
import { lead, makeShard, RecordLog, StateTable, soleShard } from "../../tests/shard-maker.ts";

const beganMs = 1_800_000_000_000;
const ada = { issuer: "local", subject: "ada", verified: false, causeSeq: 0 };
/** Within the horizon of timers from the start. */
const deadlineMs = 20_000;
const orders = ["shop:a", "shop:b"] as RunId[];

/** A leader whose runs are saved and out of memory, on a disk that can be made unreadable. */
class Town {
  readonly log = new RecordLog();
  readonly saved = new StateTable();
  nowMs = beganMs;
  /** Partitions that can't be read; undefined = nothing can. */
  unreadable: readonly string[] | undefined = [];
  readonly machine;
  armedMs = Number.POSITIVE_INFINITY;
  private requests = 0;

  constructor() {
    const before = makeShard({ log: this.log });
    lead(before, { nowMs: this.nowMs - 1 });
    for (const run of orders)
      before.step({ kind: "command", nowMs: this.nowMs, request: asRequestId(1), identity: ada, command: start(run, deadlineMs) });
    this.saved.checkpoint(soleShard, before);
    this.machine = this.saved.open(soleShard, { log: this.log, states: this.states() }).machine;
  }

  lead(): void {
    this.take(lead(this.machine, { nowMs: this.nowMs, term: 2, epoch: 2 }));
  }

  private states(): StateReader {
    const check = (names?: string) => {
      const isLost = this.unreadable === undefined || (names !== undefined && this.unreadable.includes(names));
      if (isLost) throw new HopError("STORE_UNAVAILABLE", "disk I/O error");
    };
    return {
      load: (partition) => {
        check(partition);
        return this.saved.load(partition);
      },
      dueBefore: (beforeMs, limit, range) => {
        check();
        return this.saved.dueBefore(beforeMs, limit, range);
      },
    };
  }

  take(effects: readonly Effect[]): readonly Effect[] {
    for (const effect of effects) if (effect.kind === "arm-timer") this.armedMs = effect.atMs;
    return effects;
  }

  step(input: Input): readonly Effect[] {
    return this.take(this.machine.step(input));
  }

  command(command: Command) {
    return this.step({ kind: "command", nowMs: this.nowMs, request: asRequestId(++this.requests), identity: ada, command });
  }

  /** Lets the clock come to each time that the machine asks for. */
  runTo(atMs: number): void {
    while (this.armedMs <= atMs) {
      this.nowMs = this.armedMs;
      this.armedMs = Number.POSITIVE_INFINITY;
      this.step({ kind: "tick", nowMs: this.nowMs });
    }
    this.nowMs = atMs;
  }

  status(run: RunId) {
    return this.machine.describe(runPartition(run))?.summary?.status;
  }
}

function start(run: RunId, deadline: number): Command {
  const more = { input: undefined, contention: "attach", idempotencyKey: "", awaitResult: false } as const;
  return { kind: "start", run, type: "order", bundle: new Uint8Array(32), deadlineMs: deadline, ...more };
}

const thrownBy = (run: () => unknown): unknown => {
  try {
    run();
    return undefined;
  } catch (error) {
    return error;
  }
};

test("a command about a state that can't be read changes nothing, and is taken when it can", () => {
  const town = new Town();
  town.unreadable = undefined;
  town.lead();
  const [run] = orders as [RunId];
  const end = town.log.lastIndex;
  const commands: Command[] = [
    start(run, 0),
    { kind: "signal", run, name: "go", payload: undefined, id: "1" },
    { kind: "cancel", run, reason: "" },
    { kind: "terminate", run, reason: "" },
    { kind: "await-result", run },
  ];
  for (const command of commands) expect(isUnavailable(thrownBy(() => town.command(command)))).toBe(true);
  expect(town.log.lastIndex).toBe(end);
  town.unreadable = [];
  const reply = town.command({ kind: "signal", run, name: "go", payload: undefined, id: "1" }).find(({ kind }) => kind === "reply");
  // Behind its start and the generation's first event there is one: no new run took its place.
  expect(reply).toMatchObject({ reply: { kind: "signalled", seq: 1 } });
});

test("deadlines of runs that could not be read when the shard was led come when they can be", () => {
  const town = new Town();
  town.unreadable = undefined;
  town.lead();
  town.runTo(beganMs + deadlineMs / 2);
  town.unreadable = [];
  town.runTo(beganMs + deadlineMs + 2000);
  expect(orders.map((run) => town.status(run))).toEqual([RunStatus.timedOut, RunStatus.timedOut]);
});

test("one state that can't be read holds up its own run only", () => {
  const town = new Town();
  const [lost, other] = orders as [RunId, RunId];
  town.unreadable = [runPartition(lost)];
  town.lead();
  town.runTo(beganMs + deadlineMs + 2000);
  expect(town.status(other)).toBe(RunStatus.timedOut);
  town.unreadable = [];
  town.runTo(town.nowMs + 2000);
  expect(town.status(lost)).toBe(RunStatus.timedOut);
});

test("a run that was looked at while others could not be read goes on with them", () => {
  const town = new Town();
  town.unreadable = undefined;
  town.lead();
  town.unreadable = [];
  // It is in memory now, as if it had been woken.
  expect(orders.map((run) => town.status(run))).toEqual([RunStatus.running, RunStatus.running]);
  town.runTo(beganMs + deadlineMs + 2000);
  expect(orders.map((run) => town.status(run))).toEqual([RunStatus.timedOut, RunStatus.timedOut]);
});
