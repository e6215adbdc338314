/**
 * What a seed draws: how large the cluster is, how much work there is, how fast everything is, and
 * which faults strike.
 *
 * Each seed leaves faults out and draws the rate of the others (swarm testing): a fault that is
 * always there hides what another one alone would show.
 */

import { Prng } from "#core/base";
import type { PlanOptions } from "#core/placement";
import type { SealPolicy } from "../../node/seal/seal-policy.ts";
import type { WireFaults } from "./wires.ts";

/** Faults and changes that strike at random times, with the mean time between two of them in milliseconds. */
export const timedFaults = {
  nodeCrash: 18_000,
  powerLoss: 24_000,
  nodePause: 14_000,
  partition: 14_000,
  asymmetricPartition: 18_000,
  diskLost: 60_000,
  diskBroken: 60_000,
  diskFull: 30_000,
  checkpointLost: 30_000,
  rollingRestart: 120_000,
  wallJump: 12_000,
  split: 18_000,
  merge: 10_000,
  move: 16_000,
  transfer: 12_000,
  clientBreak: 10_000,
  workerBreak: 10_000,
  workerCrash: 16_000,
  workerStall: 10_000,
  workerDrain: 30_000,
  guestEvict: 4_000,
  guestLoss: 8_000,
} as const;

/** Faults that strike one of so many chances. */
export const chanceFaults = {
  crashAtWrite: 0.0006,
  crashBeforeAck: 0.0005,
  slowFlush: 0.01,
  checkpointFails: 0.1,
  statesUnreadable: 0.006,
  retryAnswer: 0.02,
  limitAnswer: 0.02,
  divergedAnswer: 0.01,
  resend: 0.1,
  resultAgain: 0.1,
  objectRefused: 0.1,
  objectUnanswered: 0.05,
  objectLate: 0.04,
  objectSlow: 0.1,
  objectDamaged: 0.12,
  objectRotten: 0.08,
  objectListStale: 0.5,
} as const;

/** What else is counted: it comes of the others, or of how the wires are. */
export const seenFaults = [
  "messageLost",
  "messageDoubled",
  "pathClogged",
  "clockOff",
  "snapshotInstall",
  "staleRefused",
  "sealed",
  "sealedRead",
  "archiveSealed",
  "compacted",
] as const;

export type TimedFault = keyof typeof timedFaults;
export type ChanceFault = keyof typeof chanceFaults;
export type Fault = TimedFault | ChanceFault | (typeof seenFaults)[number] | "staleTask";
export const allFaults = [...Object.keys(timedFaults), ...Object.keys(chanceFaults), ...seenFaults] as Fault[];

export interface Workload {
  readonly nodes: number;
  /** Replicas that are wanted of each shard. */
  readonly replication: number;
  readonly faultMs: number;
  readonly clients: number;
  readonly workers: number;
  readonly starts: number;
  readonly programs: readonly number[];
  readonly instances: number;
  readonly wires: WireFaults;
  readonly flushMs: number;
  readonly activationMs: number;
  readonly driftPpm: number;
  readonly offsetMs: number;
  readonly orphanGraceMs: number;
  readonly idleMs: number;
  readonly activitySlots: number;
  readonly runSlots: number;
  readonly plan: Partial<PlanOptions>;
  /** Whether a full replay of all logs is compared with the replicas all the time. */
  readonly hasReference: boolean;
  /** Undefined: there is no object storage. */
  readonly sealing: SealPolicy | undefined;
  readonly timed: ReadonlyMap<TimedFault, number>;
  readonly chances: ReadonlyMap<ChanceFault, number>;
  /** Whether starts queue and supersede. */
  readonly contends: boolean;
  /** Whether schedules start runs. */
  readonly schedules: boolean;
  /** Whether runs start others. */
  readonly spawns: boolean;
  /** Whether operators hold runs. */
  readonly pauses: boolean;
  /** Whether some of its programs are sagas. */
  readonly undoes: boolean;
  /** Whether some of its programs use channels, and clients send to them. */
  readonly channels: boolean;
  /** Whether some of its programs yield chunks, and clients consume them. */
  readonly streams: boolean;
  /** Whether some of its activities have idempotency keys. */
  readonly keys: boolean;
  /** How long those keep their results; undefined = for as long as in production. */
  readonly keyRetentionMs: number | undefined;
}

/** Drawn apart: seeds that are remembered for what they found do as they did. */
export const contends = (seed: number): boolean => new Prng(Math.imul(seed, 0x85ebca6b) ^ 28441).chance(0.4);

export const undoes = (seed: number): boolean => new Prng(Math.imul(seed, 0x27d4eb2f) ^ 631).chance(0.3);

export const pauses = (seed: number): boolean => new Prng(Math.imul(seed, 0xc2b2ae35) ^ 17).chance(0.25);

