import { expect, test } from "bun:test";
import { asSeq, type Reply, type RunId } from "#core/base";
import { contentions } from "#core/run";
import type { Command } from "#core/shard";
import { decodeForwardedCommand, decodeForwardedReply, encodeForwardedCommand, encodeForwardedReply, fromBytes, toBytes } from "#proto";
import { commandOf, forwardedOf, forwardedReplyOf, replyOf } from "./forward-codec.ts";

const envelope = { identity: { issuer: "local", subject: "ann", verified: false, causeSeq: 0 }, shard: 1, epoch: 2 };
const run = "default:a@b:c" as RunId;
const start = {
  kind: "start",
  run,
  type: "t",
  bundle: new Uint8Array(32),
  input: undefined,
  contention: "attach",
  idempotencyKey: "k",
  deadlineMs: 5,
  awaitResult: true,
  budgetMs: 7,
  overrideReason: "",
} as const;
const travelled = (bytes: Uint8Array) => commandOf(fromBytes(decodeForwardedCommand, bytes));
const sent = (command: Command) => travelled(toBytes(encodeForwardedCommand, forwardedOf(envelope, command)));

test("a command arrives as it was sent, with what it says of a queue", () => {
  const to = { run, ticket: 12 };
  const commands: Command[] = [
    ...contentions.map((contention): Command => ({ ...start, contention, overrideReason: contention === "supersede" ? "wedged" : "" })),
    { kind: "signal", ...to, name: "s", payload: undefined, id: "i" },
    { ...start, signal: { name: "s", payload: undefined, id: "i" } },
    { kind: "call", ...to, name: "m", input: undefined, id: "i" },
    { kind: "query", ...to, name: "q", input: undefined },
    { kind: "await-result", run, ticket: 0, generation: 3 },
    { kind: "await-result", ...to, generation: 0 },
    { kind: "cancel", ...to, reason: "r" },
    { kind: "terminate", run, ticket: 0, reason: "r" },
    { kind: "pause", run, ticket: 0, reason: "r" },
    { kind: "unpause", run, ticket: 7, reason: "" },
    { kind: "resume", ...to, bundle: new Uint8Array(0) },
    { kind: "replay-letter", run, letter: 9 },
    { kind: "drop-letter", run, letter: 9, reason: "r" },
  ];
  for (const command of commands) expect(sent(command)).toEqual(command);
});

test("a contention of a later version is refused by name, and never taken for another", () => {
  const forwarded = forwardedOf(envelope, start);
  if (forwarded.kind !== "start") throw new Error("It is no start");
  const bytes = toBytes(encodeForwardedCommand, { ...forwarded, value: { ...forwarded.value, contention: "stack" } });
  expect(() => travelled(bytes)).toThrow('this version does not know contention "stack"');
});

test("what a start has come to arrives with its ticket and its place", () => {
  const started = { run, generation: 0, attached: true, ticket: 12 } as const;
  const replies: Reply[] = [
    { kind: "started", ...started, place: 3 },
    { kind: "started", run, generation: 2, attached: false },
    { kind: "called", seq: asSeq(9), result: undefined, failure: undefined, rejected: true },
    { kind: "rejected", rejection: { reject: "STALE_EPOCH", message: "m", retryAfterMs: 10, epoch: 0 }, started },
  ];
  for (const reply of replies) {
    const bytes = toBytes(
      encodeForwardedReply,
      forwardedReplyOf(reply, () => ({ leader: 0, leaseEpoch: 0 })),
    );
    expect(replyOf(fromBytes(decodeForwardedReply, bytes)).reply).toEqual(reply);
  }
});
