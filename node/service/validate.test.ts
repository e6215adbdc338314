/** The edge against hostile and ordinary input: refused with field and rule, or carried intact. */
import { describe, expect, test } from "bun:test";
import { HopError, limits, nameProblem, type RunId } from "#core/base";
import {
  decodeSignalRequest,
  decodeStartRequest,
  encodeSignalRequest,
  encodeStartRequest,
  fromBytes,
  type StartRequestInit,
  toBytes,
} from "#proto";
import { allRuns } from "../../store/visibility/list-fixture.ts";
import {
  checkAddress,
  checkBlobHash,
  checkCancel,
  checkDeploy,
  checkList,
  checkQuery,
  checkResult,
  checkResume,
  checkSignal,
  checkStart,
  checkTerminate,
} from "./validate.ts";

const start = (init: StartRequestInit) =>
  checkStart(fromBytes(decodeStartRequest, toBytes(encodeStartRequest, { namespace: "default", type: "t", ...init })));

function refusal(check: () => unknown): HopError {
  try {
    check();
  } catch (error) {
    expect(error).toBeInstanceOf(HopError);
    return error as HopError;
  }
  throw new Error("was not refused");
}

describe("checkStart()", () => {
  test.each([" ", "/", "../", "../../etc/passwd", "a:b:c", "🦘", "'; DROP TABLE runs;--", "%00", "ﷺ", "-", "\u202e", "Ω≈ç√∫"])(
    "carries the instance %p intact",
    (instance) => {
      expect(start({ instance }).run as string).toBe(`default:${instance}`);
    },
  );

  test.each([
    ["NUL", "a\0b", "holds a control character"],
    ["newline", "a\nb", "holds a control character"],
    ["10 KB", "x".repeat(10_240), "has 10240 bytes, at most 255 are allowed"],
    ["256 bytes of emoji", "🦘".repeat(64), "has 256 bytes, at most 255 are allowed"],
  ])("refuses an instance with %s, naming field and rule", (_, instance, rule) => {
    const error = refusal(() => start({ instance }));
    expect(error.reason).toBe("BAD_REQUEST");
    expect(error.message).toContain('Cannot start a run: field "instance"');
    expect(error.message).toContain(rule);
    expect(error.message.length).toBeLessThan(400);
    expect(error.message).not.toMatch(/[\0\n]/);
  });

  test("an empty type, a bad namespace, contention, deadline and bundle are named", () => {
    expect(refusal(() => start({ type: "" })).message).toContain('field "type" is "", which is empty');
    expect(refusal(() => start({ namespace: "" })).message).toContain('field "namespace"');
    expect(refusal(() => start({ namespace: "a:b" })).message).toContain('field "namespace" is "a:b"');
    expect(refusal(() => start({ contention: "queue?" })).message).toContain('want one of "attach", "reject", "queue", "supersede"');
    expect(refusal(() => start({ contention: "supersede", overrideReason: " " })).message).toContain('field "override_reason" is empty');
    expect(refusal(() => start({ contention: "queue", overrideReason: "x" })).message).toContain('want it with "supersede" only');
    expect(refusal(() => start({ requestBudgetMs: limits.timerMsMax + 1 })).message).toContain("request_budget_ms");
    expect(refusal(() => start({ deadlineMs: limits.timerMsMax + 1 })).message).toContain("100 years");
    expect(refusal(() => start({ bundle: new Uint8Array(31) })).message).toContain("has 31 bytes, want the 32 of a SHA-256");
  });

  test("a start without a name gets a fresh one, and one with a key a derived one", () => {
    const names = new Set(Array.from({ length: 1000 }, () => start({}).run));
    expect(names.size).toBe(1000);
    for (const name of names) expect(name as string).toMatch(/^default:wf_[0-9a-hjkmnp-tv-z]{16}$/);
    const derived = start({ idempotencyKey: "k" }).run;
    expect(derived as string).toMatch(/^default:wf_[0-9a-hjkmnp-tv-z]{24}$/);
    expect(start({ idempotencyKey: "k" }).run).toBe(derived);
    const others = [
      start({ idempotencyKey: "k2" }),
      start({ idempotencyKey: "k", type: "u" }),
      start({ idempotencyKey: "k", namespace: "other" }),
    ];
    expect(new Set([derived, ...others.map((each) => each.run)].map((run) => run.split(":")[1])).size).toBe(4);
    expect(start({ idempotencyKey: "k", instance: "mine" }).run as string).toBe("default:mine");
  });

  test("a decoded deadline at the limit passes, and the whole command is as asked", () => {
    const command = start({
      instance: "a",
      deadlineMs: limits.timerMsMax,
      contention: "supersede",
      overrideReason: "wedged",
      requestBudgetMs: 7,
      awaitResult: true,
      input: { data: new Uint8Array([1]) },
    });
    expect(command).toEqual({
      kind: "start",
      namespace: "default",
      run: "default:a" as typeof command.run,
      type: "t",
      bundle: new Uint8Array(0),
      input: { data: new Uint8Array([1]), ref: undefined },
      contention: "supersede",
      overrideReason: "wedged",
      budgetMs: 7,
      idempotencyKey: "",
      deadlineMs: limits.timerMsMax,
      awaitResult: true,
    });
  });
});

