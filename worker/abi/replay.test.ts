import { describe, expect, test } from "bun:test";
import { type CommandInit, CommandKind, type PayloadInit } from "#proto";
import { EventLog, json } from "./event-fixture.ts";
import { readHistory } from "./history.ts";
import { ReplayCheck } from "./replay.ts";

const bundle = "abc123def4567890";
const advice =
  "Deploy code that asks for the recorded operations in their order and retry the run on it, or retry it on the bundle it ran on";

const charge = (op: number, amount: unknown = 5): CommandInit => ({
  kind: CommandKind.activity,
  op,
  name: "charge",
  payload: { data: json({ amount }) },
});
const ship = (op: number): CommandInit => ({ kind: CommandKind.activity, op, name: "ship", payload: { data: json("home") } });
const nap = (op: number, durationMs = 5000): CommandInit => ({ kind: CommandKind.timer, op, durationMs });
const wait = (op: number, name = "paid"): CommandInit => ({ kind: CommandKind.awaitSignal, op, name });
const tell = (op: number, to = "shop:o-2", value: unknown = 1): CommandInit => ({
  kind: CommandKind.sendSignal,
  op,
  to,
  name: "paid",
  payload: { data: json(value) },
});
const result = (op: number, to = "shop:o-2"): CommandInit => ({ kind: CommandKind.awaitResult, op, to });
const child = (op: number, part: CommandInit = {}): CommandInit => ({
  kind: CommandKind.spawn,
  op,
  to: "shop:p-1",
  name: "parcel",
  start: { contention: "attach" },
  closePolicy: 1,
  payload: { data: json(3) },
  ...part,
});
const call = (op: number, part: CommandInit = {}): CommandInit => ({ kind: CommandKind.cancelRun, op, to: "shop:p-1", child: 1, ...part });
const chunk = (op: number, value: unknown = "a"): CommandInit => ({ kind: CommandKind.yieldChunk, op, payload: { data: json(value) } });
const withdraw = (op: number): CommandInit => ({ kind: CommandKind.cancelOp, op });
const undo = (op: number, trigger = 0): CommandInit => ({
  kind: CommandKind.compensate,
  op,
  name: "refund",
  trigger,
  payload: { data: json(5) },
});
const answer = (number: number, value: unknown): CommandInit => ({
  kind: CommandKind.answerCall,
  op: number,
  payload: { data: json(value) },
});
const takeBack = (op: number): CommandInit => ({ kind: CommandKind.withdrawCompensation, op });
const complete = (value: unknown): CommandInit => ({ kind: CommandKind.complete, payload: { data: json(value) } });
const fail = (message: string): CommandInit => ({ kind: CommandKind.fail, failure: { type: "Error", message, stack: "at x" } });
const cancelled: CommandInit = { kind: CommandKind.cancelled, failure: { message: "stop" } };

/** The history that Core makes of these commands; `open` are operations that a withdrawal finds open. */
function recorded(commands: readonly CommandInit[], open: number[] = []) {
  const log = new EventLog();
  log.started("order", null);
  for (const command of commands) log.record(command, new Set(open));
  return readHistory(log.events).recorded;
}

function check(
  was: readonly CommandInit[],
  is: readonly CommandInit[],
  open: number[] = [],
): { problem: string | undefined; fresh: CommandInit[] } {
  const replay = new ReplayCheck(recorded(was, open), bundle);
  const problem = replay.take(is) ?? replay.finish();
  return { problem, fresh: replay.fresh };
}

describe("a replay that asks for what its history has", () => {
  const all = [charge(1), nap(2), wait(3), ship(4), tell(5), result(6), undo(7), undo(8, 1), takeBack(7), chunk(9)];

  test("has nothing new to ask", () => {
    for (const end of [complete({ ok: true }), fail("no"), cancelled]) {
      expect(check([...all, end], [...all, end])).toEqual({ problem: undefined, fresh: [] });
    }
  });

  test("goes on with what lies beyond", () => {
    expect(check(all.slice(0, 2), all)).toEqual({ problem: undefined, fresh: all.slice(2) });
    expect(check([], [complete(1)])).toEqual({ problem: undefined, fresh: [complete(1)] });
  });

  test("may move the place in the code where a failure arose", () => {
    const moved = { kind: CommandKind.fail, failure: { type: "Error", message: "no", stack: "at y" } };
    expect(check([fail("no")], [moved]).problem).toBeUndefined();
  });

  test("may not know of an end that Core decided", () => {
    expect(check([charge(1), cancelled], [charge(1)])).toEqual({ problem: undefined, fresh: [] });
  });
});

