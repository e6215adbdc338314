import { describe, expect, test } from "bun:test";
import { HopError, limits } from "#core/base";
import { decodeWorkerItem, encodeWorkerItem, fromBytes, type Task, type TaskDone, type TaskToken, toBytes, type WorkerItem } from "#proto";
import type { Activities, ActivityContext } from "#sdk/activity";
import { ActivityFailure } from "#sdk/runtime";
import type { LogRecord } from "../log.ts";
import { ActivityHost } from "./activity-host.ts";

const bytes = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));
const text = (data: Uint8Array | undefined) => Buffer.from(data ?? []).toString();
const token = (op: number, fields: Partial<TaskToken> = {}): TaskToken => ({
  run: "default:r1",
  generation: 1,
  op,
  attempt: 1,
  delivery: 1,
  epoch: 0,
  ...fields,
});

function task(name: string, input: unknown, fields: Partial<Task> = {}): Task {
  return {
    shard: 1,
    token: token(1),
    name,
    input: input === undefined ? undefined : { data: bytes(input), ref: undefined },
    startToCloseMs: 0,
    heartbeatMs: 0,
    heartbeat: undefined,
    idempotencyKey: "",
    number: 1,
    workflowType: "order",
    ...fields,
  };
}

class Rig {
  readonly host: ActivityHost;
  readonly items: WorkerItem[] = [];
  readonly logs: LogRecord[] = [];
  isConnected = true;
  nowMs = 1000;
  private readonly waiters: (() => void)[] = [];

  constructor(activities: Activities, options: { slots?: number; blobs?: () => Promise<Uint8Array> } = {}) {
    this.host = new ActivityHost({
      activities,
      slots: options.slots ?? 10,
      blobs: options.blobs ?? (async () => bytes("stored")),
      onLog: (record) => this.logs.push(record),
      nowMs: () => this.nowMs,
      send: (item) => {
        if (!this.isConnected) return false;
        this.items.push(fromBytes(decodeWorkerItem, toBytes(encodeWorkerItem, item)));
        for (const look of this.waiters.splice(0)) look();
        return true;
      },
    });
  }

  async until(claim: () => boolean): Promise<void> {
    while (!claim()) await new Promise<void>((look) => this.waiters.push(look));
  }

  done(): TaskDone[] {
    return this.items.flatMap((item) => (item.kind === "taskDone" ? [item.value] : []));
  }

  heartbeats(): string[] {
    return this.items.flatMap((item) => (item.kind === "heartbeat" ? [text(item.value.details?.data)] : []));
  }

  /** Executes one task and gives its outcome. */
  async run(given: Task): Promise<TaskDone> {
    const before = this.done().length;
    this.host.take(given);
    await this.until(() => this.done().length > before);
    return this.done()[before] as TaskDone;
  }
}

/** A promise that a test settles. */
function gate<T = void>(): { promise: Promise<T>; open: (value: T) => void } {
  let open!: (value: T) => void;
  const promise = new Promise<T>((done) => {
    open = done;
  });
  return { promise, open };
}

