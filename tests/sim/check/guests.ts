/** What must hold of what workflows are told, wherever they run. */
import { bytesEqual, toHex } from "#core/base";
import type { Journal } from "../journal.ts";
import { guestKinds, type JournalEvent } from "../model.ts";
import { claim } from "../violation.ts";

const rule = "activationOrder";

/** A run built anew is told its generation from the first event on, without a gap, to the byte. */
export function checkReplayed(journal: Journal, partition: string, events: readonly Uint8Array[]): JournalEvent[] {
  const log = journal.of(partition).events;
  const first = events[0];
  const from = log.findIndex((e) => first !== undefined && e.bytes.length === first.length && bytesEqual(e.bytes, first));
  claim(rule, from >= 0, () => `${partition} is built from an event that the log does not hold`);
  return same(partition, log.slice(from, from + events.length), events);
}

/** A run that goes on is told the next events that are for it, in log order, none left out. */
export function checkContinued(journal: Journal, partition: string, lastSeq: number, events: readonly Uint8Array[]): JournalEvent[] {
  const log = journal.of(partition).events;
  const next: JournalEvent[] = [];
  for (let seq = lastSeq + 1; next.length < events.length && seq < log.length; seq++) {
    const e = log[seq] as JournalEvent;
    if (guestKinds.has(e.kind)) next.push(e);
  }
  return same(partition, next, events);
}

function same(partition: string, want: readonly JournalEvent[], got: readonly Uint8Array[]): JournalEvent[] {
  claim(rule, want.length === got.length, () => `${partition} is told ${got.length} events, the log has ${want.length} for it`);
  for (const [i, e] of want.entries()) {
    claim(rule, bytesEqual(e.bytes, got[i] as Uint8Array), () => `${partition} is told another event than the log has at seq ${e.seq}`);
  }
  return [...want];
}

/** Equal histories make equal runs, live or replayed, however the events were batched. */
export class Digests {
  private readonly known = new Map<string, number>();

  check(e: JournalEvent, digest: number): void {
    const key = toHex(e.hash);
    const before = this.known.get(key);
    claim(
      "replayEqualsLive",
      before === undefined || before === digest,
      () => `${e.partition} is ${digest} after seq ${e.seq}, an earlier execution was ${before}`,
    );
    this.known.set(key, digest);
  }
}
