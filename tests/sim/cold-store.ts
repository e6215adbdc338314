/** Object storage of a simulated cluster: one bucket, a connection a node, and what goes wrong on the way. */
import { MemoryBucket, MemoryObjectStore, type ObjectFault, type ObjectFaults, type ObjectVerb } from "#store";
import { openColdStore } from "../../node/seal/sealing.ts";
import { bunHasher } from "../hashers.ts";
import { exponential } from "./network.ts";
import type { SimNode } from "./node.ts";
import type { Simulation } from "./simulation.ts";

export const coldCluster = "sim";

export class ColdBucket {
  readonly bucket = new MemoryBucket();
  /** Nobody reaches it. */
  isOut = false;
  private readonly sim: Simulation;

  constructor(sim: Simulation) {
    this.sim = sim;
  }

  /** The bucket as a node reaches it; one that died hears nothing any more. */
  storeFor(node: SimNode) {
    const { sim } = this;
    const objects = new MemoryObjectStore(this.bucket, {
      schedule: {
        after: (ms, run) => node.timing.after(ms, run),
        fraction: () => sim.prng.fraction(),
        nowMs: () => sim.schedule.nowMs,
        latencyMs: () => (sim.isFaulty ? 1 + exponential(sim.prng, 20) : 1),
      },
      faults: this.faults,
    });
    return openColdStore(objects, coldCluster, bunHasher);
  }

  private readonly faults: ObjectFaults = ({ verb, key }) => {
    const { sim } = this;
    if (this.isOut) return { kind: sim.prng.chance(0.5) ? "refused" : "lost-request" };
    if (sim.strikes("objectRefused")) return { kind: "refused" };
    if (sim.strikes("objectUnanswered")) return { kind: sim.prng.chance(0.5) ? "lost-request" : "lost-answer" };
    if (sim.strikes("objectLate")) return { kind: "late", ms: sim.prng.below(30_000) };
    if (sim.strikes("objectSlow")) return { kind: "slow", ms: sim.prng.below(10_000) };
    // A manifest that rots is for people to look at.
    if (verb === "put" && !key.includes("/manifest/") && sim.strikes("objectRotten")) return { kind: "rotten" };
    return this.faultOf(verb);
  };

  private faultOf(verb: ObjectVerb): ObjectFault | undefined {
    const { sim } = this;
    if (verb === "get" && sim.strikes("objectDamaged")) return { kind: sim.prng.chance(0.5) ? "cut" : "damaged" };
    if (verb === "list" && sim.strikes("objectListStale")) return { kind: "stale", ms: sim.prng.below(60_000) };
    return undefined;
  }
}
