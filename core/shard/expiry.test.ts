import { expect, test } from "bun:test";
import { asRequestId, type Partition, type RunId, runPartition } from "#core/base";
import { bagPeaks } from "#core/merkle";
import { type Command, type DueHistory, digestOf, type ShardMachine } from "#core/shard";
import { decodeEvent, decodeHistoryExpired, decodeRecord, EventKind, fromBytes, RunStatus } from "#proto";
import { bunHasher } from "../../tests/hashers.ts";
import { lead, makeShard, RecordLog, StateTable, soleShard } from "../../tests/shard-maker.ts";

/** Of the first event: it comes above whatever was before the shard was led. */
const beganMs = 1_800_000_000_000;
const sha256 = new Uint8Array(32).fill(7);
const ada = { issuer: "local", subject: "ada", verified: false, causeSeq: 0 };
const run = "shop:order" as RunId;
const partition = runPartition(run);
const retentionMs = 5000;

class Town {
  readonly log = new RecordLog();
  readonly machine: ShardMachine;
  nowMs = beganMs;
  private requests = 0;

  constructor(machine?: ShardMachine) {
    this.machine = machine ?? makeShard({ log: this.log });
    lead(this.machine, { nowMs: this.nowMs - 1 });
  }

  sealed(): this {
    this.machine.seal(
      { through: this.machine.lastIndex, manifest: this.machine.header().manifest + 1, sha256, statesThrough: 0 },
      this.nowMs,
    );
    return this;
  }

  command(command: Command) {
    return this.machine.step({ kind: "command", nowMs: this.nowMs, request: asRequestId(++this.requests), identity: ada, command });
  }

  start(name = run) {
    const more = { input: undefined, contention: "reject", idempotencyKey: "", deadlineMs: 0, awaitResult: false } as const;
    return this.command({ kind: "start", run: name, type: "order", bundle: new Uint8Array(32), ...more });
  }

  end(name = run) {
    return this.command({ kind: "terminate", run: name, reason: "done with" });
  }

  expire(due: Partial<DueHistory> = {}) {
    const policy = { policy: "shop", policyVersion: 3, policyIdentity: ada };
    return this.machine.expire([{ partition, generation: 1, earlier: [], retentionMs, ...policy, ...due }], this.nowMs);
  }

  /** What the run's history has come to. */
  get size(): number {
    return this.machine.describe(partition)?.size ?? 0;
  }
}

const eventsOf = (log: RecordLog) =>
  log.records.flatMap((body) =>
    body.length === 0 ? [] : fromBytes(decodeRecord, body).event.map((bytes) => fromBytes(decodeEvent, bytes)),
  );

test("a history whose time is over is given up by an event that has its root, and by whose word", () => {
  const town = new Town();
  town.start();
  town.end();
  town.sealed();
  const before = town.machine.describe(partition);
  town.nowMs += retentionMs;
  expect("reject" in town.expire()).toBe(false);
  const event = eventsOf(town.log).at(-1);
  expect(event).toMatchObject({ kind: EventKind.historyExpired, seq: before?.size as number, prevHash: before?.lastHash as Uint8Array });
  const body = fromBytes(decodeHistoryExpired, event?.payload as Uint8Array);
  expect(bagPeaks(bunHasher, event?.seq as number, body.peaks)).toEqual(before?.root as Uint8Array);
  expect(body).toMatchObject({
    run: [{ generation: 1, type: "order", status: RunStatus.terminated, startedMs: beganMs, closedMs: beganMs, note: "done with" }],
    policy: "shop",
    policyVersion: 3,
    policyIdentity: ada,
    retentionMs,
  });
  expect(event?.identity).toMatchObject({ issuer: "core", causeSeq: (before?.size as number) - 1 });
  expect(town.machine.historyEnd(partition)).toMatchObject({ firstSeq: before?.size as number, size: town.size, closed: true });
  // How it ended is known still.
  expect(town.machine.describe(partition)?.outcome?.status).toBe(RunStatus.terminated);
});

