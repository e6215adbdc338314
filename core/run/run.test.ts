import { expect, test } from "bun:test";
import fc from "fast-check";
import { limits, noBytes, type RunId } from "#core/base";
import {
  applyEvent,
  attentionMs,
  type Contention,
  claimed,
  decideCancel,
  decideCompleted,
  decideFailed,
  decideNext,
  decideResume,
  decideSchedule,
  decideSignal,
  decideStart,
  decideTerminate,
  decideTimer,
  decodeBody,
  emptyRun,
  encodeBody,
  instancePrefix,
  isClosed,
  isForGuest,
  isLive,
  isSettled,
  isTerminal,
  kept,
  loadRun,
  mayBeOffered,
  noAsker,
  type Operation,
  outcomeOf,
  type Run,
  type RunEvent,
  saveRun,
  stateFormat,
  timeoutFailure,
} from "#core/run";
import {
  type ActivityOptions,
  decodeRunStarted,
  decodeRunState,
  decodeStartQueued,
  encodeRunState,
  type Failure,
  fromBytes,
  EventKind as Kind,
  RunStatus,
  toBytes,
} from "#proto";

const timeMs = 1_800_000_000_000;
const bundle = new Uint8Array(32).fill(1);
const hash = new Uint8Array(32).fill(2);
const text = (value: string) => ({ data: new TextEncoder().encode(value), ref: undefined });
const failure = (type: string, nonRetryable = false): Failure => ({
  type,
  message: `${type} happened`,
  stack: "",
  details: undefined,
  nonRetryable,
  cause: undefined,
});
const options = (part: Partial<ActivityOptions> = {}): ActivityOptions => ({
  retry: undefined,
  startToCloseMs: 0,
  scheduleToCloseMs: 0,
  heartbeatMs: 0,
  idempotencyKey: "",
  ...part,
});
const started = (part: Partial<Extract<RunEvent, { kind: typeof Kind.runStarted }>["body"]> = {}): RunEvent => ({
  kind: Kind.runStarted,
  body: { ...fromBytes(decodeRunStarted, noBytes), generation: 1, type: "order", bundle, seed: 7, ...part },
});
const queued = (part: Partial<Extract<RunEvent, { kind: typeof Kind.startQueued }>["body"]> = {}): RunEvent => ({
  kind: Kind.startQueued,
  body: { ...fromBytes(decodeStartQueued, noBytes), type: "order", bundle, input: text("1"), ...part },
});
const schedule = (op: number, opts?: ActivityOptions) =>
  decideSchedule({ op, name: "charge", input: text("1"), options: opts, claim: undefined });
const received = (name: string, id = "") => ({ name, payload: undefined, id, from: "", number: 0 });
const signal = (name: string, id = ""): RunEvent => ({ kind: Kind.signalReceived, body: received(name, id) });
const awaited = (op: number, name: string): RunEvent => ({ kind: Kind.signalAwaited, body: { op, name } });

/** A run that these events, one a millisecond, have made. */
function runOf(...events: RunEvent[]): Run {
  const run = emptyRun("default:r" as RunId);
  fold(run, 0, events);
  return run;
}

function fold(run: Run, from: number, events: readonly RunEvent[]): void {
  for (const [i, event] of events.entries()) applyEvent(run, event, { seq: from + i, timeMs: timeMs + from + i }, hash);
}

const opOf = (run: Run, op: number): Operation => run.pending.get(op) as Operation;
const reasonOf = (decision: unknown): unknown =>
  typeof decision === "object" && decision !== null && "reject" in decision ? decision.reject : decision;

const request = {
  type: "order",
  bundle,
  input: undefined,
  contention: "attach" as Contention,
  idempotencyKey: "",
  deadlineMs: 0,
  overrideReason: "",
};

