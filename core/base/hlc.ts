/**
 * Hybrid logical clock: physical milliseconds and a counter that orders events of one millisecond.
 *
 * Strictly increasing over the life of a log: a step back of the physical clock only makes the
 * counter grow. Source: Kulkarni et al., Logical Physical Clocks (2014).
 */
export interface Hlc {
  readonly timeMs: number;
  readonly logical: number;
}

/** A counter that would pass this bound moves the physical part on instead. */
export const logicalMax = 0xffff;

export class HlcClock {
  timeMs = 0;
  logical = 0;

  /** Milliseconds that the next `tick` will issue. */
  nextMs(nowMs: number): number {
    if (nowMs > this.timeMs) return nowMs;
    return this.logical >= logicalMax ? this.timeMs + 1 : this.timeMs;
  }

  /** Advances past everything issued before; `nowMs` is the physical clock. */
  tick(nowMs: number): void {
    const timeMs = this.nextMs(nowMs);
    this.logical = timeMs > this.timeMs ? 0 : this.logical + 1;
    this.timeMs = timeMs;
  }

  /** Takes in a time that was seen: what is issued next is above it. */
  witness(seen: Hlc): void {
    if (compareHlc(seen, this) > 0) {
      this.timeMs = seen.timeMs;
      this.logical = seen.logical;
    }
  }
}

export function compareHlc(a: Hlc, b: Hlc): number {
  return a.timeMs - b.timeMs || a.logical - b.logical;
}

/** 48 bits of milliseconds, then 16 of counter: orders like the clock does. */
export function packHlc(hlc: Hlc): bigint {
  return (BigInt(hlc.timeMs) << 16n) | BigInt(hlc.logical);
}

export function unpackHlc(packed: bigint): Hlc {
  return { timeMs: Number(packed >> 16n), logical: Number(packed & 0xffffn) };
}
