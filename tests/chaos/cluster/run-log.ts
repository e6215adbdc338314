/**
 * What clients see of runs, as operations on a list: a start makes it, a signal appends to it, a
 * history reads it.
 */
import { decodeBody, type RunEvent } from "#core/run";
import { decodeEvent, EventKind, fromBytes } from "#proto";
import { type HopClient, HopError } from "#sdk/client";
import { check, type Model, type Operation, type Verdict } from "./linearizability.ts";

export type Call =
  | { readonly kind: "start" }
  /** Sent twice with one value it counts once. */
  | { readonly kind: "append"; readonly value: number }
  /** A signal that was answered by: there is no such run. */
  | { readonly kind: "refused" }
  /** What was seen, as a state. */
  | { readonly kind: "read"; readonly seen: string };

export interface Observed extends Operation<Call> {
  /** Instance of the run. */
  readonly run: string;
  /** Who asked. */
  readonly client: number;
}

/** State of a run that was not started. */
export const absent = "absent";

export const stateOf = (values: readonly (number | string)[]) => `,${values.map((value) => `${value},`).join("")}`;

/**
 * The list as a model, where `last` is what a read saw after everything else: as nothing is ever
 * taken from a list, each earlier state is a beginning of it.
 */
export function runLog(last: string): Model<Call> {
  return {
    isRead: ({ kind }) => kind === "read" || kind === "refused",
    step(state, { call, endMs }) {
      if (call.kind === "start") return state === absent ? stateOf([]) : state;
      if (call.kind === "read") return call.seen === state ? state : undefined;
      if (call.kind === "refused") return state === absent ? state : undefined;
      // One that was sent and never answered may have met no run, and done nothing.
      if (state === absent) return endMs === undefined ? state : undefined;
      if (state.includes(`,${call.value},`)) return state;
      const after = `${state}${call.value},`;
      return last.startsWith(after) ? after : undefined;
    },
  };
}

/** What there is to put in order before the last read: a signal of unknown outcome that it does not see never came before it. */
export function beforeLast(operations: readonly Observed[], last: string): Observed[] {
  return operations.filter(({ call, endMs }) => endMs !== undefined || call.kind !== "append" || last.includes(`,${call.value},`));
}

/** What the last operation, which has to be a read behind all others, saw. */
function lastSeen(operations: readonly Observed[]): string {
  const { run, call } = operations.reduce((a, b) => (b.beginMs > a.beginMs ? b : a));
  if (call.kind !== "read") throw new Error(`The history of ${run} does not end with a read`);
  return call.seen;
}

/**
 * The first read that lacks what was answered before it began, in words. A search that comes to
 * grief over such a read takes long, and can't say why.
 */
export function staleRead(operations: readonly Observed[]): string | undefined {
  const last = lastSeen(operations);
  /** How much of the list there has to be after an answer. */
  const lengthAfter = ({ call }: Observed): number => {
    if (call.kind === "read") return call.seen === absent ? 0 : call.seen.length;
    if (call.kind !== "append") return 0;
    const text = `,${call.value},`;
    return last.indexOf(text) < 0 ? 0 : last.indexOf(text) + text.length;
  };
  const answered = operations.filter(({ endMs }) => endMs !== undefined).toSorted((a, b) => (a.endMs as number) - (b.endMs as number));
  const reads = operations.filter(({ call }) => call.kind === "read").toSorted((a, b) => a.beginMs - b.beginMs);
  let longest: Observed | undefined;
  let next = 0;
  for (const read of reads) {
    for (; next < answered.length && ((answered[next] as Observed).endMs as number) < read.beginMs; next++) {
      const each = answered[next] as Observed;
      if (longest === undefined || lengthAfter(each) > lengthAfter(longest)) longest = each;
    }
    if (longest === undefined || lengthAfter(read) >= lengthAfter(longest)) continue;
    const [began, ended] = [read.beginMs, longest.endMs as number].map((ms) => ms.toFixed(1));
    return `client ${read.client} read ${JSON.stringify(read.call)} from ${began} on, though client ${longest.client} was answered ${JSON.stringify(longest.call)} at ${ended}`;
  }
  return undefined;
}

/** Whether the operations on one run are linearizable; the one that began last has to be a read behind all others. */
export function checkRun(operations: readonly Observed[]): Verdict {
  const seen = lastSeen(operations);
  if (staleRead(operations) !== undefined) return "illegal";
  return check(beforeLast(operations, seen), runLog(seen), absent);
}

export const signalId = (value: number) => `signal-${value}`;

/** Signals of a run in the order of its history; `absent` where there is no such run. */
export async function readState(client: HopClient, run: string): Promise<string> {
  const values: string[] = [];
  try {
    for await (const chunk of client.history(`${client.namespace}:${run}`)) {
      for (const bytes of chunk.event) {
        const { kind, payload } = fromBytes(decodeEvent, bytes);
        if (kind !== EventKind.signalReceived) continue;
        const event = decodeBody(kind, payload) as Extract<RunEvent, { kind: typeof EventKind.signalReceived }>;
        values.push(event.body.id.slice(signalId(0).length - 1));
      }
    }
  } catch (error) {
    if (error instanceof HopError && error.reason === "RUN_NOT_FOUND") return absent;
    throw error;
  }
  return stateOf(values);
}

/** Operations by run, for the checker. */
export function byRun(observed: readonly Observed[]): Map<string, Observed[]> {
  const runs = new Map<string, Observed[]>();
  for (const operation of observed) {
    const list = runs.get(operation.run) ?? [];
    list.push(operation);
    runs.set(operation.run, list);
  }
  return runs;
}
