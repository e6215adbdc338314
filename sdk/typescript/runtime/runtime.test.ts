/** The package outside of a sandbox, its checks, and the types it gives. */
import { expect, test } from "bun:test";
import { checkAddress, checkDuration, timerMsMax, utf8Bytes, wholeMs } from "./checks.ts";
import * as runtime from "./index.ts";
import {
  type Activities,
  ActivityError,
  ActivityFailure,
  activities,
  CancelledError,
  durable,
  type Workflow,
  type WorkflowInput,
  type WorkflowOutput,
} from "./index.ts";

test("outside of a run each call says that it needs one", () => {
  const calls: Record<string, () => unknown> = {
    "activity()": () => runtime.activity("x"),
    "compensate()": () => runtime.compensate("x"),
    "sleep()": () => runtime.sleep(1),
    "signal()": () => runtime.signal("x"),
    "sendSignal()": () => runtime.sendSignal("shop:o-1", "x"),
    "resultOf()": () => runtime.resultOf("o-1"),
    "query()": () => runtime.query("x", () => 1),
    "now()": () => runtime.now(),
    "random()": () => runtime.random(),
    "uuid()": () => runtime.uuid(),
    "log.info()": () => runtime.log.info("x"),
    "shield()": () => runtime.shield(() => 1),
    "workflowInfo()": () => runtime.workflowInfo(),
  };
  for (const [name, call] of Object.entries(calls)) expect(call).toThrow(`Cannot use ${name} here: it works only inside a workflow`);
});

test("encode() takes a value as it is, to travel as that", () => {
  const items = [1];
  const encoded = runtime.encode({ items });
  items.push(2);
  expect(JSON.stringify([encoded])).toBe('[{"items":[1]}]');
  for (const wrong of [undefined, () => 1, 1n]) expect(() => runtime.encode(wrong)).toThrow(TypeError);
});

test("a compensation has a trigger and an activity's options, and says what is wrong with them", () => {
  for (const [options, why] of [
    [{ trigger: "on-success" }, 'trigger must be "on-failure" or "always", got "on-success"'],
    [{ retries: 1 }, "retries is not known"],
    [{ retry: { attempts: 0 } }, "attempts must be a whole number from 1 on"],
    [null, "must be an object, got null"],
  ] as const) {
    expect(() => runtime.compensate("undo", 1, options as never)).toThrow(why);
  }
  expect(() => runtime.compensate("")).toThrow("name is empty");
});

test("durable() takes a function and keeps its name", () => {
  async function trialReminder(user: { email: string }) {
    return user.email;
  }
  expect(durable(trialReminder).name).toBe("trialReminder");
  for (const wrong of [undefined, null, 1, {}]) expect(() => durable(wrong as never)).toThrow(TypeError);
});

test("durations are whole milliseconds, never early", () => {
  expect([0, -0, -5, 0.1, 1, 1.5, timerMsMax].map((ms) => checkDuration("x", ms))).toEqual([0, 0, 0, 1, 1, 2, timerMsMax]);
  for (const ms of [Number.NaN, "1", undefined, null, {}, 1n]) expect(() => checkDuration("x", ms)).toThrow(TypeError);
  for (const ms of [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, timerMsMax + 1])
    expect(() => checkDuration("x", ms)).toThrow(RangeError);
  expect([Number.NaN, Number.NEGATIVE_INFINITY, -5, 0.1, Number.POSITIVE_INFINITY].map(wholeMs)).toEqual([0, 0, 0, 1, timerMsMax]);
});

test("an address is namespace:instance, or an instance alone", () => {
  for (const address of ["o-1", "shop:o-1", "shop:a:b", "o 1/é", "a-b.c_d:x"]) expect(() => checkAddress(address)).not.toThrow();
  for (const [address, why] of [
    ["", "instance name that is empty"],
    ["shop:", "instance name that is empty"],
    [":o-1", "namespace that is not"],
    ["sh op:o-1", "namespace that is not"],
    ["o\n1", "control character"],
    ["x".repeat(256), "longer than 255 bytes"],
    [17, "must be a string, got 17"],
  ] as const) {
    expect(() => checkAddress(address)).toThrow(why);
    expect(() => runtime.sendSignal(address as string, "x")).toThrow(TypeError);
  }
  expect(() => runtime.sendSignal("shop:o-1", "")).toThrow("Signal name is empty");
});

test("utf8Bytes() counts what an encoder writes", () => {
  const encoder = new TextEncoder();
  for (const text of ["", "a", "é", "€", "😀", "\ud800", "a\udfff", "\ud83d", "é€😀\ud83dx".repeat(100)])
    expect(utf8Bytes(text)).toBe(encoder.encode(text).length);
});

test("errors keep what they are given", () => {
  const cause = new Error("declined");
  const error = new ActivityError("charge", { type: "CardDeclined", message: "declined", details: { code: 7 }, attempts: 3, cause });
  expect(error).toMatchObject({
    name: "ActivityError",
    activity: "charge",
    type: "CardDeclined",
    details: { code: 7 },
    attempts: 3,
    cause,
  });
  expect(error.message).toBe('Activity "charge" failed: declined');
  expect(new CancelledError("late").message).toBe("The run was cancelled: late");
  expect(new ActivityFailure("CardDeclined", "no", { details: 1, nonRetryable: true, cause })).toMatchObject({
    name: "CardDeclined",
    details: 1,
    nonRetryable: true,
    cause,
  });
});

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
/** Compiles only for `true`. */
const holds = <_Claim extends true>(): void => {};

test("types carry from a workflow to whoever starts it, and from activities to the workflow", () => {
  const order = durable(async (input: { id: string }) => ({ total: input.id.length }));
  const bare = durable(async () => 5);
  const chunks = durable(async function* (n: number) {
    yield "a chunk";
    return n > 0;
  });
  holds<Same<typeof order, Workflow<{ id: string }, { total: number }>>>();
  holds<Same<WorkflowInput<typeof order>, { id: string }>>();
  holds<Same<WorkflowOutput<typeof order>, { total: number }>>();
  holds<Same<WorkflowInput<typeof bare>, void>>();
  holds<Same<WorkflowOutput<typeof bare>, number>>();
  holds<Same<WorkflowInput<typeof chunks>, number>>();
  holds<Same<WorkflowOutput<typeof chunks>, boolean>>();
  interface Module {
    charge(input: { cents: number }, context: { attempt: number }): Promise<{ id: string }>;
    ping(): string;
    readonly limit: number;
  }
  holds<Same<keyof Activities<Module>, "charge" | "ping">>();
  holds<Same<Parameters<Activities<Module>["charge"]>[0], { cents: number }>>();
  holds<Same<ReturnType<Activities<Module>["charge"]>, Promise<{ id: string }>>>();
  holds<Same<ReturnType<Activities<Module>["ping"]>, Promise<string>>>();
  const calls = activities<Module>({ startToCloseMs: 5 });
  expect(typeof calls.charge).toBe("function");
  expect(calls.charge).toBe(calls.charge);
  expect(Reflect.get(calls, "then")).toBeUndefined();
  expect(() => activities<Module>({ startToCloseMs: Number.NaN })).toThrow(TypeError);
});
