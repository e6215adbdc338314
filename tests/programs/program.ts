/**
 * Random workflow programs: trees of what a workflow can wait for, and what happens to their runs
 * from outside. Equal seeds give equal programs.
 */
import { Prng } from "#core/base";

/** What the workflow executes. `hops` are turns of microtasks that go by before it is asked for. */
export type Node = { readonly hops: number } & (
  | {
      readonly kind: "activity";
      readonly takesMs: number;
      /** Attempts that fail before one succeeds; `attempts` is how many there may be. */
      readonly fails: number;
      readonly attempts: number;
    }
  | { readonly kind: "sleep" | "alarm"; readonly ms: number }
  /** `timeoutMs` 0 = as long as it takes. */
  | { readonly kind: "signal"; readonly name: string; readonly timeoutMs: number }
  | { readonly kind: "send"; readonly to: string; readonly name: string }
  | { readonly kind: "result"; readonly of: string }
  | { readonly kind: "all" | "race" | "any" | "settled" | "seq"; readonly of: readonly Node[] }
  | { readonly kind: "shield" | "catch"; readonly of: Node }
  | { readonly kind: "finally"; readonly of: Node; readonly last: Node }
);

/** What happens to a run at a time after its start, in milliseconds. */
export interface Act {
  readonly atMs: number;
  readonly run: string;
  readonly kind: "signal" | "call" | "pause" | "cancel" | "terminate";
  readonly name: string;
}

export interface Program {
  readonly seed: number;
  /** What each run executes, by its name; `method` is what it does for each call of it. */
  readonly runs: Readonly<Record<string, { readonly root: Node; readonly method: Node }>>;
  readonly acts: readonly Act[];
}

const signals = ["s0", "s1", "s2"];
const times = [0, 1, 2, 5, 10, 10, 10, 50, 100, 1000, 60_000, 86_400_000];
const depthMax = 4;

export function programOf(seed: number): Program {
  const prng = new Prng(seed);
  const names = prng.chance(0.3) ? ["main", "peer"] : ["main"];
  const runs = Object.fromEntries(
    names.map((name) => {
      const peer = names.find((each) => each !== name);
      return [name, { root: nodeOf(prng, peer, 0), method: nodeOf(prng, peer, 2) }];
    }),
  );
  const acts = Array.from({ length: prng.below(5) }, () => actOf(prng, names)).sort((a, b) => a.atMs - b.atMs);
  return { seed, runs, acts };
}

function actOf(prng: Prng, names: readonly string[]): Act {
  const draw = prng.below(100);
  const kind = draw < 60 ? "signal" : draw < 75 ? "call" : draw < 80 ? "pause" : draw < 97 ? "cancel" : "terminate";
  return { atMs: pick(prng, times) * prng.below(3), run: pick(prng, names), kind, name: pick(prng, signals) };
}

function nodeOf(prng: Prng, peer: string | undefined, depth: number): Node {
  const hops = prng.chance(0.3) ? prng.below(6) : 0;
  return { ...(depth < depthMax && prng.below(10) >= depth * 2 ? branchOf(prng, peer, depth) : leafOf(prng, peer)), hops } as Node;
}

type Bare = Node extends infer N ? (N extends { readonly hops: number } ? Omit<N, "hops"> : never) : never;

function branchOf(prng: Prng, peer: string | undefined, depth: number): Bare {
  const child = () => nodeOf(prng, peer, depth + 1);
  const draw = prng.below(100);
  if (draw < 70) {
    const kind = pick(prng, ["all", "all", "race", "any", "settled", "seq", "seq"] as const);
    return { kind, of: Array.from({ length: 1 + prng.below(3) }, child) };
  }
  if (draw < 80) return { kind: "shield", of: child() };
  if (draw < 90) return { kind: "catch", of: child() };
  return { kind: "finally", of: child(), last: child() };
}

function leafOf(prng: Prng, peer: string | undefined): Bare {
  const draw = prng.below(100);
  const ms = pick(prng, times);
  if (draw < 40) {
    const fails = prng.chance(0.3) ? 1 + prng.below(2) : 0;
    return { kind: "activity", takesMs: prng.chance(0.5) ? 0 : ms, fails, attempts: 1 + prng.below(3) };
  }
  if (draw < 60) return { kind: "sleep", ms };
  if (draw < 66) return { kind: "alarm", ms };
  if (peer !== undefined && draw < 76) return { kind: "send", to: peer, name: pick(prng, signals) };
  if (peer !== undefined && draw < 80) return { kind: "result", of: peer };
  return { kind: "signal", name: pick(prng, signals), timeoutMs: prng.chance(0.5) ? 0 : ms };
}

const pick = <T>(prng: Prng, from: readonly T[]): T => from[prng.below(from.length)] as T;
