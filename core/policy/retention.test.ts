import { expect, test } from "bun:test";
import { retentionFor, retentionOf } from "#core/policy";

const read = (value: unknown) => retentionOf(Buffer.from(JSON.stringify(value)), (bytes) => Buffer.from(bytes).toString());

test("retentionOf() reads a namespace's value, in which a type's own word goes before", () => {
  const policy = read({ retentionMs: 5000, owner: "ada", types: { order: { retentionMs: 9000 }, tax: { retentionMs: null }, other: {} } });
  if ("problem" in policy) throw new Error(policy.problem);
  expect(["order", "tax", "other", "unnamed"].map((type) => retentionFor(policy, type))).toEqual([9000, undefined, 5000, 5000]);
});

test("retentionOf() of a value that says nothing of it keeps for ever", () => {
  for (const value of [{}, { days: 3 }, [1], "text", 7, null, { retentionMs: null }])
    expect([value, read(value)]).toEqual([value, { retentionMs: undefined, types: new Map() }]);
  expect(retentionOf(new Uint8Array([1, 2, 255]), () => "\u0001no json")).toEqual({ retentionMs: undefined, types: new Map() });
});

test("retentionOf() names what is wrong", () => {
  for (const [value, problem] of [
    [{ retentionMs: "30d" }, '"retentionMs" is "30d", want 1000 to '],
    [{ retentionMs: 999 }, '"retentionMs" is 999, want 1000'],
    [{ retentionMs: -1 }, "is -1"],
    [{ retentionMs: 1e300 }, "is 1e+300"],
    [{ types: [] }, '"types" is no object'],
    [{ types: { a: 5 } }, 'of "a" what is no object'],
    [{ types: { a: { retentionMs: 0 } } }, 'of type "a", "retentionMs" is 0'],
  ] as const)
    expect([value, read(value)]).toEqual([value, { problem: expect.stringContaining(problem) }]);
});
