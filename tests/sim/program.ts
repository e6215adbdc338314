/**
 * Workflows of the simulator: random trees of activities, timers, signals and waits. A type's name
 * says which tree it is, so that every worker runs the same code.
 */
import { bytesEqual, Prng } from "#core/base";
import type { ActivityOptionsInit } from "#proto";
import { digest } from "../hashers.ts";

/** What an activity does, told in its input. */
export interface Plan {
  /** How long an execution takes. */
  readonly ms: number;
  /** The first so many attempts fail. */
  readonly fails: number;
  /** The first so many attempts never end. */
  readonly hangs: number;
  /** A failure is not to be tried again. */
  readonly isFatal: boolean;
  readonly beatMs: number;
}

export type Node =
  | { readonly kind: "activity"; readonly name: string; readonly plan: Plan; readonly options: ActivityOptionsInit | undefined }
  | { readonly kind: "sleep"; readonly ms: number }
  | { readonly kind: "signal"; readonly name: string }
  /** To another run, or to itself. */
  | { readonly kind: "send"; readonly to: string; readonly name: string }
  | { readonly kind: "await"; readonly to: string }
  /** To whoever consumes the run's stream; nobody is left there, that is a failure. */
  | { readonly kind: "chunk" }
  | { readonly kind: "publish"; readonly to: string }
  | { readonly kind: "read"; readonly to: string; readonly max: number; readonly lingerMs: number }
  /** A child, whose end is waited for or not. */
  | {
      readonly kind: "spawn";
      readonly to: string;
      readonly type: string;
      readonly contention: string;
      readonly policy: number;
      readonly waits: boolean;
    }
  | { readonly kind: "seq" | "all" | "race"; readonly of: readonly Node[] }
  /** What is owed from here on: it does not wait. */
  | { readonly kind: "undo"; readonly name: string; readonly plan: Plan; readonly always: boolean; readonly attempts: number }
  | { readonly kind: "guard"; readonly body: Node; readonly cleanup: Node; readonly swallows: boolean };

const codes = ["the code", "the same, built again"].map((code) => new TextEncoder().encode(code));

/** Hashes of the code bundles. */
export const bundles = codes.map((code) => digest(code)) as [Uint8Array, Uint8Array];

/** Bytes of a bundle. */
export function codeOf(sha256: Uint8Array): Uint8Array {
  const code = codes.find((each) => bytesEqual(digest(each), sha256));
  if (code === undefined) throw new Error("There is no such bundle");
  return code;
}

export const activityNames = ["a0", "a1", "a2", "a3"] as const;
export const signalNames = ["s0", "s1", "s2"] as const;

const dayMs = 86_400_000;
const programs = new Map<string, Node>();

/** With `spawns`, it starts others beside what it does else; those start none. */
export const typeOf = (program: number, spawns = false) => `${spawns ? "q" : "p"}${program}`;
/** The same tree, where activities are undone. */
export const sagaOf = (program: number) => `u${program}`;

/** The same tree, with chunks before its activities and waits. */
export const streamOf = (program: number) => `t${program}`;

/** The same tree, which sends to channels and reads them. */
export const channelOf = (program: number) => `n${program}`;

/** Channels that programs know; the last one sums up. */
export const channelNames = ["default:k0", "default:k1", "default:k2"] as const;
export const sumChannel = "default:sum";
/** The tree that `type` is of, where some of its activities have idempotency keys. */
export const keyedOf = (type: string) => `k${type}`;

/** The tree of a type. */
export function programOf(type: string): Node {
  const known = programs.get(type);
  if (known !== undefined) return known;
  if (type.startsWith("k")) {
    const keyed = withKeys(programOf(type.slice(1)), new Prng(Number(type.slice(2)) * 3001 + 7));
    programs.set(type, keyed);
    return keyed;
  }
  const prng = new Prng(Number(type.slice(1)) * 7919 + 13);
  const own: Node = { kind: "seq", of: list(prng, 1 + prng.below(4), () => node(prng, 3)) };
  const made = type.startsWith("q")
    ? family(prng, own)
    : type.startsWith("u")
      ? undone(own, new Prng(Number(type.slice(1)) * 6007 + 5))
      : type.startsWith("t")
        ? streamed(own, new Prng(Number(type.slice(1)) * 4001 + 3))
        : type.startsWith("n")
          ? channelled(own, new Prng(Number(type.slice(1)) * 3001 + 7))
          : own;
  programs.set(type, made);
  return made;
}

