import { expect, test } from "bun:test";
import { decodeMappings, encodeMappings, removeMapped, type Segment } from "./source-map.ts";

test("mappings are read and written back", () => {
  const mappings = ";uwDAAoE,IAApE,2CAEA,oCACA,qCCHA;;IAAI,EAAI,EAAU";
  expect(encodeMappings(decodeMappings(mappings))).toBe(mappings);
  expect(decodeMappings("AAAA,IAAIA,E;AACA,CCDD")).toEqual([
    [[0, 0, 0, 0], [4, 0, 0, 4], [6]],
    [
      [0, 0, 1, 4],
      [1, 1, 0, 3],
    ],
  ]);
  const lines: Segment[][] = [[[0, 3, 100_000, 7], [70_000, 0, 0, 0], [70_001]], [], [[5, 2, 1, 9]]];
  expect(decodeMappings(encodeMappings(lines))).toEqual(lines);
});

test("what follows a removed piece moves, what precedes it stays", () => {
  const mappings = encodeMappings([
    [
      [0, 0, 0, 0],
      [6, 0, 0, 6],
      [9, 0, 0, 9],
    ],
    [[2, 0, 1, 0]],
  ]);
  const result = removeMapped("f(x,1)+f(y,1)\ng(z,1)", mappings, /f\(\w(,1)\)/g);
  expect(result.code).toBe("f(x)+f(y)\ng(z,1)");
  expect(decodeMappings(result.mappings)).toEqual([
    [
      [0, 0, 0, 0],
      [4, 0, 0, 6],
      [7, 0, 0, 9],
    ],
    [[2, 0, 1, 0]],
  ]);
});