test("a start makes the next generation, attaches or is refused", () => {
  const live = () => runOf(started());
  const ended = () => runOf(started({ idempotencyKey: "k" }), { kind: Kind.runCompleted, body: { result: undefined } });
  const keyed = { ...request, idempotencyKey: "k" };
  const cases: [string, Run, typeof request, unknown][] = [
    ["live, queue", live(), { ...request, contention: "queue" }, "queued"],
    ["live, supersede", live(), { ...request, contention: "supersede", overrideReason: "stuck" }, "queued"],
    ["live, supersede without a reason", live(), { ...request, contention: "supersede" }, "BAD_REQUEST"],
    ["new, supersede without a reason", runOf(), { ...request, contention: "supersede" }, "BAD_REQUEST"],
    ["ended, queue", ended(), { ...request, contention: "queue" }, 2],
    ["new", runOf(), request, 1],
    ["live, attach", live(), request, "attach"],
    ["live, reject", live(), { ...request, contention: "reject" }, "INSTANCE_LIVE"],
    [
      "blocked, reject",
      runOf(started(), { kind: Kind.runBlocked, body: { cause: "limit", message: "" } }),
      { ...request, contention: "reject" },
      "INSTANCE_LIVE",
    ],
    ["ended", ended(), request, 2],
    ["ended, same key", ended(), keyed, "attach"],
    ["ended, same key, reject", ended(), { ...keyed, contention: "reject" }, "attach"],
    ["ended, another key", ended(), { ...request, idempotencyKey: "other" }, 2],
    ["live, another key", live(), keyed, "attach"],
  ];
  for (const [name, run, asked, want] of cases) {
    const decision = decideStart(run, asked, hash);
    const got =
      typeof decision === "object" && "kind" in decision && decision.kind === Kind.runStarted
        ? decision.body.generation
        : typeof decision === "object" && !("reject" in decision)
          ? "attach" in decision
            ? "attach"
            : "queued"
          : reasonOf(decision);
    expect([name, got]).toEqual([name, want]);
  }
  expect(reasonOf(decideStart(ended(), keyed, new Uint8Array(32)))).toBe("IDEMPOTENCY_CONFLICT");
});

test("keys of earlier generations still stand for what they started, the oldest until too many came after", () => {
  const run = emptyRun("default:o-1" as RunId);
  const done = { kind: Kind.runCompleted, body: { result: undefined } } as const;
  for (let generation = 1; generation <= limits.usedKeysKept + 1; generation++) {
    fold(run, run.generation * 2, [started({ generation, idempotencyKey: `k${generation}` }), done]);
  }
  const again = (key: string) => decideStart(run, { ...request, idempotencyKey: key }, hash);
  expect(again("k2")).toEqual({ attach: 2, ticket: 0 });
  expect(again(`k${limits.usedKeysKept + 1}`)).toEqual({ attach: limits.usedKeysKept + 1, ticket: 0 });
  expect(again("k1")).toMatchObject({ kind: Kind.runStarted });
});

test("a made-up name belongs to one start for ever", () => {
  const run = emptyRun(`default:${instancePrefix}1` as RunId);
  fold(run, 0, [started(), { kind: Kind.runCompleted, body: { result: undefined } }]);
  expect(decideStart(run, request, hash)).toEqual({ attach: 1, ticket: 0 });
});

test("a name that a person gave is not taken for a made-up one, whatever it holds", () => {
  const run = emptyRun(`default:shop:${instancePrefix}1` as RunId);
  fold(run, 0, [started(), { kind: Kind.runCompleted, body: { result: undefined } }]);
  expect(decideStart(run, request, hash)).toMatchObject({ kind: Kind.runStarted, body: { generation: 2 } });
});

test("a new generation begins clean, but remembers signal ids", () => {
  const run = runOf(
    started({ deadlineMs: 5 }),
    schedule(1),
    signal("go", "s1"),
    { kind: Kind.cancelRequested, body: { reason: "", ...noAsker } },
    { kind: Kind.runFailed, body: { failure: failure("E") } },
  );
  fold(run, 5, [started({ generation: 2, seed: 8 })]);
  const {
    generation,
    pending,
    unclaimed,
    cancelRequested,
    failure: failed,
    nextOp,
    firstSeq,
    deadlineAtMs,
    closedMs,
    signalIds,
    deliveredSeq,
    deliverableEnd,
  } = run;
  expect({
    generation,
    pending: pending.size,
    unclaimed: unclaimed.size,
    cancelRequested,
    failed,
    nextOp,
    firstSeq,
    deadlineAtMs,
    closedMs,
    signalIds,
    deliveredSeq,
    deliverableEnd,
  }).toEqual({
    generation: 2,
    pending: 0,
    unclaimed: 0,
    cancelRequested: false,
    failed: undefined,
    nextOp: 1,
    firstSeq: 5,
    deadlineAtMs: 0,
    closedMs: 0,
    signalIds: ["s1"],
    deliveredSeq: 5,
    deliverableEnd: 6,
  });
});

