import { expect, test } from "bun:test";
import { bytesText, parseSize } from "./size.ts";

test("parseSize() reads whole bytes and each unit", () => {
  const sizes = ["1B", "512B", "64KiB", "1.5 GiB", "2kb", "3M", "1TiB"].map((text) => parseSize(text, "--size"));
  expect(sizes).toEqual([1, 512, 65_536, 1_610_612_736, 2048, 3_145_728, 1_099_511_627_776]);
  for (const wrong of ["", "12", "KiB", "1XB", "-1B", "0B"]) expect(() => parseSize(wrong, "--size")).toThrow("--size");
});

test("bytesText() shows three digits at most", () => {
  expect([0, 999, 1000, 1536, 5_000_000, 3 * 2 ** 40].map(bytesText)).toEqual(["0 B", "999 B", "0.98 KiB", "1.5 KiB", "4.77 MiB", "3 TiB"]);
});