test("nothing goes too early, twice, while it is live or of another generation, nor where nothing is sealed", () => {
  const town = new Town();
  town.start();
  expect(town.expire()).toMatchObject({ reject: "BAD_REQUEST", message: expect.stringContaining("it was never sealed") });
  town.sealed();
  town.nowMs += retentionMs * 2;
  const unchanged = (due: Partial<DueHistory> = {}) => {
    const { lastIndex } = town.machine;
    expect(town.expire(due)).not.toHaveProperty("reject");
    expect(town.machine.lastIndex).toBe(lastIndex);
  };
  unchanged();
  town.end();
  town.nowMs += retentionMs - 1;
  unchanged();
  town.nowMs += 1;
  unchanged({ generation: 2 });
  unchanged({ partition: "run/shop:nobody" as Partition });
  const { size } = town;
  town.expire();
  expect(town.size).toBe(size + 1);
  unchanged();
});

test("a frozen shard gives up nothing", () => {
  const town = new Town();
  town.start();
  town.end();
  town.sealed();
  town.nowMs += retentionMs;
  town.machine.freeze({ into: 2 as never }, town.nowMs);
  expect(town.expire()).toMatchObject({ reject: "SHARD_BUSY" });
});

test("replicas and checkpoints agree, and the name goes on with the next generation on the same chain", () => {
  const town = new Town();
  town.start();
  town.end();
  town.sealed();
  town.nowMs += retentionMs;
  town.expire();
  const end = town.machine.historyEnd(partition);
  town.start();
  expect(town.machine.describe(partition)?.summary?.generation).toBe(2);
  expect(town.machine.historyEnd(partition)).toMatchObject({
    firstSeq: end?.firstSeq as number,
    size: (end?.size as number) + 1,
    closed: false,
  });
  const follower = makeShard({ log: new RecordLog() });
  town.log.feed(follower, 1);
  expect(digestOf(follower.states(), bunHasher)).toEqual(digestOf(town.machine.states(), bunHasher));
  const table = new StateTable();
  table.checkpoint(soleShard, town.machine);
  const { machine } = table.open(soleShard, { log: new RecordLog(town.log.lastIndex) });
  expect(machine.historyEnd(partition)).toEqual(town.machine.historyEnd(partition) as never);
  // The second one goes with all before it, and says what it was told of them.
  town.end();
  town.nowMs += retentionMs;
  const told = { generation: 1, type: "order", status: 5, startedMs: 1, closedMs: 2, bundle: new Uint8Array(32), note: "" };
  town.expire({ generation: 2, earlier: [told] });
  const body = fromBytes(decodeHistoryExpired, eventsOf(town.log).at(-1)?.payload as Uint8Array);
  expect(body.run.map(({ generation }) => generation)).toEqual([1, 2]);
});

test("a replica that is given an expiry with other peaks stops: its history is another one", () => {
  const town = new Town();
  town.start();
  town.end();
  town.sealed();
  town.nowMs += retentionMs;
  town.expire();
  const follower = makeShard({ log: new RecordLog() });
  town.log.feed(follower, 1, town.log.lastIndex - 1);
  const body = town.log.record(town.log.lastIndex).slice();
  const peaks = town.machine.describe(partition)?.peaks as Uint8Array;
  expect(peaks.length).toBeGreaterThan(0);
  const { peaks: said } = fromBytes(decodeHistoryExpired, eventsOf(town.log).at(-1)?.payload as Uint8Array);
  const at = Buffer.from(body.buffer, body.byteOffset, body.length).indexOf(said);
  body[at] = (body[at] as number) ^ 1;
  expect(() => follower.recover(town.log.lastIndex, body)).toThrow(/has the peaks of all before it/);
});

test("a query of a run whose history expired is refused: its code can't run again over it", () => {
  const town = new Town();
  town.start();
  town.end();
  town.sealed();
  town.nowMs += retentionMs;
  town.expire();
  const effects = town.command({ kind: "query", run, name: "q", input: undefined } as Command);
  expect(effects).toContainEqual(
    expect.objectContaining({
      reply: {
        kind: "rejected",
        rejection: { reject: "HISTORY_EXPIRED", message: expect.stringContaining("was taken away by retention") },
      },
    }),
  );
});
