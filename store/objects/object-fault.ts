/** What object storage in memory does wrong, one request at a time. */
import type { Prng } from "#core/base";

export type ObjectVerb = "put" | "get" | "head" | "list" | "delete" | "begin" | "part" | "complete" | "abort";

export interface ObjectRequest {
  readonly verb: ObjectVerb;
  /** The first one, of several. */
  readonly key: string;
}

export type ObjectFault =
  /** Answered with 5xx, and not carried out. */
  | { readonly kind: "refused" }
  /** Not carried out, no answer. */
  | { readonly kind: "lost-request" }
  /** Carried out, no answer. */
  | { readonly kind: "lost-answer" }
  /** Carried out after so long, whoever may have given up. */
  | { readonly kind: "late"; readonly ms: number }
  /** Carried out at once, answered after so long. */
  | { readonly kind: "slow"; readonly ms: number }
  /** A body that ends early. */
  | { readonly kind: "cut" }
  /** A body with a bit that is wrong. */
  | { readonly kind: "damaged" }
  /** A listing of so long ago. */
  | { readonly kind: "stale"; readonly ms: number }
  /** Carried out and answered, with a bit that is wrong where it is kept. */
  | { readonly kind: "rotten" }
  /** A condition is not looked at: such servers exist, and the preflight refuses them. */
  | { readonly kind: "unconditional" };

/** Which fault strikes a request, if any. */
export type ObjectFaults = (request: ObjectRequest) => ObjectFault | undefined;

/** Chances in [0, 1] of each fault, and bounds of those that take time. */
export interface FaultRates {
  readonly refused: number;
  readonly lostRequest: number;
  readonly lostAnswer: number;
  readonly late: number;
  readonly slow: number;
  readonly slowMsMax: number;
  readonly cut: number;
  readonly damaged: number;
  readonly stale: number;
  readonly staleMsMax: number;
}

/** Rates for one seed, each within what a bad day of object storage brings. */
export function drawRates(prng: Prng): FaultRates {
  const upTo = (most: number) => (prng.chance(0.3) ? 0 : prng.fraction() * most);
  return {
    refused: upTo(0.2),
    lostRequest: upTo(0.05),
    lostAnswer: upTo(0.1),
    late: upTo(0.05),
    slow: upTo(0.2),
    slowMsMax: 10_000,
    cut: upTo(0.1),
    damaged: upTo(0.02),
    stale: upTo(0.5),
    staleMsMax: 60_000,
  };
}

export function randomFaults(prng: Prng, rates: FaultRates): ObjectFaults {
  return ({ verb }) => {
    if (prng.chance(rates.refused)) return { kind: "refused" };
    if (prng.chance(rates.lostRequest)) return { kind: "lost-request" };
    if (prng.chance(rates.lostAnswer)) return { kind: "lost-answer" };
    if (prng.chance(rates.late)) return { kind: "late", ms: prng.below(rates.slowMsMax * 3) };
    if (prng.chance(rates.slow)) return { kind: "slow", ms: prng.below(rates.slowMsMax) };
    if (verb === "get" && prng.chance(rates.cut)) return { kind: "cut" };
    if (verb === "get" && prng.chance(rates.damaged)) return { kind: "damaged" };
    if (verb === "list" && prng.chance(rates.stale)) return { kind: "stale", ms: prng.below(rates.staleMsMax) };
    return undefined;
  };
}
