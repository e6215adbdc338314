/**
 * What the machine's disk gives at best: 128 bytes written and made durable, one at a time, in a
 * file that grows and in one whose blocks are there, and 50 records with one sync.
 */
import { closeSync, fdatasyncSync, openSync, writeSync } from "node:fs";
import { join } from "node:path";
import { now } from "./clock.ts";
import type { Report } from "./result.ts";

const recordBytes = 128;
const warmUp = 50;

interface Shape {
  readonly metric: string;
  readonly bytes: number;
  /** The file's blocks are written before. */
  readonly prewritten: boolean;
}

const shapes: readonly Shape[] = [
  { metric: "append_fdatasync", bytes: recordBytes, prewritten: false },
  { metric: "overwrite_fdatasync", bytes: recordBytes, prewritten: true },
  { metric: "append50_fdatasync", bytes: 50 * recordBytes, prewritten: false },
];

function times({ metric, bytes, prewritten }: Shape, folder: string, samples: number): number[] {
  const file = openSync(join(folder, metric), "w");
  try {
    const record = Buffer.alloc(bytes, "x");
    if (prewritten) {
      writeSync(file, Buffer.alloc((samples + warmUp) * bytes));
      fdatasyncSync(file);
    }
    const taken: number[] = [];
    for (let i = 0; i < samples + warmUp; i++) {
      const begun = now();
      writeSync(file, record, 0, bytes, i * bytes);
      fdatasyncSync(file);
      if (i >= warmUp) taken.push(now() - begun);
    }
    return taken;
  } finally {
    closeSync(file);
  }
}

export function measureFloor(report: Report, folder: string, samples: number): void {
  for (const shape of shapes) {
    const taken = times(shape, folder, samples);
    report.quantiles("floor", shape.metric, taken, { bytes: shape.bytes });
    const meanMs = taken.reduce((sum, each) => sum + each, 0) / taken.length;
    report.value("floor", `${shape.metric}_per_s`, 1000 / meanMs, "1/s", { bytes: shape.bytes });
  }
}
