/** What must hold of what workflows are told, wherever they run and whoever leads. */
import { toHex } from "#core/base";
import { EventKind as Kind } from "#proto";
import type { Journal } from "../journal.ts";
import { guestKinds, type JournalEvent } from "../model.ts";
import { claim } from "../violation.ts";

const rule = "activationOrder";

/** A run built anew is told its generation from the first event on, without a gap, to the byte. */
export function checkReplayed(journal: Journal, partition: string, events: readonly Uint8Array[]): JournalEvent[] {
  const told = known(journal, partition, events);
  const [first] = told;
  claim(rule, first?.kind === Kind.runStarted, () => `${partition} is built from an event of kind ${first?.kind}`);
  for (const [i, e] of told.entries()) {
    if (i === 0) continue;
    claim(rule, journal.before(e) === told[i - 1], () => `${partition} is built with seq ${e.seq} behind seq ${told[i - 1]?.seq}`);
  }
  return told;
}

/** A run that goes on is told the next events that are for it, in log order, none left out. */
export function checkContinued(
  journal: Journal,
  partition: string,
  last: JournalEvent | undefined,
  events: readonly Uint8Array[],
): JournalEvent[] {
  const told = known(journal, partition, events);
  let from = last;
  for (const e of told) {
    let at = journal.before(e);
    while (at !== undefined && at !== from && !guestKinds.has(at.kind)) at = journal.before(at);
    claim(rule, at === from, () => `${partition} is told seq ${e.seq} behind seq ${from?.seq}, and not seq ${at?.seq}`);
    from = e;
  }
  return told;
}

function known(journal: Journal, partition: string, events: readonly Uint8Array[]): JournalEvent[] {
  return events.map((bytes) => {
    const e = journal.appendedEvent(bytes);
    claim(rule, e !== undefined && e.partition === partition, () => `${partition} is told an event that no leader appended to it`);
    return e;
  });
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