/** The tree with its leaves as `change` makes them, from left to right. */
function withLeaves(tree: Node, change: (leaf: Node) => Node): Node {
  switch (tree.kind) {
    case "seq":
    case "all":
    case "race":
      return { ...tree, of: tree.of.map((each) => withLeaves(each, change)) };
    case "guard":
      return { ...tree, body: withLeaves(tree.body, change), cleanup: withLeaves(tree.cleanup, change) };
    default:
      return change(tree);
  }
}

/** Undos before most of the activities, and some that are owed always. */
const undone = (tree: Node, prng: Prng): Node =>
  withLeaves(tree, (leaf) => {
    if (leaf.kind !== "activity" || prng.chance(0.3)) return leaf;
    const plan = { ms: prng.below(60), fails: prng.below(3), hangs: 0, isFatal: prng.chance(0.1), beatMs: 0 };
    const name = activityNames[prng.below(activityNames.length)] as string;
    return { kind: "seq", of: [{ kind: "undo", name, plan, always: prng.chance(0.3), attempts: 1 + prng.below(4) }, leaf] };
  });

/** Chunks before most of what it waits for; a chunk that nobody takes ends some of it and is passed over in the rest. */
const streamed = (tree: Node, prng: Prng): Node =>
  withLeaves(tree, (leaf) => {
    const waits = leaf.kind === "activity" || leaf.kind === "sleep" || leaf.kind === "signal";
    if (!waits || prng.chance(0.2)) return leaf;
    const chunk: Node = { kind: "chunk" };
    const kept: Node = prng.chance(0.3) ? chunk : { kind: "guard", body: chunk, cleanup: chunk, swallows: true };
    return { kind: "seq", of: [kept, leaf] };
  });

/** Sends and reads before most of what it does; a channel that is closed ends some of it and is passed over in the rest. */
const channelled = (tree: Node, prng: Prng): Node =>
  withLeaves(tree, (leaf) => {
    if (prng.chance(0.3)) return leaf;
    const to = prng.chance(0.2) ? sumChannel : (channelNames[prng.below(channelNames.length)] as string);
    const read: Node = {
      kind: "read",
      to,
      max: prng.chance(0.3) ? 1 + prng.below(5) : 0,
      lingerMs: prng.chance(0.5) ? prng.below(800) : 0,
    };
    // One that is given up may have been answered already: the next one is given that again.
    const brief: Node = { kind: "race", of: [read, { kind: "sleep", ms: prng.below(60) }] };
    const use: Node = prng.chance(0.4) ? { kind: "publish", to } : prng.chance(0.4) ? brief : read;
    const kept: Node = prng.chance(0.3) ? use : { kind: "guard", body: use, cleanup: { kind: "sleep", ms: 1 }, swallows: true };
    return { kind: "seq", of: prng.chance(0.5) ? [kept, leaf] : [leaf, kept] };
  });

/** Keys of one activity each, over all programs. */
const keysMax = 16;

/** Half of the activities share a few keys; what those do belongs to the key, and some say another thing than the rest. */
const withKeys = (tree: Node, prng: Prng): Node =>
  withLeaves(tree, (leaf) => {
    if (leaf.kind !== "activity" || prng.chance(0.5)) return leaf;
    const key = prng.below(keysMax);
    const own = new Prng(key * 101 + 11);
    const isFatal = own.chance(0.1);
    const plan: Plan = { ms: own.below(own.chance(0.5) ? 30 : 600), fails: own.below(3), hangs: 0, isFatal, beatMs: 0 };
    const name = activityNames[key % activityNames.length] as string;
    const options = { ...leaf.options, startToCloseMs: 0, heartbeatMs: 0, idempotencyKey: `key-${key}` };
    return { kind: "activity", name, plan: prng.chance(0.05) ? { ...plan, ms: plan.ms + 1 } : plan, options };
  });

const childNames = 10;

