/** Calls of a run's methods, folded: what is open, what is remembered, what a later version or a checkpoint finds. */
import { expect, test } from "bun:test";
import { limits, type RunId } from "#core/base";
import { applyEvent, decideAnswer, decideCall, emptyRun, loadRun, type Run, type RunEvent, saveRun } from "#core/run";
import { decodeRunState, EventKind, encodeRunState, fromBytes, RunStatus, toBytes } from "#proto";

class Bench {
  run: Run = emptyRun("shop:o-1" as RunId);
  private seq = 0;

  constructor() {
    this.start();
  }

  start(): void {
    const generation = this.run.generation + 1;
    const body = {
      generation,
      type: "t",
      bundle: new Uint8Array(32),
      input: undefined,
      deadlineMs: 0,
      idempotencyKey: "",
      seed: 1,
      ticket: 0,
      startedBy: undefined,
    };
    this.add({ kind: EventKind.runStarted, body });
  }

  add(event: RunEvent): void {
    applyEvent(this.run, event, { seq: this.seq, timeMs: 1000 + this.seq++ }, new Uint8Array(0));
  }

  call(id: string, name = "m"): unknown {
    const decision = decideCall(this.run, { name, input: undefined, id });
    if (!("reject" in decision) && !("body" in decision)) return decision;
    if ("body" in decision) this.add(decision);
    return decision;
  }

  answer(call: number, bytes = 1): void {
    const result = { data: new Uint8Array(bytes), ref: undefined };
    this.add(decideAnswer({ call, result, failure: undefined, rejected: false }));
  }

  /** As from a checkpoint. */
  reload(): void {
    const saved = toBytes(encodeRunState, saveRun(this.run));
    this.run = loadRun(this.run.run, fromBytes(decodeRunState, saved));
  }
}

test("a call is open until it is answered, and found by its id after a checkpoint too", () => {
  const bench = new Bench();
  expect(bench.call("a")).toMatchObject({ kind: EventKind.methodCalled, body: { call: 1, name: "m" } });
  bench.reload();
  expect(bench.call("a")).toMatchObject({ kind: "open", open: { call: 1 } });
  expect(bench.call("b")).toMatchObject({ body: { call: 2 } });
  bench.answer(1);
  bench.reload();
  expect(bench.call("a")).toMatchObject({ kind: "answered", answered: { seq: 3, answer: { call: 1 } } });
  expect([...bench.run.calls.keys()]).toEqual([2]);
});

test("an id stands for one method", () => {
  const bench = new Bench();
  bench.call("a");
  expect(bench.call("a", "other")).toMatchObject({ reject: "IDEMPOTENCY_CONFLICT" });
  bench.answer(1);
  expect(bench.call("a", "other")).toMatchObject({ reject: "IDEMPOTENCY_CONFLICT" });
});

test("a run that ends answers nobody, and its next generation knows that", () => {
  const bench = new Bench();
  bench.call("a");
  bench.call("");
  bench.add({ kind: EventKind.runCompleted, body: { result: undefined } });
  expect(bench.run.calls.size).toBe(0);
  expect(bench.call("b")).toMatchObject({ reject: "RUN_CLOSED" });
  bench.start();
  bench.reload();
  expect(bench.call("a")).toMatchObject({ kind: "answered", answered: { seq: 3, answer: { call: 0 } } });
  expect(bench.call("b")).toMatchObject({ body: { call: 1 } });
});

test("ids are kept in their number, and answers in their bytes", () => {
  const bench = new Bench();
  const big = limits.answeredBytesKept / 2 + 1;
  for (let i = 1; i <= 3; i++) {
    bench.call(`big-${i}`);
    bench.answer(i, big);
  }
  expect(bench.call("big-3")).toMatchObject({ answered: { answer: { call: 3 } } });
  for (const old of ["big-1", "big-2"]) expect(bench.call(old)).toMatchObject({ kind: "answered", answered: { answer: undefined } });
  for (let i = 4; i < 4 + limits.answeredCallsKept; i++) {
    bench.call(`small-${i}`);
    bench.answer(i);
  }
  expect(bench.run.answeredCalls).toHaveLength(limits.answeredCallsKept);
});

test("too many open calls are refused for now, and calls of a blocked run until it is retried", () => {
  const bench = new Bench();
  for (let i = 0; i < limits.openCallsMax; i++) bench.call("");
  expect(bench.call("")).toMatchObject({ reject: "BUFFER_FULL", retryAfterMs: 200 });
  const blocked = new Bench();
  blocked.add({ kind: EventKind.runBlocked, body: { cause: "limit", message: "too long" } });
  expect(blocked.run.status).toBe(RunStatus.blocked);
  expect(blocked.call("a")).toMatchObject({ reject: "RUN_BLOCKED" });
});