describe("an activity", () => {
  test("gets its input and gives its result, with the task's token", async () => {
    const rig = new Rig({ add: async ({ a, b }: { a: number; b: number }) => a + b });
    const done = await rig.run(task("add", { a: 1, b: 2 }, { token: token(4, { attempt: 2, delivery: 3, epoch: 5 }) }));
    expect([text(done.result?.data), done.failure, done.token]).toEqual(["3", undefined, token(4, { attempt: 2, delivery: 3, epoch: 5 })]);
  });

  test("can't end the worker's process", async () => {
    const rig = new Rig({ ends: () => process.exit(3) });
    const { failure } = await rig.run(task("ends", 1));
    expect(failure?.message).toStartWith('An activity may not end the worker\'s process: activity "ends" called process.exit()');
  });

  test("may be synchronous, take nothing, and give nothing", async () => {
    const rig = new Rig({ nothing: (input) => expect(input).toBeUndefined() });
    expect(await rig.run(task("nothing", undefined))).toMatchObject({ result: undefined, failure: undefined });
  });

  test("knows what it is executed for", async () => {
    let seen: ActivityContext | undefined;
    const rig = new Rig({
      look: (_, context) => {
        seen = context;
      },
    });
    await rig.run(task("look", 1, { token: token(7, { attempt: 3 }), heartbeat: { data: bytes({ at: 5 }), ref: undefined } }));
    expect(seen).toMatchObject({
      run: "default:r1",
      workflowType: "order",
      activity: "look",
      attempt: 3,
      idempotencyKey: "default:r1/1/7",
      lastHeartbeat: { at: 5 },
    });
    await rig.run(task("look", 1, { token: token(8), idempotencyKey: "own" }));
    expect(seen).toMatchObject({ idempotencyKey: "own", lastHeartbeat: undefined });
  });

  test("reads large inputs from storage", async () => {
    const rig = new Rig({ echo: (input) => input });
    const stored = { data: new Uint8Array(0), ref: { sha256: new Uint8Array(32), size: 8 } };
    expect(text((await rig.run(task("echo", 1, { input: stored }))).result?.data)).toBe('"stored"');
  });

  test("writes to the worker's log with its run beside the text", async () => {
    const rig = new Rig({ say: (_, { log }) => log.info("hello", { id: 5 }) });
    await rig.run(task("say", 1));
    expect(rig.logs).toEqual([
      { level: "info", message: "hello", fields: { id: 5, run: "default:r1", activity: "say", op: 1, attempt: 1 } },
    ]);
  });
});

describe("a failure", () => {
  async function failureFrom(work: () => unknown) {
    return (await new Rig({ work }).run(task("work", 1))).failure;
  }

  test("carries type, message, stack and causes", async () => {
    const failure = await failureFrom(() => {
      throw new RangeError("too far", { cause: new TypeError("no number", { cause: "text" }) });
    });
    expect(failure).toMatchObject({
      type: "RangeError",
      message: "too far",
      nonRetryable: false,
      cause: { type: "TypeError", message: "no number", cause: { type: "NonError", message: "text", cause: undefined } },
    });
    expect(failure?.stack).toContain("activity-host.test.ts");
  });

  test("is not tried again where the activity says so", async () => {
    const failure = await failureFrom(async () => {
      throw new ActivityFailure("CardError", "card expired", { details: { last4: "4242" }, nonRetryable: true });
    });
    expect(failure).toMatchObject({ type: "CardError", message: "card expired", nonRetryable: true });
    expect(text(failure?.details?.data)).toBe('{"last4":"4242"}');
    expect(await failureFrom(() => Promise.reject(Object.assign(new Error("x"), { nonRetryable: true })))).toMatchObject({
      nonRetryable: true,
    });
  });

  test("may be anything that can be thrown", async () => {
    const hostile = {
      toString: () => {
        throw new Error("no");
      },
      toJSON: () => {
        throw new Error("no");
      },
    };
    const cases = [
      [undefined, "undefined"],
      [null, "null"],
      ["text", "text"],
      [{ code: 7 }, '{"code":7}'],
      [12n, "12"],
      [hostile, "A value that has no text"],
    ] as const;
    for (const [thrown, message] of cases)
      expect(await failureFrom(() => Promise.reject(thrown))).toMatchObject({ type: "NonError", message });
  });

  test("is bounded in text and depth, also where its causes form a ring", async () => {
    const ring: Error = new Error("ü".repeat(100_000));
    ring.name = "N".repeat(1000);
    ring.cause = ring;
    let failure = await failureFrom(() => Promise.reject(ring));
    expect(new TextEncoder().encode(failure?.message).length).toBe(limits.failureBytesMax);
    expect(failure?.type).toBe("N".repeat(limits.nameBytesMax));
    let depth = 0;
    for (; failure !== undefined; failure = failure.cause) depth++;
    expect(depth).toBe(limits.failureDepthMax);
  });

  test("of a result that is no JSON names the activity and is not tried again", async () => {
    const ring: { self?: unknown } = {};
    ring.self = ring;
    for (const result of [ring, 5n, () => 1, Symbol("s")]) {
      const failure = await failureFrom(() => result);
      expect(failure).toMatchObject({ type: "ResultNotSerializable", nonRetryable: true });
      expect(failure?.message).toStartWith('Cannot record the result of activity "work": it is ');
    }
  });

  test("of a result above the limit says how large it is, and is not tried again", async () => {
    const fits = "x".repeat(limits.payloadBytesMax - 2);
    expect(await failureFrom(() => fits)).toBeUndefined();
    expect(await failureFrom(() => `${fits}x`)).toMatchObject({
      type: "PayloadTooLargeError",
      nonRetryable: true,
      message: 'Cannot record the result of activity "work": it has 33554433 bytes, at most 33554432 are allowed',
    });
  });

  test("of an unknown activity names those that are known, and may be tried elsewhere", async () => {
    const rig = new Rig({ a: () => 1, b: () => 2 });
    for (const [op, name] of ["c", "toString"].entries()) {
      const message = `This worker has no activity "${name}", it has "a", "b"`;
      expect((await rig.run(task(name, 1, { token: token(op) }))).failure).toMatchObject({
        type: "ActivityNotFound",
        message,
        nonRetryable: false,
      });
    }
  });

  test("to read the input says why", async () => {
    const rig = new Rig({ echo: (input) => input }, { blobs: () => Promise.reject(new HopError("STORE_UNAVAILABLE", "no answer")) });
    expect(
      (await rig.run(task("echo", 1, { input: { data: new Uint8Array(0), ref: { sha256: new Uint8Array(32), size: 1 } } }))).failure,
    ).toMatchObject({
      type: "BlobUnavailable",
      message: 'Cannot read the input of activity "echo": no answer',
      nonRetryable: false,
    });
    const broken = task("echo", 1, { token: token(2), input: { data: Buffer.from("{"), ref: undefined } });
    expect((await rig.run(broken)).failure).toMatchObject({ type: "InputNotReadable", nonRetryable: true });
  });
});