test("a signal is refused, known, or received, and taken by the oldest wait for its name", () => {
  expect(reasonOf(decideSignal(runOf(), received("go", "")))).toBe("RUN_NOT_FOUND");
  expect(reasonOf(decideSignal(runOf(started(), { kind: Kind.runTerminated, body: { reason: "", ...noAsker } }), received("go", "")))).toBe(
    "RUN_CLOSED",
  );
  const run = runOf(started(), awaited(1, "go"), awaited(2, "go"), awaited(3, "stop"), signal("go", "s1"));
  expect([...run.pending.keys()]).toEqual([2, 3]);
  expect(decideSignal(run, received("go", "s1"))).toBe("duplicate");
  expect(decideSignal(run, received("go", "s2"))).toEqual(signal("go", "s2"));
  expect(decideSignal(run, received("go", ""))).toEqual(signal("go"));
  fold(run, 5, [signal("go"), signal("go"), signal("other")]);
  expect([[...run.pending.keys()], [...run.unclaimed]]).toEqual([
    [3],
    [
      ["go", 1],
      ["other", 1],
    ],
  ]);
  fold(run, 8, [awaited(4, "go"), awaited(5, "go")]);
  expect([[...run.pending.keys()], [...run.unclaimed]]).toEqual([[3, 5], [["other", 1]]]);
});

test("the last signal ids are kept, and none that is empty", () => {
  const run = runOf(started(), ...Array.from({ length: limits.signalIdsKept + 3 }, (_, i) => signal("go", `${i}`)), signal("go"));
  expect(run.signalIds.length).toBe(limits.signalIdsKept);
  expect([run.signalIds[0], run.signalIds.at(-1)]).toEqual(["3", `${limits.signalIdsKept + 2}`]);
});

test("only the newest delivery of the current attempt of this generation is claimed", () => {
  const run = runOf(started(), schedule(1), decideTimer(2, 5, timeMs));
  opOf(run, 1).delivery = 2;
  const claim = { generation: 1, op: 1, attempt: 1, delivery: 2 };
  expect(claimed(run, claim)).toBe(opOf(run, 1));
  for (const wrong of [
    { generation: 2 },
    { generation: 0 },
    { op: 2 },
    { op: 3 },
    { attempt: 2 },
    { attempt: 0 },
    { delivery: 1 },
    { delivery: 3 },
  ]) {
    expect([wrong, reasonOf(claimed(run, { ...claim, ...wrong }))]).toEqual([wrong, "FENCED"]);
  }
});

test("a failed attempt is tried again as the policy says, with its progress, or fails for good", () => {
  const retry = { attemptsMax: 2, initialMs: 100, intervalMsMax: 0, backoffMilli: 1000, jitterMilli: 0, nonRetryable: [] };
  const run = runOf(started(), schedule(1, options({ retry })));
  const attempt = { failure: failure("E"), worker: "w", progress: text("half"), timeMs: timeMs + 50 };
  const first = decideFailed(run, opOf(run, 1), attempt);
  expect(first).toEqual({
    kind: Kind.activityRetried,
    body: { op: 1, attempt: 1, failure: failure("E"), nextMs: timeMs + 150, worker: "w", heartbeat: text("half") },
  });
  fold(run, 2, [first]);
  const o = opOf(run, 1);
  expect({ attempt: o.attempt, delivery: o.delivery, dueMs: o.dueMs, heartbeat: o.heartbeat, last: o.lastFailure }).toEqual({
    attempt: 2,
    delivery: 1,
    dueMs: timeMs + 150,
    heartbeat: text("half"),
    last: "E happened",
  });
  expect([mayBeOffered(o, timeMs + 149), mayBeOffered(o, timeMs + 150)]).toEqual([false, true]);
  const last = decideFailed(run, o, { ...attempt, progress: undefined });
  expect(last).toEqual({ kind: Kind.activityFailed, body: { op: 1, attempt: 2, failure: failure("E"), worker: "w", refused: false } });
  expect(decideFailed(runOf(started(), schedule(1)), o, { ...attempt, failure: failure("E", true) }).kind).toBe(Kind.activityFailed);
});

