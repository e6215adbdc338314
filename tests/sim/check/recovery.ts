/** What must hold of histories after a crash, and at the end. */
import { bytesEqual, type Hasher, type Partition, putU64, toHex } from "#core/base";
import { verifyHistory } from "#core/merkle";
import { digest, nobleHasher } from "../../hashers.ts";
import type { Journal } from "../journal.ts";
import { claim } from "../violation.ts";
import type { Acked } from "./replies.ts";

/** I1, I2: everything that anybody was told of is in the log, where it was. */
export function noAckedEventLost(journal: Journal, acked: readonly Acked[]): void {
  for (const { partition, seq, hash } of acked) {
    const e = journal.of(partition).events[seq];
    claim(
      "noAckedEventLost",
      e !== undefined && bytesEqual(e.hash, hash),
      () => `${partition} seq ${seq} was acknowledged and is ${e === undefined ? "gone" : "another event now"}`,
    );
  }
}

/** I8: each history verifies from its bytes alone, and its range has the peaks that the shard says. */
export function historiesVerify(
  journal: Journal,
  headOf: (partition: Partition) => { readonly size: number; readonly peaks: Uint8Array } | undefined,
): void {
  const name = "chainAndMmrUnbroken";
  for (const { partition, events } of journal.partitions.values()) {
    if (events.length === 0) continue;
    const verdict = verifyHistory(
      nobleHasher,
      events.map((e) => e.bytes),
      { partition },
    );
    claim(name, verdict.ok, () => `${partition} does not verify: ${JSON.stringify(verdict)}`);
    const head = headOf(partition as Partition);
    claim(name, head?.size === events.length, () => `${partition} has ${events.length} events, the shard says ${head?.size}`);
    const peaks = peaksOf(
      events.map((e) => e.hash),
      nobleHasher,
    );
    claim(
      name,
      bytesEqual(peaks, head?.peaks ?? new Uint8Array(0)),
      () => `${partition} has peaks ${toHex(peaks)}, the shard says ${toHex(head?.peaks ?? new Uint8Array(0))}`,
    );
  }
}

/** Peaks of a range by its definition: two neighbours of one height get a parent at once. */
function peaksOf(leaves: readonly Uint8Array[], hasher: Hasher): Uint8Array {
  let nodes = 0;
  const peaks: { readonly height: number; readonly hash: Uint8Array }[] = [];
  const node = new Uint8Array(72);
  for (const leaf of leaves) {
    nodes++;
    peaks.push({ height: 0, hash: leaf });
    for (;;) {
      const [left, right] = peaks.slice(-2);
      if (left === undefined || right === undefined || left.height !== right.height) break;
      putU64(node, 0, ++nodes);
      node.set(left.hash, 8);
      node.set(right.hash, 40);
      peaks.splice(-2, 2, { height: left.height + 1, hash: digest(node, hasher) });
    }
  }
  return Uint8Array.from(peaks.flatMap((peak) => [...peak.hash]));
}