describe("cancellation", () => {
  const untilAborted: Activities = {
    wait: (_, { signal }) => new Promise((_, fail) => signal.addEventListener("abort", () => fail(signal.reason))),
  };

  test("aborts the signal with its reason", async () => {
    const rig = new Rig(untilAborted);
    rig.host.take(task("wait", 1));
    rig.host.cancel(token(1), "The workflow withdrew it");
    await rig.until(() => rig.done().length === 1);
    expect(rig.done()[0]?.failure).toMatchObject({
      type: "ActivityCancelledError",
      message: "Activity wait is cancelled: The workflow withdrew it",
    });
    rig.host.cancel(token(99), "not there");
  });

  test("comes by itself when the start-to-close limit has passed", async () => {
    const rig = new Rig(untilAborted);
    expect((await rig.run(task("wait", 1, { startToCloseMs: 5 }))).failure).toMatchObject({
      type: "TimeoutError",
      message: "Activity wait passed its start-to-close limit of 5 ms in attempt 1",
    });
  });

  test("does not come early for limits beyond what timers take", async () => {
    const rig = new Rig({ now: () => "done" });
    expect(text((await rig.run(task("now", 1, { startToCloseMs: 2 ** 31 }))).result?.data)).toBe('"done"');
  });

  test("of what waits for a slot keeps it from being executed", async () => {
    let count = 0;
    const end = gate();
    const rig = new Rig({ first: () => end.promise, second: () => ++count }, { slots: 1 });
    rig.host.take(task("first", 1));
    rig.host.take(task("second", 1, { token: token(2) }));
    rig.host.cancel(token(2), "no need");
    end.open();
    await rig.host.idle();
    expect([count, rig.done()[1]?.failure?.type]).toEqual([0, "ActivityCancelledError"]);
  });

  test("of all comes when the worker gives up", async () => {
    const rig = new Rig(untilAborted);
    for (const op of [1, 2]) rig.host.take(task("wait", 1, { token: token(op) }));
    rig.host.abandon();
    await rig.host.idle();
    expect(rig.done().map(({ failure }) => failure?.type)).toEqual(["WorkerShutdownError", "WorkerShutdownError"]);
  });
});

