import { describe, expect, test } from "bun:test";
import { formatDuration, parseDuration } from "./duration.ts";
import { exitCodeOf } from "./failure.ts";

describe("parseDuration()", () => {
  test.each([
    ["500ms", 500],
    ["5s", 5000],
    ["3m", 180_000],
    ["2h", 7_200_000],
    ["14d", 1_209_600_000],
    ["1w", 604_800_000],
    ["1h30m", 5_400_000],
    ["1.5s", 1500],
    ["0.1ms", 1],
    ["0s", 0],
  ])("reads %s as %d ms", (text, ms) => {
    expect(parseDuration(text)).toBe(ms);
  });

  test.each(["", "5", "-5s", "5 s", "s", "5y", "NaN", "Infinitys", "1e3s", "5s!", "101w1", "5000w100d100000000h"])(
    "refuses %p as usage",
    (text) => {
      expect(() => parseDuration(text)).toThrow(/^Cannot (read|use) duration/);
      try {
        parseDuration(text);
      } catch (error) {
        expect(exitCodeOf(error)).toBe(2);
      }
    },
  );

  test("says that a unit is missing", () => {
    expect(() => parseDuration("90", "--deadline")).toThrow('Cannot read --deadline "90", a unit is missing');
  });
});

test.each([
  [0, "0ms"],
  [999, "999ms"],
  [4250, "4.2s"],
  [60_000, "1m"],
  [200_000, "3m 20s"],
  [1_220_400_000, "14d 3h"],
])("formatDuration() shows %d ms as %s", (ms, text) => {
  expect(formatDuration(ms)).toBe(text);
});