describe("requests to a run", () => {
  test.each(["", " ", "no-colon", ":a", "a b:c", "default:", "🦘:x", `default:${"x".repeat(300)}`, "default:\0"])(
    "refuse the run id %p",
    (run) => {
      const error = refusal(() => checkAddress("describe a run", run));
      expect(error.message).toContain('Cannot describe a run: field "run"');
      expect(error.message).toContain("want namespace:instance");
    },
  );

  test("may be for one start that was queued", () => {
    expect(checkAddress("describe a run", "12@default:a@b:c")).toEqual({ run: "default:a@b:c" as RunId, ticket: 12 });
    expect(checkAddress("describe a run", "default:12@a")).toEqual({ run: "default:12@a" as RunId, ticket: 0 });
    for (const run of ["0@default:a", "-1@default:a", "@default:a", "1e3@default:a", "1234567890123456@default:a"])
      expect(refusal(() => checkAddress("describe a run", run)).message).toContain("its namespace");
    expect(checkCancel({ run: "12@default:a", reason: "" })).toEqual({ kind: "cancel", run: "default:a" as RunId, ticket: 12, reason: "" });
  });

  test("each kind names what it was about to do", () => {
    const run = "bad";
    expect(refusal(() => checkSignal({ run, name: "n", payload: undefined, id: "", channel: "" })).message).toStartWith(
      "Cannot send a signal",
    );
    expect(refusal(() => checkQuery({ run, name: "n", input: undefined })).message).toStartWith("Cannot query a run");
    expect(refusal(() => checkResult({ run, waitMs: 0, generation: 0 })).message).toStartWith("Cannot wait for a result");
    expect(refusal(() => checkTerminate({ run: "a:b", reason: "x".repeat(5000) })).message).toContain("has 5000 bytes, want at most 4096");
    expect(refusal(() => checkResume({ run: "a:b", bundle: new Uint8Array(32), newest: true })).message).toContain('"newest"');
    expect(refusal(() => checkResult({ run: "a:b", waitMs: Number.MAX_SAFE_INTEGER, generation: 0 })).message).toContain("wait_ms");
  });

  test("lists, deployments and blobs are bounded", () => {
    expect(checkList(allRuns).limit).toBe(100);
    expect(refusal(() => checkList({ ...allRuns, limit: 1001, deadLetters: false })).message).toContain("at most 1000");
    expect(refusal(() => checkList({ ...allRuns, status: 99 })).message).toContain("status");
    expect(refusal(() => checkDeploy({ namespace: "default", code: new Uint8Array(0), types: ["a"], held: false })).message).toContain(
      '"code" is empty',
    );
    expect(refusal(() => checkDeploy({ namespace: "default", code: new Uint8Array(1), types: [], held: false })).message).toContain(
      "declares no workflow",
    );
    expect(refusal(() => checkBlobHash(new Uint8Array(5))).message).toContain("has 5 bytes, want 32");
  });
});

const corpus = new URL("../../tests/vectors/hostile-input/blns.base64.json", import.meta.url);

test("every string of the hostile corpus is carried intact or refused with its field", async () => {
  const encoded = (await Bun.file(corpus).json()) as string[];
  const strings = encoded.map((text) => Buffer.from(text, "base64").toString());
  expect(strings.length).toBeGreaterThan(400);
  for (const text of strings) {
    const wire = fromBytes(decodeSignalRequest, toBytes(encodeSignalRequest, { run: `default:${text}`, name: text, id: "" }));
    if (nameProblem(text) === undefined) {
      const command = checkSignal(wire);
      expect(command.run as string).toBe(`default:${text}`);
      expect(command.name).toBe(text);
    } else {
      const error = refusal(() => checkSignal(wire));
      expect(error.message).toContain('field "run"');
      expect(Array.from(error.message).every((char) => char >= " ")).toBe(true);
    }
  }
});