test("no attempt is begun that the whole time limit would not let end", () => {
  const retry = { attemptsMax: 0, initialMs: 100, intervalMsMax: 0, backoffMilli: 1000, jitterMilli: 0, nonRetryable: [] };
  const run = runOf(started(), schedule(1, options({ retry, scheduleToCloseMs: 1000 })));
  const o = opOf(run, 1);
  const at = (ms: number) =>
    decideFailed(run, o, { failure: failure("E"), worker: "", progress: undefined, timeMs: o.scheduledMs + ms }).kind;
  expect([at(0), at(899), at(900), at(5000)]).toEqual([
    Kind.activityRetried,
    Kind.activityRetried,
    Kind.activityFailed,
    Kind.activityFailed,
  ]);
});

test("a timeout names its limit, and only the whole one forbids another attempt", () => {
  const o = opOf(runOf(started(), schedule(1, options({ startToCloseMs: 1, scheduleToCloseMs: 2, heartbeatMs: 3 }))), 1);
  const told = (["start-to-close", "schedule-to-close", "heartbeat"] as const).map((kind) => timeoutFailure(o, kind));
  expect(told.map((f) => f.nonRetryable)).toEqual([false, true, false]);
  expect(told.map((f) => f.message)).toEqual([
    "Activity charge passed its start-to-close limit of 1 ms in attempt 1",
    "Activity charge passed its schedule-to-close limit of 2 ms in attempt 1",
    "Activity charge passed its heartbeat limit of 3 ms in attempt 1",
  ]);
});

test("a timer is rounded up, never negative, and bounded by a hundred years", () => {
  const due = (ms: number) => (decideTimer(1, ms, timeMs).body as { dueMs: number }).dueMs - timeMs;
  expect([0, 0.2, 1, 2 ** 31 - 1, 2 ** 31, 2 ** 31 + 1, -5, 30 * 86_400_000].map(due)).toEqual([
    0,
    1,
    1,
    2 ** 31 - 1,
    2 ** 31,
    2 ** 31 + 1,
    0,
    30 * 86_400_000,
  ]);
  expect([Number.POSITIVE_INFINITY, Number.MAX_SAFE_INTEGER].map(due)).toEqual([limits.timerMsMax, limits.timerMsMax]);
});

test("ends: each from a live run only, told as an outcome", () => {
  const ends: [RunEvent, RunStatus, string | undefined][] = [
    [{ kind: Kind.runCompleted, body: { result: text("1") } }, RunStatus.completed, undefined],
    [{ kind: Kind.runFailed, body: { failure: failure("E") } }, RunStatus.failed, "E"],
    [{ kind: Kind.runCancelled, body: { reason: "why" } }, RunStatus.cancelled, "CancelledError"],
    [{ kind: Kind.runTerminated, body: { reason: "", ...noAsker } }, RunStatus.terminated, "TerminatedError"],
    [{ kind: Kind.runTimedOut, body: { deadlineMs: 5 } }, RunStatus.timedOut, "DeadlineError"],
  ];
  for (const [event, status, type] of ends) {
    const run = runOf(started(), schedule(1), signal("go"), event);
    expect([run.status, isLive(run), isClosed(run), run.pending.size, run.unclaimed.size, run.closedMs]).toEqual([
      status,
      false,
      true,
      0,
      0,
      timeMs + 3,
    ]);
    expect([outcomeOf(run).status, outcomeOf(run).failure?.type, isTerminal(event.kind), attentionMs(run)]).toEqual([
      status,
      type,
      true,
      Number.POSITIVE_INFINITY,
    ]);
    for (const decide of [decideCancel, decideTerminate]) expect(reasonOf(decide(run, ""))).toBe("RUN_CLOSED");
    expect(reasonOf(decideResume(run, noBytes))).toBe("RUN_CLOSED");
  }
  for (const kind of [Kind.runStarted, Kind.runBlocked, Kind.runResumed, Kind.cancelRequested, Kind.activityFailed])
    expect(isTerminal(kind)).toBe(false);
});

