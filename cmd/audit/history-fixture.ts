/** Histories made by Core's own chain, for tests of what checks them. */
import { asIndex, type Partition, toHex } from "#core/base";
import {
  appendEvent,
  type ChainHead,
  inclusionProof,
  NodeList,
  PartitionChain,
  peaksOf,
  proofFileText,
  rootOf,
  savedRootText,
} from "#core/merkle";
import {
  type Encode,
  EventKind,
  encodeActivityCompleted,
  encodeActivityScheduled,
  encodeRunCompleted,
  encodeRunStarted,
  Writer,
} from "#proto";
import { hasher, sha256 } from "./hasher.ts";
import type { HistorySource } from "./history-audit.ts";

export interface MadeHistory {
  readonly partition: string;
  readonly events: Uint8Array[];
  readonly blobs: Map<string, Uint8Array>;
  readonly head: ChainHead;
  readonly nodes: NodeList;
}

const json = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));

/** A run with one activity whose input is a blob. */
export function makeHistory(partition = "run/default:order-1"): MadeHistory {
  const chain = new PartitionChain(partition as Partition);
  const events: Uint8Array[] = [];
  const nodes = new NodeList(hasher);
  const add = <T>(kind: number, encode: Encode<T>, payload: T, issuer = "core") => {
    const record = { writer: new Writer(), index: asIndex(events.length + 1), hasher };
    const identity = issuer === "core" ? { issuer, causeSeq: events.length - 1 } : { issuer, subject: "ada" };
    events.push(
      appendEvent(record, chain, {
        timeMs: 1_770_000_000_000 + events.length,
        logical: 0,
        kind,
        schemaId: 1,
        identity,
        encode,
        payload,
      }).slice(),
    );
    nodes.append(chain.lastHash);
  };
  const code = json("the bundle's code");
  const large = json({ order: "x".repeat(100) });
  const blobs = new Map([code, large].map((bytes) => [toHex(sha256(bytes)), bytes]));
  add(
    EventKind.runStarted,
    encodeRunStarted,
    { generation: 1, type: "order", bundle: sha256(code), input: { data: json({ id: 1 }) } },
    "local",
  );
  add(EventKind.activityScheduled, encodeActivityScheduled, {
    op: 1,
    name: "charge",
    input: { ref: { sha256: sha256(large), size: large.length } },
  });
  add(EventKind.activityCompleted, encodeActivityCompleted, { op: 1, attempt: 1, result: { data: json("ok") }, worker: "w1" });
  add(EventKind.runCompleted, encodeRunCompleted, { result: { data: json({ total: 3 }) } });
  return { partition, events, blobs, head: chain.head(), nodes };
}

/** The history as a server would hand it out. */
export function sourceOf(made: MadeHistory): HistorySource {
  return {
    partition: made.partition,
    async *events() {
      yield made.events;
    },
    blob: (hash) => {
      const bytes = made.blobs.get(toHex(hash));
      return bytes === undefined
        ? Promise.reject(Object.assign(new Error("there is no such blob"), { reason: "BLOB_NOT_FOUND" }))
        : Promise.resolve(bytes);
    },
    claimed: () => Promise.resolve({ size: made.head.size, peaks: made.head.peaks, lastHash: made.head.lastHash }),
  };
}

/** Text of the proof file for one event. */
export function proofOf(made: MadeHistory, seq: number): string {
  const size = made.events.length;
  const proof = inclusionProof(made.nodes, { seq, size });
  if ("reject" in proof) throw new Error(proof.message);
  return proofFileText({ partition: made.partition, event: made.events[seq] as Uint8Array, proof, root: rootOf(made.nodes, size, hasher) });
}

/** Text of the root file of the history's first `size` events. */
export function rootFileOf(made: MadeHistory, size: number): string {
  return savedRootText({ partition: made.partition, size, peaks: peaksOf(made.nodes, size), root: rootOf(made.nodes, size, hasher) });
}
