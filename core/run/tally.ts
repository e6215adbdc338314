/**
 * What a channel's reducer makes of messages: commutative, so that any number of senders may come in any order, and
 * small, however many there were.
 */
import { limits } from "#core/base";
import { type Payload, type Reduced, Reducer, utf8Text } from "#proto";

export interface Tally {
  count: number;
  /** JSON; empty where no message had a value that counts. */
  value: string;
  /** Of a union: JSON of each value. */
  readonly members: Set<string>;
  memberBytes: number;
}

export const emptyTally = (): Tally => ({ count: 0, value: "", members: new Set(), memberBytes: 0 });

const isOfNumbers = (reducer: number) => reducer === Reducer.sum || reducer === Reducer.min || reducer === Reducer.max;

/** Why a channel can't reduce the message, or undefined. */
export function valueProblem(reducer: number, { data, ref }: Payload): string | undefined {
  if (reducer === Reducer.none || reducer === Reducer.count) return undefined;
  if (ref !== undefined) return `it has ${ref.size} bytes, and a channel that reduces takes at most ${limits.inlineBytesMax}`;
  const value = parsed(data);
  if (value === undefined) return "it is no JSON, and its channel reduces values";
  return isOfNumbers(reducer) && !Number.isFinite(value) ? "it is no number, and its channel reduces numbers" : undefined;
}

function parsed(data: Uint8Array): unknown {
  try {
    return JSON.parse(utf8Text(data)) as unknown;
  } catch {
    return undefined;
  }
}

/** Takes a message in, which has no `valueProblem`. */
export function count(tally: Tally, reducer: number, { data }: Payload): void {
  tally.count++;
  if (reducer === Reducer.count) return;
  const text = utf8Text(data);
  if (isOfNumbers(reducer)) tally.value = number(reducer, tally.value, text);
  else if (reducer === Reducer.last) tally.value = text;
  // Of equal values there is one form: without the spaces that a sender may have put in.
  else addMember(tally, JSON.stringify(JSON.parse(text)));
}

function number(reducer: number, own: string, other: string): string {
  if (own === "" || other === "") return own === "" ? canonical(other) : own;
  const [a, b] = [Number(own), Number(other)];
  if (reducer === Reducer.sum) return String(finite(a + b));
  return String(reducer === Reducer.min ? Math.min(a, b) : Math.max(a, b));
}

const canonical = (text: string) => (text === "" ? "" : String(Number(text)));
/** JSON knows no infinity: a sum stays at the largest number there is. */
const finite = (value: number) => Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, value));

function addMember(tally: Tally, json: string): void {
  if (tally.members.has(json)) return;
  tally.members.add(json);
  tally.memberBytes += json.length;
}

/** Takes in what came behind it. */
export function join(tally: Tally, reducer: number, later: Tally): void {
  tally.count += later.count;
  if (isOfNumbers(reducer)) tally.value = number(reducer, tally.value, later.value);
  else if (later.count > 0) tally.value = later.value;
  for (const member of later.members) addMember(tally, member);
}

export function copyOf({ count: counted, value, members, memberBytes }: Tally): Tally {
  return { count: counted, value, members: new Set(members), memberBytes };
}

/** With more different values than these it would be above what it may hold. */
export const isFull = ({ members, memberBytes }: Tally): boolean =>
  members.size >= limits.unionMembersMax || memberBytes >= limits.unionBytesMax;

export function toReduced(tally: Tally, reducer: number): Reduced {
  const { count: counted, value, members } = tally;
  if (reducer === Reducer.count) return { count: counted, value: String(counted) };
  return { count: counted, value: reducer === Reducer.union ? `[${[...members].sort().join()}]` : value };
}

export function fromReduced(reduced: Reduced | undefined, reducer: number): Tally {
  const tally = emptyTally();
  if (reduced === undefined) return tally;
  tally.count = reduced.count;
  if (reducer !== Reducer.union) tally.value = reducer === Reducer.count ? "" : reduced.value;
  else for (const member of JSON.parse(reduced.value || "[]") as unknown[]) addMember(tally, JSON.stringify(member));
  return tally;
}
