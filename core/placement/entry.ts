/**
 * Versioned, attributed entries that every node watches: namespaces and policies.
 *
 * What a value means is its class's business; here it is bytes. A removed entry keeps its version,
 * so that a later one of its name never has a version that was seen before.
 */
import { bytesEqual, limits, nameProblem, type Partition, type Rejection } from "#core/base";
import type { EntrySet, EntryState, Identity } from "#proto";

export const entryClasses = ["namespace", "policy"] as const;
export type EntryClass = (typeof entryClasses)[number];

export interface Entry {
  readonly class: string;
  readonly name: string;
  /** From 1; each change raises it. */
  readonly version: number;
  readonly value: Uint8Array;
  readonly removed: boolean;
  readonly changedMs: number;
  readonly identity: Identity | undefined;
  /** Version of the view in which it changed last. */
  readonly changedIn: number;
}

export interface SetEntry {
  readonly class: string;
  readonly name: string;
  readonly value: Uint8Array;
  /** Removes the entry; `value` is not looked at. */
  readonly removed?: boolean;
  /** Refuse unless the entry has this version; 0 = it must not exist. Left out: whatever it has. */
  readonly expected?: number;
}

const prefix = "entry/";

export const entryPartition = (entry: { readonly class: string; readonly name: string }) =>
  `${prefix}${entry.class}/${entry.name}` as Partition;

/** Class and name of a partition of entries, or undefined for a partition of another kind. */
export function entryOfPartition(partition: string): { readonly class: string; readonly name: string } | undefined {
  if (!partition.startsWith(prefix)) return undefined;
  const slash = partition.indexOf("/", prefix.length);
  return slash < 0 ? undefined : { class: partition.slice(prefix.length, slash), name: partition.slice(slash + 1) };
}

export function setEntryProblem(set: SetEntry): Rejection | undefined {
  const what = `Cannot set ${set.class} ${set.name}`;
  if (!entryClasses.some((each) => each === set.class))
    return { reject: "BAD_REQUEST", message: `Cannot set an entry: its class is ${set.class}, want ${entryClasses.join(" or ")}` };
  const problem = nameProblem(set.name);
  if (problem !== undefined) return { reject: "BAD_REQUEST", message: `Cannot set a ${set.class}: its name ${problem}` };
  if (set.value.length > limits.inlineBytesMax)
    return {
      reject: "PAYLOAD_TOO_LARGE",
      message: `${what}: its value has ${set.value.length} bytes, at most ${limits.inlineBytesMax} are allowed`,
    };
  return undefined;
}

/** The event of a change; undefined where the entry is as wanted already. */
export function decideSetEntry(state: Entry | undefined, set: SetEntry): EntrySet | Rejection | undefined {
  const isThere = state !== undefined && !state.removed;
  const isCurrent = set.removed === true ? !isThere : isThere && bytesEqual(state.value, set.value);
  const version = isThere ? state.version : 0;
  // A repeated change, whose answer was lost, finds its own outcome.
  const isRepeat = isCurrent && set.expected !== undefined && (state?.version ?? 0) === set.expected + 1;
  if (set.expected !== undefined && set.expected !== version && !isRepeat) {
    const got = version === 0 ? "it does not exist" : `it has version ${version}`;
    const want = set.expected === 0 ? "want none" : `want version ${set.expected}`;
    return { reject: "VERSION_CONFLICT", message: `Cannot set ${set.class} ${set.name}: ${got}, ${want}` };
  }
  if (isCurrent) return undefined;
  const removed = set.removed === true;
  return { version: (state?.version ?? 0) + 1, value: removed ? new Uint8Array(0) : set.value, removed };
}

export function applyEntry(
  id: { readonly class: string; readonly name: string },
  event: EntrySet,
  at: { readonly timeMs: number; readonly identity: Identity | undefined; readonly version: number },
): Entry {
  const { version, removed } = event;
  // The event's bytes are a view into the log's buffer.
  return { ...id, version, value: event.value.slice(), removed, changedMs: at.timeMs, identity: at.identity, changedIn: at.version };
}

export const saveEntry = (entry: Entry): EntryState => entry;

export const loadEntry = (saved: EntryState): Entry => ({ ...saved, value: saved.value.slice() });