describe("withdrawals", () => {
  test("are expected where recorded, and passed on where not", () => {
    const was = [charge(1), nap(2), withdraw(2), ship(3)];
    expect(check(was, was, [2])).toEqual({ problem: undefined, fresh: [] });
    expect(check(was, was, [])).toEqual({ problem: undefined, fresh: [withdraw(2)] });
    expect(check(was, [...was, withdraw(3)], [2])).toEqual({ problem: undefined, fresh: [withdraw(3)] });
  });

  test("that the code no longer asks for do not matter", () => {
    expect(check([nap(1), withdraw(1), ship(2)], [nap(1), ship(2)], [1])).toEqual({ problem: undefined, fresh: [] });
  });
});

describe("a replay that diverges names both operations", () => {
  const cases: [string, CommandInit[], CommandInit[], string][] = [
    [
      "two steps swapped",
      [charge(1), ship(2)],
      [ship(1), charge(2)],
      'Operation 1 diverged: history (event 1) has activity "charge" with input {"amount":5}, the code asked for activity "ship" with input "home" (bundle abc123def456). ',
    ],
    [
      "another chunk",
      [chunk(1)],
      [chunk(1, "b")],
      'Operation 1 diverged: history (event 1) has a chunk "a", the code asked for a chunk "b" (bundle abc123def456). ',
    ],
    [
      "an undo with another trigger",
      [undo(1)],
      [undo(1, 1)],
      'Operation 1 diverged: history (event 1) has compensation "refund" on failure with input 5, the code asked for compensation "refund" always with input 5 (bundle abc123def456). ',
    ],
    [
      "an undo that is not taken back",
      [undo(1), takeBack(1), ship(2)],
      [undo(1), ship(2)],
      'Operation 1 diverged: history (event 2) has the withdrawal of compensation 1, the code asked for activity "ship" with input "home" (bundle abc123def456). ',
    ],
    [
      "a step renamed",
      [charge(1)],
      [{ ...charge(1), name: "bill" }],
      'Operation 1 diverged: history (event 1) has activity "charge" with input {"amount":5}, the code asked for activity "bill" with input {"amount":5} (bundle abc123def456). ',
    ],
    [
      "a step dropped at the end",
      [charge(1), ship(2)],
      [charge(1)],
      'Operation 2 diverged: history (event 2) has activity "ship" with input "home", the code asked for nothing more (bundle abc123def456). ',
    ],
    [
      "a step dropped before another",
      [charge(1), nap(2), ship(3)],
      [charge(1), ship(2)],
      'Operation 2 diverged: history (event 2) has a sleep of 5000 ms, the code asked for activity "ship" with input "home" (bundle abc123def456). ',
    ],
    [
      "a step added between",
      [charge(1), ship(2)],
      [charge(1), wait(2), ship(3)],
      'Operation 2 diverged: history (event 2) has activity "ship" with input "home", the code asked for a wait for signal "paid" (bundle abc123def456). ',
    ],
    [
      "arguments changed",
      [charge(1, 5)],
      [charge(1, 6)],
      'Operation 1 diverged: history (event 1) has activity "charge" with input {"amount":5}, the code asked for activity "charge" with input {"amount":6} (bundle abc123def456). ',
    ],
    [
      "the kind changed",
      [charge(1)],
      [nap(1)],
      'Operation 1 diverged: history (event 1) has activity "charge" with input {"amount":5}, the code asked for a sleep of 5000 ms (bundle abc123def456). ',
    ],
    [
      "the length of a sleep changed",
      [nap(1, 5000)],
      [nap(1, 6000)],
      "Operation 1 diverged: history (event 1) has a sleep of 5000 ms, the code asked for a sleep of 6000 ms (bundle abc123def456). ",
    ],
    [
      "another signal awaited",
      [wait(1, "paid")],
      [wait(1, 'pa"id')],
      'Operation 1 diverged: history (event 1) has a wait for signal "paid", the code asked for a wait for signal "pa\\"id" (bundle abc123def456). ',
    ],
    [
      "a signal to another run",
      [tell(1)],
      [tell(1, "shop:o-3")],
      'Operation 1 diverged: history (event 1) has signal "paid" to shop:o-2 with payload 1, the code asked for signal "paid" to shop:o-3 with payload 1 (bundle abc123def456). ',
    ],
    [
      "another payload of a signal",
      [tell(1)],
      [tell(1, "shop:o-2", 2)],
      'Operation 1 diverged: history (event 1) has signal "paid" to shop:o-2 with payload 1, the code asked for signal "paid" to shop:o-2 with payload 2 (bundle abc123def456). ',
    ],
    [
      "the result of another run",
      [result(1)],
      [result(1, "shop:o-3")],
      "Operation 1 diverged: history (event 1) has a wait for the result of shop:o-2, the code asked for a wait for the result of shop:o-3 (bundle abc123def456). ",
    ],
    [
      "an end in place of a step",
      [charge(1)],
      [complete("done")],
      'Operation 1 diverged: history (event 1) has activity "charge" with input {"amount":5}, the code asked for the run\'s end with result "done" (bundle abc123def456). ',
    ],
    [
      "a failure in place of a step",
      [charge(1)],
      [fail("x is undefined")],
      'Operation 1 diverged: history (event 1) has activity "charge" with input {"amount":5}, the code asked for the run\'s failure with Error: x is undefined (bundle abc123def456). ',
    ],
    [
      "another result",
      [complete(1)],
      [complete(2)],
      "The end of the run diverged: history (event 1) has the run's end with result 1, the code asked for the run's end with result 2 (bundle abc123def456). ",
    ],
    [
      "a failure in place of a result",
      [complete(1)],
      [fail("no")],
      "The end of the run diverged: history (event 1) has the run's end with result 1, the code asked for the run's failure with Error: no (bundle abc123def456). ",
    ],
    [
      "another answer to a call",
      [answer(3, "yes")],
      [answer(3, "no")],
      'The answer to method call 3 diverged: history (event 1) has the answer to method call 3 with result "yes", the code asked for the answer to method call 3 with result "no" (bundle abc123def456). ',
    ],
    [
      "a step in place of an answer",
      [answer(3, "yes")],
      [charge(1)],
      'The answer to method call 3 diverged: history (event 1) has the answer to method call 3 with result "yes", the code asked for activity "charge" with input {"amount":5} (bundle abc123def456). ',
    ],
    [
      "an answer in place of the end",
      [complete(1)],
      [answer(3, "yes")],
      'The end of the run diverged: history (event 1) has the run\'s end with result 1, the code asked for the answer to method call 3 with result "yes" (bundle abc123def456). ',
    ],
  ];
  for (const [what, was, is, problem] of cases) {
    test(what, () => expect(check(was, is).problem).toBe(problem + advice));
  }

  test("long arguments are shown where they begin to differ", () => {
    const long = (tail: string) => charge(1, `${"a".repeat(200)}${tail}${"b".repeat(200)}`);
    const { problem } = check([long("1")], [long("2")]);
    expect(problem).toContain(`input …${"a".repeat(20)}1${"b".repeat(59)}…`);
    expect(problem).toContain(`input …${"a".repeat(20)}2${"b".repeat(59)}…`);
  });

  test("each of many operations counts, wherever the change is", () => {
    const was = Array.from({ length: 50 }, (_, i) => charge(i + 1, i));
    for (let at = 0; at < was.length; at++) {
      const is = was.with(at, charge(at + 1, "other"));
      expect(check(was, is).problem).toStartWith(`Operation ${at + 1} diverged`);
    }
  });
});

