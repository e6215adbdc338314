/** The run's random numbers: mulberry32 over the seed that its history records. */
import type { Run } from "./run.ts";

export function nextUint32(run: Run): number {
  run.seed = (run.seed + 0x6d2b79f5) | 0;
  let t = Math.imul(run.seed ^ (run.seed >>> 15), run.seed | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return (t ^ (t >>> 14)) >>> 0;
}

export function nextRandom(run: Run): number {
  return nextUint32(run) / 4294967296;
}

export function fillRandom(run: Run, bytes: Uint8Array): void {
  let word = 0;
  for (let i = 0; i < bytes.length; i++) {
    if ((i & 3) === 0) word = nextUint32(run);
    bytes[i] = word;
    word >>>= 8;
  }
}

/** A version 4 UUID. */
export function nextUuid(run: Run): string {
  const bytes = new Uint8Array(16);
  fillRandom(run, bytes);
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  let text = "";
  for (let i = 0; i < 16; i++) {
    if (i === 4 || i === 6 || i === 8 || i === 10) text += "-";
    text += (bytes[i]! + 0x100).toString(16).slice(1);
  }
  return text;
}