test("a cancellation is asked for once, a blocked run is resumed on its bundle or another", () => {
  const run = runOf(started());
  expect(reasonOf(decideResume(run, noBytes))).toBe("BAD_REQUEST");
  expect(reasonOf(decideCancel(runOf(), ""))).toBe("RUN_NOT_FOUND");
  expect(decideCancel(run, "why")).toEqual({ kind: Kind.cancelRequested, body: { reason: "why", ...noAsker } });
  fold(run, 1, [
    { kind: Kind.cancelRequested, body: { reason: "", ...noAsker } },
    { kind: Kind.runBlocked, body: { cause: "limit", message: "too long" } },
  ]);
  expect([decideCancel(run, ""), run.status, run.note, isLive(run)]).toEqual(["already", RunStatus.blocked, "too long", true]);
  expect(decideResume(run, noBytes)).toEqual({ kind: Kind.runResumed, body: { bundle } });
  run.deliveredSeq = 2;
  fold(run, 3, [{ kind: Kind.runResumed, body: { bundle: hash } }]);
  expect([run.status, run.note, run.bundle, isSettled(run)]).toEqual([RunStatus.running, "", hash, false]);
});

test("attention: at once while something is untold or an activity may run, else when the first thing is due", () => {
  const told = (...events: RunEvent[]) => {
    const run = runOf(...events);
    run.deliveredSeq = run.deliverableEnd;
    return run;
  };
  expect(attentionMs(runOf(started()))).toBe(0);
  expect(attentionMs(told(started()))).toBe(Number.POSITIVE_INFINITY);
  expect(attentionMs(told(started(), schedule(1)))).toBe(0);
  expect(attentionMs(told(started({ deadlineMs: 500 }), awaited(1, "go")))).toBe(timeMs + 500);
  expect(attentionMs(told(started({ deadlineMs: 500 }), awaited(1, "go"), queued(), queued({ budgetMs: 90 })))).toBe(timeMs + 3 + 90);
  expect(attentionMs(told(started({ deadlineMs: 500 }), decideTimer(1, 100, timeMs)))).toBe(timeMs + 100);
  const retried: RunEvent = {
    kind: Kind.activityRetried,
    body: { op: 1, attempt: 1, failure: undefined, nextMs: timeMs + 900, worker: "", heartbeat: undefined },
  };
  expect(attentionMs(told(started(), schedule(1), retried))).toBe(timeMs + 900);
  expect(attentionMs(told(started(), schedule(1, options({ scheduleToCloseMs: 300 })), retried))).toBe(timeMs + 1 + 300);
});

test("a small payload does not hold the message that it came in", () => {
  const message = new Uint8Array(1000);
  expect(kept(undefined)).toBeUndefined();
  expect(kept({ data: message.subarray(3, 5), ref: undefined })?.data.buffer.byteLength).toBe(2);
  const own = { data: message, ref: undefined };
  expect(kept(own)).toBe(own);
});

// Any sequence of events that a run can have, from a source of draws.
const draws = fc.array(fc.nat(16), { maxLength: 40 });

