/** Leases that are asked for before their election. */
import { expect, test } from "bun:test";
import { asIndex, asNodeId, asShardId, asTerm, type Rejection } from "#core/base";
import { VirtualTiming } from "../cluster/virtual-timing-fixture.ts";
import { FirstLeases } from "./first-leases.ts";
import type { Lease } from "./surroundings.ts";

const replicas = { voters: [asNodeId(1)], outgoing: [], learners: [], configIndex: asIndex(0) };
const asked = (term: number) => ({ shard: asShardId(7), term: asTerm(term), replicas });
const lease = (epoch: number): Lease => ({ epoch, version: 1 });
const refused: Rejection = { reject: "NOT_LEADER", message: "no" };

function town() {
  const timing = new VirtualTiming();
  const asks: { readonly isAhead: boolean; readonly done: (result: Lease | Rejection) => void }[] = [];
  const leases = new FirstLeases(timing, (_, isAhead, done) => void asks.push({ isAhead, done }));
  const got: (Lease | Rejection)[] = [];
  return { timing, asks, leases, got, take: (term: number) => leases.take(asked(term), (result) => void got.push(result)) };
}

test("one that came before the election, or comes after it, is used once", () => {
  for (const isEarly of [true, false]) {
    const { asks, leases, got, take } = town();
    leases.ask(asked(1));
    if (isEarly) asks[0]?.done(lease(5));
    take(1);
    if (!isEarly) asks[0]?.done(lease(5));
    expect(got).toEqual([lease(5)]);
    take(1);
    expect(asks.map(({ isAhead }) => isAhead)).toEqual([true, false]);
  }
});

test("one for another term, that was refused, or is old is asked for anew", () => {
  const { timing, asks, leases, got, take } = town();
  leases.ask(asked(1));
  take(2);
  leases.ask(asked(1));
  take(1);
  asks[2]?.done(refused);
  leases.ask(asked(1));
  timing.pass(3000);
  take(1);
  expect(asks.map(({ isAhead }) => isAhead)).toEqual([true, false, true, false, true, false]);
  expect(got).toEqual([]);
});
