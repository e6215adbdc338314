/** Time as the shell knows it, behind a port: the simulator turns it by hand. */
import type { TimeSources } from "./shard/physical-clock.ts";

export interface Timing extends TimeSources {
  /** Runs once after `ms` milliseconds; the returned function prevents it. */
  after(ms: number, run: () => void): () => void;
}

export const realTiming: Timing = {
  wallMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  after(ms, run) {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
};

/** Long work that nobody waits for lets everything else have its turn. */
export const breath = (timing: Timing): Promise<void> => new Promise((resolve) => void timing.after(0, resolve));

/** Asks for a run `ms` milliseconds from now. Whoever asks again before it has begun is served by it, too. */
export function onceSoon(timing: Timing, ms: number, run: () => void): () => void {
  let isDue = false;
  return () => {
    if (isDue) return;
    isDue = true;
    timing.after(ms, () => {
      isDue = false;
      run();
    });
  };
}

/** One tick of the groups' clock, in milliseconds. */
export const tickMs = 50;

/** Number of the tick that it is now: what leases are counted in. */
export const tickAt = (timing: Timing) => Math.floor(timing.monotonicMs() / tickMs);
