import { expect, test } from "bun:test";
import { HopError, type Reason, reasons } from "#core/base";
import { CommandError, exitCodeOf, UsageError } from "./failure.ts";
import { Output } from "./output.ts";
import { bufferSink } from "./sink-fixture.ts";

/** The whole contract in one place: a program that scripts `hop` relies on each line. */
const contract: Record<Reason, number> = {
  BAD_REQUEST: 2,
  PAYLOAD_TOO_LARGE: 2,
  UNAUTHENTICATED: 3,
  RUN_NOT_FOUND: 4,
  SCHEDULE_NOT_FOUND: 4,
  SCHEDULE_EXISTS: 5,
  CHANNEL_NOT_FOUND: 4,
  CHANNEL_EXISTS: 5,
  CHANNEL_CLOSED: 5,
  WORKFLOW_NOT_DEPLOYED: 4,
  QUERY_NOT_FOUND: 4,
  BLOB_NOT_FOUND: 4,
  NODE_NOT_FOUND: 4,
  SHARD_NOT_FOUND: 4,
  DEAD_LETTER_NOT_FOUND: 4,
  ENTRY_NOT_FOUND: 4,
  VERSION_CONFLICT: 5,
  SHARD_BUSY: 5,
  ALREADY_MEMBER: 5,
  INSTANCE_LIVE: 5,
  IDEMPOTENCY_CONFLICT: 5,
  RUN_CLOSED: 5,
  ANSWER_NOT_KEPT: 5,
  HISTORY_EXPIRED: 5,
  RUN_QUEUED: 5,
  RUN_BLOCKED: 5,
  FENCED: 5,
  NOT_A_MEMBER: 5,
  FOREIGN_CLUSTER: 5,
  BUFFER_FULL: 6,
  NO_SPACE: 6,
  NOT_LEADER: 6,
  STALE_EPOCH: 6,
  BUDGET_EXPIRED: 6,
  STORE_UNAVAILABLE: 6,
  QUERY_FAILED: 1,
  HASH_MISMATCH: 1,
  INTERNAL: 1,
};

test.each(Object.keys(reasons) as Reason[])("%s has the exit code that is promised", (reason) => {
  expect(exitCodeOf(new HopError(reason, "no"))).toBe(contract[reason] as never);
});

test("errors of the client library are told by their reason too", () => {
  expect(exitCodeOf(Object.assign(new Error("gone"), { reason: "RUN_NOT_FOUND" }))).toBe(4);
  expect(exitCodeOf(Object.assign(new Error("odd"), { reason: "toString" }))).toBe(1);
});

test("anything else that is thrown is a failure", () => {
  expect(exitCodeOf(new Error("x"))).toBe(1);
  expect(exitCodeOf("x")).toBe(1);
  expect(exitCodeOf(new UsageError("x"))).toBe(2);
});

test("an error is shown with its reason and with what to do next", () => {
  const err = bufferSink();
  const code = new Output({ err, env: {} }).fail(new HopError("RUN_NOT_FOUND", "Cannot show default:x: there is no such run"));
  expect(code).toBe(4);
  expect(err.text()).toBe(
    "error: Cannot show default:x: there is no such run (RUN_NOT_FOUND)\n  next: list what there is with `hop workflow list`\n",
  );
});

test.each([
  ["shard split", "  next: try again; see how the node and its cluster stand with `hop cluster status`\n"],
  ["workflow query", "  next: try again; a query needs a worker that has the run's code: start one with `hop worker`, or `hop dev`\n"],
  ["server start", ""],
])("what helps where hop %s meets something unavailable", (command, next) => {
  const err = bufferSink();
  expect(new Output({ err, env: {}, command }).fail(new HopError("STORE_UNAVAILABLE", "Cannot do it"))).toBe(6);
  expect(err.text()).toBe(`error: Cannot do it (STORE_UNAVAILABLE)\n${next}`);
});

test("an error's text can't steer the terminal", () => {
  const err = bufferSink();
  new Output({ err, env: {} }).fail(new Error("bad \u001b[31mname\u0007\nsecond line"));
  expect(err.text()).toBe("error: bad \\u001b[31mname\\u0007\nsecond line\n");
});

test("for programs an error is one line of JSON on standard error", () => {
  const err = bufferSink();
  new Output({ err, format: "json", env: {} }).fail(new CommandError(6, "Cannot reach it", { next: "start it" }));
  expect(JSON.parse(err.text())).toEqual({ error: { message: "Cannot reach it", next: "start it", exitCode: 6 } });
});
