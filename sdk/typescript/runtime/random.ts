/** Randomness that is the same whenever the run is rebuilt: it is drawn from the run's seed. */
import { engine } from "./engine.ts";

/** A number from 0 (included) to 1 (not). `Math.random()` is the same in a workflow. */
export function random(): number {
  return engine("random()").random();
}

/** A version 4 UUID. `crypto.randomUUID()` is the same in a workflow. Not a secret: the seed is in the run's history. */
export function uuid(): string {
  return engine("uuid()").uuid();
}
