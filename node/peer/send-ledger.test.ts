import { expect, test } from "bun:test";
import { SendLedger } from "./send-ledger.ts";

test("what waits is told apart by kind, as a link sends in order", () => {
  let waiting = 0;
  const ledger = new SendLedger(() => waiting);
  const add = (kind: "raft" | "ask", bytes: number) => {
    ledger.add(kind, bytes);
    waiting += bytes;
  };
  const both = () => [ledger.bytes("raft"), ledger.bytes("ask")];
  expect(both()).toEqual([0, 0]);
  add("raft", 10);
  add("raft", 5);
  add("ask", 100);
  add("raft", 1);
  expect(both()).toEqual([16, 100]);
  waiting = 104;
  expect(both()).toEqual([4, 100]);
  waiting = 51;
  expect(both()).toEqual([1, 50]);
  add("raft", 7);
  expect(both()).toEqual([8, 50]);
  waiting = 0;
  expect(both()).toEqual([0, 0]);
});