function lifeOf(steps: readonly number[]): { run: Run; events: RunEvent[] } {
  const run = emptyRun("default:r" as RunId);
  const events: RunEvent[] = [];
  const add = (event: RunEvent) => {
    applyEvent(run, event, { seq: events.length, timeMs: timeMs + events.length }, hash);
    events.push(event);
  };
  for (const [i, step] of steps.entries()) {
    const [o] = [...run.pending.values()].slice(step % 3);
    const next = run.nextOp;
    const [first] = run.queue;
    const ticket = run.queue.at(step % 2)?.ticket ?? 0;
    if (!isLive(run) && first !== undefined) add(decideNext(run, first));
    else if (!isLive(run)) add(started({ generation: run.generation + 1, idempotencyKey: step % 2 ? `k${i}` : "", deadlineMs: step }));
    else if (step < 2) add(schedule(next, options({ scheduleToCloseMs: step * 50, heartbeatMs: 3 })));
    else if (step < 3) add(decideTimer(next, i, timeMs));
    else if (step < 4) add(awaited(next, `s${i % 2}`));
    else if (step < 6) add(signal(`s${i % 2}`, step % 2 ? `id${i}` : ""));
    else if (step < 7) add({ kind: Kind.cancelRequested, body: { reason: "", ...noAsker } });
    else if (step < 8)
      add(
        run.status === RunStatus.blocked
          ? { kind: Kind.runResumed, body: { bundle } }
          : { kind: Kind.runBlocked, body: { cause: "limit", message: "m" } },
      );
    else if (step < 9) add({ kind: Kind.runCompleted, body: { result: text("r") } });
    else if (step === 12) add(queued({ idempotencyKey: i % 2 ? `k${i}` : "", budgetMs: i }));
    else if (step === 13) add({ kind: Kind.startExpired, body: { ticket, budgetMs: 1 } });
    else if (step === 14) add({ kind: Kind.startCancelled, body: { ticket, reason: "r", ...noAsker } });
    else if (step === 15) add({ kind: Kind.supersedeRequested, body: { ticket, reason: "r" } });
    else if (step === 16) add({ kind: Kind.signalQueued, body: { ticket, name: "s", payload: text("p"), id: `id${i}`, ...noAsker } });
    else if (o?.kind === Kind.activityScheduled)
      add(
        step === 9
          ? decideCompleted(run, o, text("x"), "w")
          : decideFailed(run, o, { failure: failure("E"), worker: "w", progress: text("p"), timeMs: timeMs + i }),
      );
    else if (o?.kind === Kind.timerStarted) add({ kind: Kind.timerFired, body: { op: o.op } });
    else if (o !== undefined) add({ kind: Kind.signalWaitCancelled, body: { op: o.op } });
  }
  return { run, events };
}

test("a state comes back from its bytes whole, and goes on the same", () => {
  fc.assert(
    fc.property(draws, draws, (before, after) => {
      const { run, events } = lifeOf(before);
      const bytes = (r: Run) => toBytes(encodeRunState, saveRun(r));
      const back = loadRun(run.run, fromBytes(decodeRunState, bytes(run)));
      expect(back).toEqual(run);
      const later = lifeOf([...before, ...after]).events.slice(events.length);
      for (const r of [run, back]) fold(r, events.length, later);
      expect(bytes(back)).toEqual(bytes(run));
    }),
  );
  expect(fromBytes(decodeRunState, toBytes(encodeRunState, saveRun(runOf(started())))).format).toBe(stateFormat);
});

test("every event comes back from its payload, and the fold keeps its invariants", () => {
  fc.assert(
    fc.property(draws, (steps) => {
      const { run, events } = lifeOf(steps);
      for (const event of events) expect(decodeBody(event.kind, toBytes(encodeBody, event))).toEqual(event);
      expect(isClosed(run) && run.pending.size > 0).toBe(false);
      for (const op of run.pending.keys()) expect(op).toBeLessThan(run.nextOp);
      if (events.some((e) => isForGuest(e.kind))) expect(run.deliverableEnd).toBeGreaterThan(0);
    }),
  );
  expect(decodeBody(Kind.bundleDeployed, noBytes)).toBeUndefined();
});

test("a run that is asked to end shows what the canceller said", () => {
  const run = runOf(started(), { kind: Kind.cancelRequested, body: { reason: "no more stock", ...noAsker } });
  expect(run.note).toBe("no more stock");
  fold(run, 2, [{ kind: Kind.runCancelled, body: { reason: run.note } }]);
  expect(outcomeOf(run).failure?.message).toContain("no more stock");
});