export const schedules = (seed: number): boolean => new Prng(Math.imul(seed, 0x27d4eb2f) ^ 16).chance(0.2);
export const spawns = (seed: number): boolean => new Prng(Math.imul(seed, 0x27d4eb2f) ^ 269).chance(0.3);

export const streams = (seed: number): boolean => new Prng(Math.imul(seed, 0x27d4eb2f) ^ 1009).chance(0.25);

export const channels = (seed: number): boolean => new Prng(Math.imul(seed, 0x27d4eb2f) ^ 4099).chance(0.3);
export const keys = (seed: number): boolean => new Prng(Math.imul(seed, 0x85ebca6b) ^ 4093).chance(0.35);

/** Short enough that keys are forgotten and executed anew. */
function drawKeyRetention(seed: number): number | undefined {
  const prng = new Prng(Math.imul(seed, 0xc2b2ae35) ^ 4099);
  return prng.chance(0.5) ? 1000 + prng.below(60_000) : undefined;
}

/** A cluster of one node has nothing to move and nobody to lose. */
const severalOnly: ReadonlySet<string> = new Set(["partition", "asymmetricPartition", "diskLost", "move", "transfer"]);

function drawSealing(prng: Prng): SealPolicy {
  const between = (low: number, high: number) => low + prng.fraction() * (high - low);
  return {
    bytesMax: between(4000, 80_000),
    ageMsMax: between(3000, 40_000),
    keptBytes: prng.chance(0.7) ? 0 : between(1000, 60_000),
    hotTailBytesMax: Number.MAX_SAFE_INTEGER,
    lookMs: between(300, 2000),
  };
}

export function drawWorkload(seed: number, prng: Prng): Workload {
  const between = (low: number, high: number) => low + prng.fraction() * (high - low);
  const size = prng.below(20);
  const nodes = size < 2 ? 1 : size < 12 ? 3 : 5;
  const timed = new Map<TimedFault, number>();
  for (const [fault, meanMs] of Object.entries(timedFaults))
    if (prng.chance(0.5) && (nodes > 1 || !severalOnly.has(fault))) timed.set(fault as TimedFault, meanMs * between(0.4, 3));
  const chances = new Map<ChanceFault, number>();
  for (const [fault, chance] of Object.entries(chanceFaults))
    if (prng.chance(0.5)) chances.set(fault as ChanceFault, chance * between(0.3, 2.5));
  const faultMs = between(90_000, prng.chance(0.25) ? 500_000 : 280_000);
  const startsPerSecond = prng.chance(0.2) ? between(0.5, 2) : between(0.05, 0.4);
  return {
    nodes,
    replication: nodes === 5 && prng.chance(0.5) ? 5 : 3,
    faultMs,
    clients: 3 + prng.below(2),
    workers: 2 + prng.below(2),
    starts: Math.ceil((faultMs / 1000) * startsPerSecond),
    programs: Array.from({ length: 1 + prng.below(12) }, () => prng.below(4000)),
    instances: 2 + prng.below(20),
    wires: {
      loss: prng.chance(0.5) ? between(0, 0.3) : 0,
      duplication: prng.chance(0.4) ? between(0, 0.5) : 0,
      minMs: between(0, prng.chance(0.3) ? 30 : 1),
      meanMs: prng.chance(0.3) ? between(30, 100) : between(0.1, 5),
      clogged: prng.chance(0.4) ? between(0, 0.02) : 0,
      clogMs: between(0, 5000),
      capacity: 2 + prng.below(19),
    },
    flushMs: prng.chance(0.2) ? between(5, 60) : between(0.1, 3),
    activationMs: prng.chance(0.2) ? between(5, 100) : between(0.05, 2),
    driftPpm: prng.chance(0.7) ? 200 : 0,
    offsetMs: prng.chance(0.6) ? 500 : 0,
    orphanGraceMs: between(50, 1500),
    idleMs: between(0, prng.chance(0.5) ? 30 : 4000),
    activitySlots: 1 + prng.below(8),
    runSlots: 2 + prng.below(20),
    plan: {
      deadAfterMs: between(4000, 12_000),
      silentAfterMs: 2000,
      listenMs: 1500,
      handOverMs: 3000,
      settleMs: 1000,
    },
    hasReference: prng.chance(0.4),
    sealing: prng.chance(0.7) ? drawSealing(prng) : undefined,
    timed,
    chances,
    contends: contends(seed),
    spawns: spawns(seed),
    pauses: pauses(seed),
    schedules: schedules(seed),
    undoes: undoes(seed),
    streams: streams(seed),
    channels: channels(seed),
    keys: keys(seed),
    keyRetentionMs: drawKeyRetention(seed),
  };
}
