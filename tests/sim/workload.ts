/**
 * What a seed draws: how much work there is, how fast everything is, and which faults strike.
 *
 * Each seed leaves faults out and draws the rate of the others (swarm testing): a fault that is
 * always there hides what another one alone would show.
 */
import type { Prng } from "#core/base";
import type { Delays } from "./network.ts";

/** Faults that strike at random times, with the mean time between two of them in milliseconds. */
export const timedFaults = {
  serverCrash: 6000,
  serverStop: 8000,
  serverPause: 5000,
  diskBroken: 20_000,
  diskFull: 10_000,
  wallJump: 3000,
  clientBreak: 2500,
  workerBreak: 2500,
  workerCrash: 4000,
  workerStall: 2500,
  workerDrain: 8000,
  guestEvict: 1000,
  guestLoss: 2000,
  checkpoint: 400,
  evictIdle: 400,
} as const;

/** Faults that strike one of so many chances. */
export const chanceFaults = {
  crashAtWrite: 0.008,
  crashBeforeAck: 0.006,
  slowFlush: 0.02,
  checkpointFails: 0.2,
  replayFails: 0.1,
  retryAnswer: 0.02,
  limitAnswer: 0.02,
  divergedAnswer: 0.01,
  resend: 0.1,
  resultAgain: 0.1,
  lateTick: 0.1,
} as const;

export type TimedFault = keyof typeof timedFaults;
export type ChanceFault = keyof typeof chanceFaults;
export type Fault = TimedFault | ChanceFault;
export const allFaults = [...Object.keys(timedFaults), ...Object.keys(chanceFaults)] as Fault[];

export interface Workload {
  readonly faultMs: number;
  readonly clients: number;
  readonly workers: number;
  readonly starts: number;
  readonly programs: readonly number[];
  readonly instances: number;
  readonly delays: Delays;
  readonly flushMs: number;
  readonly activationMs: number;
  readonly driftPpm: number;
  readonly orphanGraceMs: number;
  readonly idleMs: number;
  readonly activitySlots: number;
  readonly runSlots: number;
  readonly timed: ReadonlyMap<TimedFault, number>;
  readonly chances: ReadonlyMap<ChanceFault, number>;
}

export function drawWorkload(prng: Prng): Workload {
  const between = (low: number, high: number) => low + prng.fraction() * (high - low);
  const timed = new Map<TimedFault, number>();
  for (const [fault, meanMs] of Object.entries(timedFaults))
    if (prng.chance(0.55)) timed.set(fault as TimedFault, meanMs * between(0.4, 3));
  const chances = new Map<ChanceFault, number>();
  for (const [fault, chance] of Object.entries(chanceFaults))
    if (prng.chance(0.55)) chances.set(fault as ChanceFault, chance * between(0.3, 2.5));
  return {
    faultMs: between(3000, prng.chance(0.2) ? 60_000 : 25_000),
    clients: 1 + prng.below(3),
    workers: 1 + prng.below(3),
    starts: 4 + prng.below(prng.chance(0.2) ? 80 : 30),
    programs: Array.from({ length: 1 + prng.below(12) }, () => prng.below(4000)),
    instances: 2 + prng.below(20),
    delays: {
      minMs: between(0, prng.chance(0.3) ? 30 : 1),
      meanMs: prng.chance(0.3) ? between(5, 100) : between(0.1, 5),
      clogged: prng.chance(0.3) ? between(0, 0.02) : 0,
      clogMs: between(0, 3000),
    },
    flushMs: prng.chance(0.2) ? between(5, 60) : between(0.1, 3),
    activationMs: prng.chance(0.2) ? between(5, 100) : between(0.05, 2),
    driftPpm: between(-200, 200),
    orphanGraceMs: between(50, 1500),
    idleMs: between(0, prng.chance(0.5) ? 30 : 4000),
    activitySlots: 1 + prng.below(8),
    runSlots: 2 + prng.below(20),
    timed,
    chances,
  };
}