describe("arguments that went to storage", () => {
  const data = json("x".repeat(100_000));
  const sha256 = new Bun.CryptoHasher("sha256").update(data).digest();
  const large = (payload: PayloadInit): CommandInit => ({ kind: CommandKind.activity, op: 1, name: "charge", payload });
  const stored = large({ ref: { sha256, size: data.length } });

  test("agree by hash and size", () => {
    expect(check([stored], [large({ data })])).toEqual({ problem: undefined, fresh: [] });
  });

  test("diverge where a byte differs, or the length", () => {
    const other = data.slice();
    other[500] = 121;
    expect(check([stored], [large({ data: other })]).problem).toContain(
      `has activity "charge" with input of 100002 bytes (SHA-256 ${Buffer.from(sha256).toString("hex").slice(0, 12)})`,
    );
    expect(check([stored], [large({ data: data.slice(1) })]).problem).toContain("Operation 1 diverged");
    expect(check([stored], [large({})]).problem).toContain("with input of no bytes");
  });
});

test("commands may be taken in any number of parts", () => {
  const was = [charge(1), nap(2), wait(3), ship(4)];
  const replay = new ReplayCheck(recorded(was.slice(0, 3)), bundle);
  for (const command of was) expect(replay.take([command])).toBeUndefined();
  expect(replay.take([])).toBeUndefined();
  expect(replay.finish()).toBeUndefined();
  expect(replay.fresh).toEqual([ship(4)]);
});

test("a child is the same one by name, type, input, contention and policy, whatever its code; a cancellation by whom it is for", () => {
  const same = [child(1), call(2)];
  expect(check(same, [child(1, { ownCode: true }), call(2, { reason: "another" })])).toEqual({ problem: undefined, fresh: [] });
  const others = [
    { to: "shop:p-2" },
    { name: "letter" },
    { start: { contention: "queue" } },
    { closePolicy: 3 },
    { payload: { data: json(4) } },
  ];
  for (const part of others) expect(check(same, [child(1, part), call(2)]).problem).toContain("Operation 1 diverged");
  expect(check(same, [child(1), call(2, { child: 0 })]).problem).toContain("Operation 2 diverged");
  expect(check(same, [child(1, { closePolicy: 3 })]).problem).toContain(
    'history (event 1) has a child shop:p-1 of type "parcel" (contention attach, parent-close policy terminate) with input 3, ' +
      'the code asked for a child shop:p-1 of type "parcel" (contention attach, parent-close policy abandon) with input 3',
  );
});
