import { describe, expect, test } from "bun:test";
import { Prng } from "#core/base";
import { Reducer } from "#proto";
import { copyOf, count, emptyTally, fromReduced, join, type Tally, toReduced, valueProblem } from "./tally.ts";

const payload = (json: string) => ({ data: new TextEncoder().encode(json), ref: undefined });

function tallyOf(reducer: number, messages: readonly string[]): Tally {
  const tally = emptyTally();
  for (const json of messages) count(tally, reducer, payload(json));
  return tally;
}

const cases: readonly (readonly [keyof typeof Reducer, readonly string[], string])[] = [
  ["count", [], "0"],
  ["count", ["1", '"x"', "{}"], "3"],
  ["sum", [], ""],
  ["sum", ["1", "2.5", "-4"], "-0.5"],
  ["sum", ["1e308", "1e308"], "1.7976931348623157e+308"],
  ["min", ["3", "-2", "7"], "-2"],
  ["max", ["3", "-2", " 7 "], "7"],
  ["union", [], "[]"],
  ["union", ['"b"', '"a"', '"b"', '{"x": 1}', '{"x":1}'], '["a","b",{"x":1}]'],
  ["last", ["1", '{"a":2}'], '{"a":2}'],
];

test.each(cases)("%s of %j is %s", (name, messages, value) => {
  expect(toReduced(tallyOf(Reducer[name], messages), Reducer[name])).toEqual({ count: messages.length, value });
});

describe("any way of cutting messages up", () => {
  const reducers = [Reducer.count, Reducer.sum, Reducer.min, Reducer.max, Reducer.union, Reducer.last];
  test.each(reducers)("gives the same whole, saved and loaded in between (reducer %d)", (reducer) => {
    const prng = new Prng(reducer);
    for (let round = 0; round < 200; round++) {
      const messages = Array.from({ length: prng.below(12) }, () => `${prng.below(20) - 10}`);
      const joined = emptyTally();
      for (let at = 0; at < messages.length; ) {
        const part = messages.slice(at, at + 1 + prng.below(4));
        at += part.length;
        join(joined, reducer, fromReduced(toReduced(copyOf(tallyOf(reducer, part)), reducer), reducer));
      }
      expect(toReduced(joined, reducer)).toEqual(toReduced(tallyOf(reducer, messages), reducer));
    }
  });
});

test.each([
  [Reducer.none, "no JSON", undefined],
  [Reducer.count, "no JSON", undefined],
  [Reducer.sum, '"7"', "it is no number, and its channel reduces numbers"],
  [Reducer.sum, "null", "it is no number, and its channel reduces numbers"],
  [Reducer.max, "1e999", "it is no number, and its channel reduces numbers"],
  [Reducer.union, "no JSON", "it is no JSON, and its channel reduces values"],
  [Reducer.last, '{"a":1}', undefined],
] as const)("reducer %d takes %s: %s", (reducer, json, problem) => {
  expect(valueProblem(reducer, payload(json))).toBe(problem);
});