describe("heartbeats", () => {
  test("are sent at once, then no more often than a third of the limit, the latest last", async () => {
    const end = gate();
    let beat!: (details: unknown) => void;
    const rig = new Rig({
      work: (_, context) => {
        beat = (details) => context.heartbeat(details);
        return end.promise;
      },
    });
    rig.host.take(task("work", 1, { heartbeatMs: 60 }));
    const from = performance.now();
    for (let i = 1; i <= 100; i++) beat(i);
    await rig.until(() => rig.heartbeats().length === 2);
    expect(performance.now() - from).toBeGreaterThan(15);
    expect(rig.heartbeats()).toEqual(["1", "100"]);
    end.open();
    await rig.until(() => rig.done().length === 1);
  });

  test("that were held back are not lost to the next attempt when this one fails", async () => {
    const rig = new Rig({
      work: (_, context) => {
        for (let i = 1; i <= 3; i++) context.heartbeat({ i });
        throw new Error("no");
      },
    });
    await rig.run(task("work", 1, { heartbeatMs: 60_000 }));
    expect(rig.items.map((item) => item.kind)).toEqual(["heartbeat", "heartbeat", "taskDone"]);
    expect(rig.heartbeats()).toEqual(['{"i":1}', '{"i":3}']);
  });
});

describe("over streams", () => {
  test("no more execute at a time than there are slots", async () => {
    let active = 0;
    let most = 0;
    const rig = new Rig(
      {
        work: async () => {
          most = Math.max(most, ++active);
          await new Promise((done) => setImmediate(done));
          active--;
        },
      },
      { slots: 3 },
    );
    for (let op = 1; op <= 20; op++) rig.host.take(task("work", 1, { token: token(op) }));
    expect(rig.host.held()).toHaveLength(20);
    await rig.host.idle();
    expect([most, rig.done().length]).toEqual([3, 20]);
  });

  test("what executes is held; it is answered under the token that came last", async () => {
    const end = gate<number>();
    let count = 0;
    const rig = new Rig({
      work: () => {
        count++;
        return end.promise;
      },
    });
    rig.host.take(task("work", 1));
    rig.host.take(task("work", 1, { token: token(1, { delivery: 2 }) }));
    expect(rig.host.held()).toEqual([token(1, { delivery: 2 })]);
    end.open(5);
    await rig.until(() => rig.done().length === 1);
    expect([count, rig.done()[0]?.token]).toEqual([1, token(1, { delivery: 2 })]);
  });

  test("another attempt is another execution", async () => {
    let count = 0;
    const rig = new Rig({ work: () => ++count });
    await rig.run(task("work", 1));
    await rig.run(task("work", 1, { token: token(1, { attempt: 2 }) }));
    await rig.run(task("work", 1, { token: token(1, { generation: 2 }) }));
    expect(count).toBe(3);
  });

  test("a result with no stream to go to is held, and sent on the next one", async () => {
    const rig = new Rig({ work: () => "late" });
    rig.isConnected = false;
    rig.host.take(task("work", 1));
    await rig.host.idle();
    rig.nowMs += 3_600_000;
    expect([rig.host.held(), rig.host.isSettled]).toEqual([[token(1)], false]);
    rig.isConnected = true;
    rig.host.resend();
    expect(rig.done().map(({ result }) => text(result?.data))).toEqual(['"late"']);
    expect(rig.host.isSettled).toBe(true);
  });

  test("a result that may have been lost with its stream is sent again, for a while", async () => {
    const rig = new Rig({ work: () => "once" });
    await rig.run(task("work", 1));
    expect(rig.host.held()).toEqual([token(1)]);
    rig.host.resend();
    expect(rig.done().map(({ token: t, result }) => [t, text(result?.data)])).toEqual([
      [token(1), '"once"'],
      [token(1), '"once"'],
    ]);
    rig.nowMs += 60_000;
    expect(rig.host.held()).toEqual([]);
  });

  test("a task that is delivered again after it was done is answered, not executed", async () => {
    let count = 0;
    const rig = new Rig({ work: () => ++count });
    await rig.run(task("work", 1));
    const again = await rig.run(task("work", 1, { token: token(1, { delivery: 2 }) }));
    expect([count, text(again.result?.data), again.token?.delivery]).toEqual([1, "1", 2]);
  });
});
