/** Requests for votes that come before their shard does. */
import { expect, test } from "bun:test";
import { asNodeId, asShardId } from "#core/base";
import { type MessageKind as Kind, type Message, MessageKind } from "#core/raft";
import { EarlyVotes } from "./early-votes.ts";

const [child, other] = [asShardId(7), asShardId(8)];
const request = (from: number, term: number, kind: Kind = MessageKind.preVote) =>
  ({ kind, from: asNodeId(from), to: asNodeId(1), term }) as unknown as Message;

test("the newest of each candidate is answered at birth, once", () => {
  const early = new EarlyVotes(() => 0);
  for (const [from, term] of [
    [2, 1],
    [3, 1],
    [2, 2],
  ] as const)
    early.keep(child, request(from, term));
  early.keep(other, request(2, 9, MessageKind.vote));
  expect(early.take(child).map(({ from, term }) => [from, term] as number[])).toEqual([
    [3, 1],
    [2, 2],
  ]);
  expect(early.take(child)).toEqual([]);
  expect(early.take(other).length).toBe(1);
});

test("what is no request is not kept, and what is old is not answered", () => {
  let nowMs = 0;
  const early = new EarlyVotes(() => nowMs);
  for (const kind of [MessageKind.append, MessageKind.heartbeat, MessageKind.snapshot, MessageKind.voteReply])
    early.keep(child, request(2, 1, kind));
  expect(early.take(child)).toEqual([]);
  early.keep(child, request(2, 1));
  nowMs = 301;
  early.keep(child, request(3, 1));
  expect(early.take(child).map(({ from }) => from as number)).toEqual([3]);
});

test("strangers that ask for votes in shards without end take no memory without end", () => {
  const early = new EarlyVotes(() => 0);
  for (let i = 1; i <= 1000; i++) early.keep(asShardId(i), request(2, 1));
  const left = Array.from({ length: 1000 }, (_, i) => early.take(asShardId(i + 1)).length).reduce((sum, n) => sum + n, 0);
  expect(left).toBe(64);
});
