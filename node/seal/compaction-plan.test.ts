import { expect, test } from "bun:test";
import type { SegmentEntry } from "#store";
import { neighboursToMerge } from "./compaction-plan.ts";

const policy = { targetBytes: 100, rowsMax: 1000, segmentsMin: 3 };
const of = (...sizes: number[]) => sizes.map((segmentBytes) => ({ summary: { segmentBytes, rows: segmentBytes } }) as SegmentEntry);

test("neighbours are merged up to the target, and only where they are many and none outweighs the others", () => {
  const cases: [number[], readonly [number, number] | undefined][] = [
    [[], undefined],
    [[10, 10], undefined],
    [
      [10, 10, 10],
      [0, 3],
    ],
    [[40, 40, 40], undefined],
    [
      [30, 30, 30, 30],
      [0, 3],
    ],
    [
      [200, 10, 10, 10],
      [1, 4],
    ],
    // It would be written again for the sake of little.
    [[60, 10, 10], undefined],
    [[60, 20, 20], undefined],
    [
      [60, 20, 10, 20, 200],
      [1, 4],
    ],
    [
      [50, 25, 25],
      [0, 3],
    ],
  ];
  for (const [sizes, want] of cases) expect([sizes, neighboursToMerge(of(...sizes), policy)]).toEqual([sizes, want]);
  expect(neighboursToMerge(of(10, 10, 10), { ...policy, rowsMax: 29 })).toBeUndefined();
});

test("a shard that seals small segments for ever keeps few, and writes each event a few times", () => {
  const segments: number[] = [];
  let written = 0;
  for (let sealed = 0; sealed < 5000; sealed++) {
    segments.push(1);
    for (;;) {
      const found = neighboursToMerge(of(...segments), { targetBytes: 512, rowsMax: 1e9, segmentsMin: 8 });
      if (found === undefined) break;
      const [from, end] = found;
      const merged = segments.slice(from, end).reduce((sum, each) => sum + each, 0);
      segments.splice(from, end - from, merged);
      written += merged;
    }
  }
  expect(segments.length).toBeLessThan(80);
  expect(written / 5000).toBeLessThan(8);
});