function family(prng: Prng, own: Node): Node {
  const children = list(prng, 1 + prng.below(3), (): Node => {
    const contention = (["attach", "attach", "reject", "queue", "supersede"] as const)[prng.below(5)] as string;
    const to = `default:c${prng.below(childNames)}`;
    return { kind: "spawn", to, type: typeOf(prng.below(50)), contention, policy: 1 + prng.below(3), waits: prng.chance(0.5) };
  });
  const kind = (["seq", "all", "race"] as const)[prng.below(3)] as "seq" | "all" | "race";
  return { kind, of: prng.chance(0.5) ? [...children, own] : [own, ...children] };
}

function list<T>(_prng: Prng, count: number, make: () => T): T[] {
  return Array.from({ length: count }, make);
}

function node(prng: Prng, depth: number): Node {
  const draw = prng.below(depth > 0 ? 14 : 8);
  if (draw < 4) return activity(prng);
  if (draw < 5) return message(prng);
  if (draw < 7) return { kind: "sleep", ms: sleepMs(prng) };
  if (draw < 8) return { kind: "signal", name: signalNames[prng.below(signalNames.length)] as string };
  if (draw < 9 && prng.chance(0.1)) return { kind: "all", of: list(prng, 10 + prng.below(20), () => activity(prng)) };
  const kind = (["seq", "all", "all", "race", "race"] as const)[prng.below(5)] as "seq" | "all" | "race";
  if (draw >= 12) return { kind: "guard", body: node(prng, depth - 1), cleanup: activity(prng), swallows: prng.chance(0.5) };
  return { kind, of: list(prng, 2 + prng.below(3), () => node(prng, depth - 1)) };
}

/** Runs that others know by name. */
export const instancesMax = 22;
export const instanceOf = (instance: number) => `default:i${instance}`;

function message(prng: Prng): Node {
  const to = instanceOf(prng.below(instancesMax));
  if (prng.chance(0.7)) return { kind: "send", to, name: signalNames[prng.below(signalNames.length)] as string };
  return { kind: "await", to };
}

function sleepMs(prng: Prng): number {
  const draw = prng.below(40);
  if (draw < 6) return prng.below(3);
  if (draw < 24) return prng.below(500);
  if (draw < 34) return 500 + prng.below(8000);
  if (draw < 37) return 20_000 + prng.below(100_000);
  if (draw < 39) return Math.round(prng.fraction() * 30 * dayMs);
  return Math.round(prng.fraction() * 36_500 * dayMs);
}

function activity(prng: Prng): Node {
  const name = activityNames[prng.below(activityNames.length)] as string;
  const startToCloseMs = prng.chance(0.3) ? 100 + prng.below(1500) : 0;
  const heartbeatMs = prng.chance(0.2) ? 100 + prng.below(600) : 0;
  const isBounded = startToCloseMs > 0 || heartbeatMs > 0;
  const plan: Plan = {
    ms: prng.chance(0.7) ? prng.below(20) : prng.below(isBounded ? Math.min(startToCloseMs || 800, heartbeatMs || 800) / 2 : 800),
    fails: prng.chance(0.3) ? 1 + prng.below(3) : 0,
    hangs: isBounded && prng.chance(0.3) ? 1 + prng.below(2) : 0,
    isFatal: prng.chance(0.1),
    beatMs: heartbeatMs > 0 && prng.chance(0.8) ? Math.max(heartbeatMs / 3, 10) : 0,
  };
  if (prng.chance(0.3) && !isBounded) return { kind: "activity", name, plan, options: undefined };
  const retry = {
    attemptsMax: prng.chance(0.5) ? 1 + prng.below(4) : 0,
    initialMs: prng.below(400),
    intervalMsMax: prng.chance(0.5) ? 2000 : 0,
    backoffMilli: 1000 + prng.below(1500),
    jitterMilli: prng.below(500),
    nonRetryable: prng.chance(0.2) ? ["Picky"] : [],
  };
  const scheduleToCloseMs = prng.chance(0.15) ? 200 + prng.below(4000) : 0;
  return { kind: "activity", name, plan, options: { retry, startToCloseMs, scheduleToCloseMs, heartbeatMs } };
}
