/** One event of each shape, as the histories of several tests have them. */

import { asIndex, type Hasher, type Partition } from "#core/base";
import { appendEvent, encodeRaw, type NewEvent, type OpenRecord, PartitionChain } from "#core/merkle";
import {
  EventKind,
  encodeActivityCompleted,
  encodeActivityFailed,
  encodeActivityRetried,
  encodeActivityScheduled,
  encodeBundleDeployed,
  encodeCancelRequested,
  encodeRunBlocked,
  encodeRunCompleted,
  encodeRunStarted,
  encodeSignalReceived,
  encodeTimerFired,
  encodeTimerStarted,
  type IdentityInit,
  Writer,
} from "#proto";

export const samplePartition = "run/default:order-1 ü🐇" as Partition;

const text = (value: string) => new TextEncoder().encode(value);
const bytes = (count: number, first: number) => Uint8Array.from({ length: count }, (_, i) => (first + i) & 255);
const core = (causeSeq: number): IdentityInit => ({ issuer: "core", causeSeq });
const user: IdentityInit = { issuer: "https://issuer.example", subject: "alice@example", verified: true };
const local: IdentityInit = { issuer: "local", subject: "bob" };
const timeMs = 1_800_000_000_000;

function event<T>(
  kind: number,
  at: readonly [number, number],
  identity: IdentityInit | undefined,
  of: Pick<NewEvent<T>, "encode" | "payload">,
): NewEvent<T> {
  return { timeMs: timeMs + at[0], logical: at[1], kind, schemaId: 1, identity, ...of };
}

const retry = { attemptsMax: 5, initialMs: 100, intervalMsMax: 60_000, backoffMilli: 2000, jitterMilli: 100, nonRetryable: ["BadInput"] };
const failure = { type: "Error", message: "refused", stack: "Error: refused\n    at f", cause: { type: "IoError", message: "reset" } };

/** A dozen kinds, an unknown kind, an empty payload and one above 16 KiB. */
export const sampleEvents: readonly NewEvent<never>[] = [
  event(EventKind.runStarted, [0, 0], user, {
    encode: encodeRunStarted,
    payload: {
      generation: 1,
      type: "order",
      bundle: bytes(32, 1),
      input: { data: text('{"sku":1}') },
      deadlineMs: 86_400_000,
      seed: 4_000_000_000,
    },
  }),
  event(EventKind.activityScheduled, [0, 1], core(0), {
    encode: encodeActivityScheduled,
    payload: { op: 1, name: "charge", input: { data: text("[42]") }, options: { retry, startToCloseMs: 30_000, idempotencyKey: "k-1" } },
  }),
  event(EventKind.activityRetried, [3, 0], core(1), {
    encode: encodeActivityRetried,
    payload: { op: 1, attempt: 1, failure, nextMs: timeMs + 103, worker: "w-1", heartbeat: { data: text("7") } },
  }),
  event(EventKind.activityCompleted, [104, 0], user, {
    encode: encodeActivityCompleted,
    payload: { op: 1, attempt: 2, result: { ref: { sha256: bytes(32, 7), size: 5_000_000_000 } }, worker: "w-2" },
  }),
  event(EventKind.timerStarted, [104, 1], core(3), {
    encode: encodeTimerStarted,
    payload: { op: 2, dueMs: timeMs + 1104, durationMs: 1000 },
  }),
  event(EventKind.signalReceived, [500, 0], local, {
    encode: encodeSignalReceived,
    payload: { name: "paid", payload: { data: bytes(20_000, 0) }, id: "s-1" },
  }),
  event(EventKind.timerFired, [1104, 0], core(4), { encode: encodeTimerFired, payload: { op: 2 } }),
  event(EventKind.activityFailed, [1105, 0], user, {
    encode: encodeActivityFailed,
    payload: { op: 3, attempt: 5, failure, worker: "w-1" },
  }),
  event(EventKind.runBlocked, [1106, 0], core(7), {
    encode: encodeRunBlocked,
    payload: { cause: "divergence", message: "want 'charge', got 'refund'" },
  }),
  event(EventKind.cancelRequested, [2000, 65_535], local, { encode: encodeCancelRequested, payload: {} }),
  event(EventKind.bundleDeployed, [2001, 0], undefined, {
    encode: encodeBundleDeployed,
    payload: { bundle: bytes(32, 9), size: 12_345, types: ["order", "refund"], version: 3 },
  }),
  event(200, [2002, 0], user, { encode: encodeRaw, payload: text("a kind of a later version") }),
  event(EventKind.runCompleted, [2003, 0], core(6), { encode: encodeRunCompleted, payload: { result: { data: text('"done"') } } }),
] as unknown as readonly NewEvent<never>[];

export interface SampleHistory {
  readonly chain: PartitionChain;
  /** Canonical bytes, and the hash of each. */
  readonly events: Uint8Array[];
  readonly hashes: Uint8Array[];
}

/** A history of `count` events: the samples again and again, each round a minute later. */
export function sampleHistory(hasher: Hasher, count = sampleEvents.length, partition = samplePartition): SampleHistory {
  const chain = new PartitionChain(partition);
  const events: Uint8Array[] = [];
  const hashes: Uint8Array[] = [];
  for (let i = 0; i < count; i++) {
    const sample = sampleEvents[i % sampleEvents.length] as NewEvent<never>;
    const later = Math.floor(i / sampleEvents.length) * 60_000;
    const record: OpenRecord = { writer: new Writer(), index: asIndex(i + 1), hasher };
    events.push(appendEvent(record, chain, { ...sample, timeMs: sample.timeMs + later }).slice());
    hashes.push(chain.lastHash.slice());
  }
  return { chain, events, hashes };
}
