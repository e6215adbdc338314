/** How many blobs a node has, and how large: looked at when somebody asks, and seldom where there are many. */
import type { KeptBlob } from "#store";

export interface BlobTotals {
  readonly count: number;
  readonly bytes: number;
}

const keptMsMin = 15_000;
/** Looking takes at most this part of the time. */
const shareMax = 0.02;

export class BlobFigures {
  private readonly kept: () => AsyncIterable<KeptBlob>;
  private last: BlobTotals = { count: 0, bytes: 0 };
  private nextMs = 0;
  private isLooking = false;

  constructor(kept: () => AsyncIterable<KeptBlob>) {
    this.kept = kept;
  }

  /** As they were found last; a new look may begin. */
  totals(): BlobTotals {
    if (!this.isLooking && performance.now() >= this.nextMs) void this.look();
    return this.last;
  }

  private async look(): Promise<void> {
    this.isLooking = true;
    const begunMs = performance.now();
    try {
      let [count, bytes] = [0, 0];
      for await (const blob of this.kept()) {
        count++;
        bytes += blob.bytes;
      }
      this.last = { count, bytes };
    } catch {
      // The last figures stand; whoever needs the blobs is told what is wrong with the folder.
    } finally {
      const endedMs = performance.now();
      this.nextMs = endedMs + Math.max(keptMsMin, (endedMs - begunMs) / shareMax);
      this.isLooking = false;
    }
  }
}
