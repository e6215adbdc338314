/** restate#4396: a command that was journalled under the wrong type poisoned the runs that had it. */
import { describe, expect, test } from "bun:test";
import { existsSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { RunId } from "#core/base";
import { decodeBody, encodeBody, type RunEvent } from "#core/run";
import { type CommandInit, CommandKind, decodeCommand, decodeEvent, EventKind, encodeCommand, fromBytes, toBytes, Writer } from "#proto";
import { readHistory } from "../../../worker/abi/history.ts";
import { ReplayCheck } from "../../../worker/abi/replay.ts";
import type { Node } from "../../sim/program.ts";
import { VirtualShard } from "./virtual-shard.ts";

/**
 * Histories and commands as versions wrote them. `REWRITE=1` adds what is new and changes nothing that is there; where a
 * version records otherwise, the older history stays under another name.
 */
const file = fileURLToPath(new URL("../../golden/host-calls.json", import.meta.url));

interface Golden {
  /** A command of each kind, in hex. */
  readonly commands: Readonly<Record<string, string>>;
  /** Event bytes of runs, in hex. */
  readonly histories: Readonly<Record<string, readonly string[]>>;
}

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");
const bytesOf = (text: string) => new Uint8Array(Buffer.from(text, "hex"));
const data = (value: unknown) => ({ data: new TextEncoder().encode(JSON.stringify(value)) });
const failure = {
  type: "RangeError",
  message: "too far",
  stack: "at f",
  details: data([1]),
  nonRetryable: true,
  cause: { type: "Error", message: "why" },
};

const commands: Readonly<Record<string, CommandInit>> = {
  activity: {
    kind: CommandKind.activity,
    op: 1,
    name: "charge",
    payload: data({ amount: 5 }),
    options: {
      retry: { attemptsMax: 3, initialMs: 100, intervalMsMax: 1000, backoffMilli: 2000, jitterMilli: 200, nonRetryable: ["Picky"] },
      startToCloseMs: 1,
      scheduleToCloseMs: 2,
      heartbeatMs: 3,
      idempotencyKey: "k",
    },
  },
  timer: { kind: CommandKind.timer, op: 2, durationMs: 2 ** 31 + 1 },
  awaitSignal: { kind: CommandKind.awaitSignal, op: 3, name: "päid" },
  cancelOp: { kind: CommandKind.cancelOp, op: 2 },
  complete: { kind: CommandKind.complete, payload: data("done") },
  fail: { kind: CommandKind.fail, failure },
  cancelled: { kind: CommandKind.cancelled, failure: { type: "CancelledError", message: "stop" } },
  sendSignal: { kind: CommandKind.sendSignal, op: 4, to: "shop:päid 1", name: "go", payload: data([1]) },
  compensate: { kind: CommandKind.compensate, op: 6, name: "refund", payload: data(1), trigger: 1, options: { idempotencyKey: "u" } },
  withdrawCompensation: { kind: CommandKind.withdrawCompensation, op: 6 },
  awaitResult: { kind: CommandKind.awaitResult, op: 5, to: "shop:a:b" },
  spawn: {
    kind: CommandKind.spawn,
    op: 7,
    name: "parcel",
    to: "shop:p 1",
    payload: data([2]),
    start: { contention: "queue", budgetMs: 5, deadlineMs: 6, idempotencyKey: "s" },
    closePolicy: 2,
    ownCode: true,
  },
  cancelRun: { kind: CommandKind.cancelRun, op: 8, to: "shop:p 1", child: 7, reason: "late" },
  callMethod: { kind: CommandKind.callMethod, op: 9, to: "shop:a", name: "withdraw", payload: data(3), propagates: true, inCall: 4 },
  answerCall: { kind: CommandKind.answerCall, op: 4, failure, rejected: true },
  setSearchable: { kind: CommandKind.setSearchable, op: 10, name: "customer", searchable: '"ann"' },
  sendChannel: { kind: CommandKind.sendChannel, op: 12, to: "shop:päid 1", payload: data([3]) },
  readChannel: { kind: CommandKind.readChannel, op: 13, to: "shop:clicks", messagesMax: 300, lingerMs: 500 },
  yieldChunk: { kind: CommandKind.yieldChunk, op: 11, payload: data({ token: "päid" }) },
};

const plan = { ms: 0, fails: 0, hangs: 0, isFatal: false, beatMs: 0 };
const call = (name: string): Node => ({ kind: "activity", name, plan, options: undefined });
const programs: Readonly<Record<string, Node>> = {
  completes: {
    kind: "seq",
    of: [
      call("a0"),
      { kind: "sleep", ms: 1000 },
      { kind: "signal", name: "s0" },
      { kind: "race", of: [call("a1"), { kind: "sleep", ms: 5000 }, { kind: "signal", name: "s1" }] },
    ],
  },
  fails: call("a0"),
  cancelled: { kind: "all", of: [call("a0"), { kind: "sleep", ms: 60_000 }, { kind: "signal", name: "s0" }] },
  terminated: { kind: "sleep", ms: 60_000 },
};

function record(type: string): string[] {
  const shard = new VirtualShard({ programs });
  const run = `default:${type}` as RunId;
  shard.join();
  shard.start(type, type);
  shard.advance(10);
  if (type === "completes") {
    shard.complete(shard.tasks[0] as never, { ok: true });
    shard.advance(1000);
    shard.command({ kind: "signal", run, name: "s0", payload: undefined, id: "one" });
    shard.complete(shard.tasks[0] as never, [1, 2]);
  } else if (type === "fails") shard.fail(shard.tasks[0] as never, "no");
  else if (type === "cancelled") shard.command({ kind: "cancel", run, reason: "why not" });
  else shard.command({ kind: "terminate", run, reason: "enough" });
  shard.advance(10);
  return shard.events(type).map(({ bytes }) => hex(bytes));
}

function now(): Golden {
  return {
    commands: Object.fromEntries(Object.entries(commands).map(([name, command]) => [name, hex(toBytes(encodeCommand, command))])),
    histories: Object.fromEntries(Object.keys(programs).map((type) => [type, record(type)])),
  };
}

async function golden(): Promise<Golden> {
  const kept = existsSync(file) ? ((await Bun.file(file).json()) as Golden) : { commands: {}, histories: {} };
  if (process.env.REWRITE !== "1") return kept;
  const fresh = now();
  const all = { commands: { ...fresh.commands, ...kept.commands }, histories: { ...fresh.histories, ...kept.histories } };
  writeFileSync(file, `${JSON.stringify(all, undefined, 1)}\n`);
  return all;
}

const kept = await golden();

test("every kind of command is in the golden file", () => {
  const { unspecified: _none, ...kinds } = CommandKind as Record<string, number>;
  expect(Object.keys(kept.commands).sort()).toEqual(Object.keys(kinds).sort());
});

describe.each(Object.entries(kept.commands))("the command %s", (name, bytes) => {
  test("has the bytes it always had", () => {
    expect(hex(toBytes(encodeCommand, commands[name] as CommandInit))).toBe(bytes);
  });

  test("comes back from its bytes under its own kind, whole", () => {
    const decoded = fromBytes(decodeCommand, bytesOf(bytes));
    expect(decoded.kind).toBe(CommandKind[name as keyof typeof CommandKind]);
    expect(hex(toBytes(encodeCommand, decoded))).toBe(bytes);
    expect(decoded).toMatchObject(
      JSON.parse(JSON.stringify(commands[name], (key, value: unknown) => (key === "data" ? undefined : value))) as object,
    );
  });
});

describe.each(Object.entries(kept.histories))("the history of a run that %s", (type, events) => {
  test("is recorded with the bytes it always had", () => {
    expect(record(type)).toEqual([...events]);
  });

  test("is decoded and encoded again without loss", () => {
    for (const each of events) {
      const { kind, payload } = fromBytes(decodeEvent, bytesOf(each));
      const w = new Writer(256);
      encodeBody(w, decodeBody(kind, payload) as RunEvent);
      expect(hex(w.bytes.subarray(0, w.at))).toBe(hex(payload));
    }
  });

  test("is replayed, and asked for nothing that it does not have", () => {
    const { recorded } = readHistory(events.map(bytesOf));
    const check = new ReplayCheck(recorded, "golden");
    const kinds = events.map((each) => fromBytes(decodeEvent, bytesOf(each)).kind);
    const asked: CommandInit[] = events.flatMap((each) => commandOf(fromBytes(decodeEvent, bytesOf(each))));
    expect(check.take(asked) ?? check.finish()).toBeUndefined();
    expect(check.fresh).toEqual([]);
    // The same commands under another kind are not taken for those that are recorded.
    const [first] = asked;
    if (first?.kind !== CommandKind.activity) return;
    const wrong = new ReplayCheck(recorded, "golden");
    expect(wrong.take([{ kind: CommandKind.awaitSignal, op: first.op, name: first.name }]) ?? wrong.finish()).toContain("activity");
    expect(kinds[0]).toBe(EventKind.runStarted);
  });
});

/** What the guest had asked for when the event was recorded. */
function commandOf({ kind, payload }: { readonly kind: number; readonly payload: Uint8Array }): CommandInit[] {
  const event = decodeBody(kind, payload) as RunEvent;
  switch (event.kind) {
    case EventKind.activityScheduled:
      return [
        { kind: CommandKind.activity, op: event.body.op, name: event.body.name, payload: event.body.input, options: event.body.options },
      ];
    case EventKind.timerStarted:
      return [{ kind: CommandKind.timer, op: event.body.op, durationMs: event.body.durationMs }];
    case EventKind.signalAwaited:
      return [{ kind: CommandKind.awaitSignal, op: event.body.op, name: event.body.name }];
    case EventKind.activityCancelled:
    case EventKind.timerCancelled:
    case EventKind.signalWaitCancelled:
      return [{ kind: CommandKind.cancelOp, op: event.body.op }];
    case EventKind.runCompleted:
      return [{ kind: CommandKind.complete, payload: event.body.result }];
    case EventKind.runFailed:
      return [{ kind: CommandKind.fail, failure: event.body.failure }];
    case EventKind.runCancelled:
      return [{ kind: CommandKind.cancelled, failure: { type: "CancelledError", message: event.body.reason } }];
    default:
      return [];
  }
}
