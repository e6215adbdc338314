import { expect, test } from "bun:test";
import { absent, type Call, checkRun, type Observed, staleRead, stateOf } from "./run-log.ts";

const at = (call: Call, beginMs: number, endMs?: number): Observed => ({ run: "r", client: 0, call, beginMs, endMs });
const append = (value: number, beginMs: number, endMs?: number) => at({ kind: "append", value }, beginMs, endMs);
const read = (values: readonly number[], beginMs: number, endMs: number) => at({ kind: "read", seen: stateOf(values) }, beginMs, endMs);
const start = at({ kind: "start" }, 0, 1);

test("a signal that was acknowledged is seen by every later read, in one order", () => {
  const both = [start, append(1, 2, 5), append(2, 3, 6)];
  expect(checkRun([...both, read([2], 4, 5), read([2, 1], 7, 8)])).toBe("ok");
  expect(checkRun([...both, read([1], 7, 8)])).toBe("illegal");
  expect(checkRun([...both, read([1], 4, 5), read([2, 1], 7, 8)])).toBe("illegal");
  expect(checkRun([start, append(1, 2, 3), read([1], 4, 5), read([], 6, 7), read([1], 8, 9)])).toBe("illegal");
  expect(checkRun([start, append(1, 2, 3), append(1, 4, 5), read([1], 6, 7)])).toBe("ok");
  expect(checkRun([start, append(1, 2, 3), read([1, 1], 6, 7)])).toBe("illegal");
});

test("a signal of unknown outcome may come late, or never, but not go", () => {
  expect(checkRun([start, append(1, 2), read([], 3, 4), read([1], 5, 6)])).toBe("ok");
  expect(checkRun([start, append(1, 2), read([], 3, 4), read([], 5, 6)])).toBe("ok");
  expect(checkRun([start, append(1, 2), read([1], 3, 4), read([], 5, 6)])).toBe("illegal");
});

test("staleRead() names the read and what it should have seen", () => {
  const operations = [start, append(1, 2, 3), append(2, 4, 5), read([1], 6, 7), read([1, 2], 8, 9)];
  expect(staleRead(operations)).toBe(
    'client 0 read {"kind":"read","seen":",1,"} from 6.0 on, though client 0 was answered {"kind":"append","value":2} at 5.0',
  );
  expect(staleRead([start, append(1, 2, 3), append(2, 4, 7), read([1], 6, 8), read([1, 2], 8, 9)])).toBeUndefined();
});

test("a run is absent until it is started, and never again", () => {
  const missing = (beginMs: number, endMs: number) => at({ kind: "read", seen: absent }, beginMs, endMs);
  expect(checkRun([missing(0, 0.5), start, at({ kind: "refused" }, 0, 0.6), read([], 2, 3)])).toBe("ok");
  expect(checkRun([start, missing(2, 3), read([], 4, 5)])).toBe("illegal");
  expect(checkRun([start, at({ kind: "refused" }, 2, 3), read([], 4, 5)])).toBe("illegal");
});

test("many signals of unknown outcome leave nothing undecided", () => {
  const open = Array.from({ length: 40 }, (_, i) => append(i + 1, 2 + i));
  const order = open.map((_, i) => 40 - i).filter((value) => value % 3 !== 0);
  expect(checkRun([start, ...open, read([], 50, 51), read(order.slice(0, 9), 52, 53), read(order, 54, 55)])).toBe("ok");
  expect(checkRun([start, ...open, read(order.slice(3, 9), 52, 53), read(order, 54, 55)])).toBe("illegal");
});

test("hundreds of reads at one time leave nothing undecided", () => {
  const appends = Array.from({ length: 40 }, (_, i) => append(i + 1, 2, 1000));
  const values = appends.map((_, i) => i + 1);
  const reads = Array.from({ length: 300 }, (_, i) => read(values.slice(0, (i * 7) % 41), 3, 1000));
  expect(checkRun([start, ...appends, ...reads, read(values, 1001, 1002)])).toBe("ok");
  // One that saw the second signal ended before another began that did not.
  const bad = [read(values.slice(0, 2), 3, 4), read(values.slice(0, 1), 5, 6)];
  expect(checkRun([start, ...appends, ...reads, ...bad, read(values, 1001, 1002)])).toBe("illegal");
});
