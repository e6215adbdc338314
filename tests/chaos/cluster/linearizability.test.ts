import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { check, checkAll, type Model, type Operation } from "./linearizability.ts";

interface Call {
  readonly op: string;
  readonly input: string;
  readonly other: string;
  readonly output: string;
}

const nothing = "\0nothing";

/** A register or a key: read and get, write and put, append, compare and set. */
const register: Model<Call> = {
  isRead: ({ op }) => op === "read" || op === "get",
  step(state, { call, endMs }) {
    const { op, input, other, output } = call;
    if (op === "read" || op === "get") return output === state ? state : undefined;
    if (op === "write" || op === "put") return input;
    if (op === "append") return state + input;
    if (endMs === undefined) return state === input ? other : state;
    if (output === "true") return state === input ? other : undefined;
    return state === input ? undefined : state;
  },
};

interface Line {
  readonly k: string;
  readonly op: string;
  readonly in?: string;
  readonly in2?: string;
  readonly out?: string | null;
  readonly t0: number;
  readonly t1: number | null;
  readonly st: "ok" | "fail" | "info";
}

/** Histories by key, of JSON lines. Reads of unknown outcome say nothing, operations that failed did nothing. */
function load(file: string): Operation<Call>[][] {
  const lines = readFileSync(join(import.meta.dir, "../../vectors/porcupine", file), "utf8").split("\n");
  const keys = new Map<string, Operation<Call>[]>();
  for (const text of lines.filter((line) => line !== "")) {
    const line = JSON.parse(text) as Line;
    const isOpen = line.t1 === null || line.st === "info";
    if (line.st === "fail" || (isOpen && (line.op === "read" || line.op === "get"))) continue;
    const call = { op: line.op, input: line.in ?? nothing, other: line.in2 ?? nothing, output: line.out ?? nothing };
    const operations = keys.get(line.k) ?? [];
    operations.push({ call, beginMs: line.t0, endMs: isOpen ? undefined : (line.t1 as number) });
    keys.set(line.k, operations);
  }
  return [...keys.values()];
}

describe("checkAll() on public histories", () => {
  test.each([
    ["etcd_000.jsonl", nothing, "illegal"],
    ["etcd_005.jsonl", nothing, "ok"],
    ["etcd_031.jsonl", nothing, "ok"],
    ["kv_c10-bad.jsonl", "", "illegal"],
    ["kv_c10-ok.jsonl", "", "ok"],
  ] as const)("%s", (file, initial, verdict) => expect(checkAll(load(file), register, initial)).toBe(verdict));
});

describe("check()", () => {
  const write = (input: string, beginMs: number, endMs?: number): Operation<Call> => ({
    call: { op: "write", input, other: "", output: "" },
    beginMs,
    endMs,
  });
  const read = (output: string, beginMs: number, endMs: number): Operation<Call> => ({
    call: { op: "read", input: "", other: "", output },
    beginMs,
    endMs,
  });

  test("a read that began after a write returned sees it", () => {
    expect(check([write("a", 0, 1), read("a", 2, 3)], register, "")).toBe("ok");
    expect(check([write("a", 0, 1), read("", 2, 3)], register, "")).toBe("illegal");
    expect(check([write("a", 0, 2), read("", 1, 3)], register, "")).toBe("ok");
  });

  test("a write of unknown outcome may show at any later time, or never, but not come and go", () => {
    expect(check([write("a", 0), read("", 1, 2), read("a", 3, 4)], register, "")).toBe("ok");
    expect(check([write("a", 0), read("", 1, 2), read("", 3, 4)], register, "")).toBe("ok");
    expect(check([write("a", 0), read("a", 1, 2), read("", 3, 4)], register, "")).toBe("illegal");
    expect(check([read("a", 0, 1), write("a", 2)], register, "")).toBe("illegal");
  });

  test("what it can't decide in its steps it does not call right", () => {
    const operations = [...Array.from({ length: 12 }, (_, i) => write(String(i), 0, 100)), read("none", 0, 100)];
    expect(check(operations, register, "", 50)).toBe("unknown");
    expect(check(operations, register, "")).toBe("illegal");
  });
});
