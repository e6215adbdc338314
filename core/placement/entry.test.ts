import { expect, test } from "bun:test";
import { limits } from "#core/base";
import { identity, Placement } from "./machine-fixture.ts";

const set = (value: string, more: { expected?: number; removed?: boolean; name?: string; class?: string } = {}) =>
  ({ kind: "set-entry", class: "policy", name: "retry/a", value: new TextEncoder().encode(value), ...more }) as const;
const entry = ({ view }: Placement) => view.entries.get("policy")?.get("retry/a");

test("each change raises the version and names who made it; the same again changes nothing", () => {
  const placement = Placement.of(1);
  placement.nowMs = 5000;
  expect(placement.do(set("one"))).toEqual({ kind: "version", version: 1 });
  const { version } = placement.view;
  expect(placement.do(set("one"))).toEqual({ kind: "version", version: 1 });
  expect(placement.view.version).toBe(version);
  expect(placement.do(set("two", { expected: 1 }))).toEqual({ kind: "version", version: 2 });
  expect(entry(placement)).toMatchObject({ version: 2, value: new TextEncoder().encode("two"), changedMs: 5000, identity });
  expect(placement.follower().view()).toEqual(placement.view);
});

test("a change that expects another version is refused, unless it is its own outcome that it finds", () => {
  const placement = Placement.of(1);
  expect(placement.refusal(set("one", { expected: 1 }))).toMatchObject({ reject: "VERSION_CONFLICT" });
  expect(placement.do(set("one", { expected: 0 }))).toEqual({ kind: "version", version: 1 });
  expect(placement.do(set("one", { expected: 0 }))).toEqual({ kind: "version", version: 1 });
  expect(placement.refusal(set("two", { expected: 0 })).message).toBe("Cannot set policy retry/a: it has version 1, want none");
  expect(placement.refusal(set("two", { expected: 7 })).message).toBe("Cannot set policy retry/a: it has version 1, want version 7");
});

test("a removed entry is gone, and its name goes on with higher versions", () => {
  const placement = Placement.of(1);
  placement.do(set("one"));
  expect(placement.do(set("", { removed: true, expected: 1 }))).toEqual({ kind: "version", version: 2 });
  expect(placement.do(set("", { removed: true, expected: 1 }))).toEqual({ kind: "version", version: 2 });
  expect(entry(placement)).toBeUndefined();
  expect(placement.refusal(set("two", { expected: 2 }))).toMatchObject({ reject: "VERSION_CONFLICT" });
  expect(placement.do(set("two", { expected: 0 }))).toEqual({ kind: "version", version: 3 });
  expect(entry(placement)?.version).toBe(3);
});

test("classes, names and sizes are checked", () => {
  const placement = Placement.of(1);
  expect(placement.refusal(set("x", { class: "secret" }))).toMatchObject({ reject: "BAD_REQUEST" });
  expect(placement.refusal(set("x", { name: "" }))).toMatchObject({ reject: "BAD_REQUEST" });
  expect(placement.refusal(set("x".repeat(limits.inlineBytesMax + 1)))).toMatchObject({ reject: "PAYLOAD_TOO_LARGE" });
  expect(placement.do(set("x".repeat(limits.inlineBytesMax)))).toMatchObject({ kind: "version" });
});
