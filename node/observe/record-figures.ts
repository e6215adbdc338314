/** Counts what records hold, for metrics: read from the bytes, without decoding what is not counted. */
import { EventKind, Reader } from "#proto";
import type { Metrics } from "./metrics.ts";

const eventTag = 10;
const kindTag = 40;

const outcomes: Readonly<Record<number, string>> = {
  [EventKind.runCompleted]: "completed",
  [EventKind.runFailed]: "failed",
  [EventKind.runCancelled]: "cancelled",
  [EventKind.runTerminated]: "terminated",
  [EventKind.runTimedOut]: "timed_out",
};

/** Adds one record's events to the metrics. */
export function countRecord(body: Uint8Array, metrics: Metrics): void {
  const reader = new Reader(body);
  let events = 0;
  while (reader.at < body.length) {
    const tag = reader.varint();
    if (tag !== eventTag) {
      reader.skip(tag, body.length);
      continue;
    }
    const end = reader.extent(body.length);
    const kind = kindOf(reader, end);
    reader.at = end;
    events++;
    if (kind === EventKind.runStarted) metrics.started();
    const outcome = outcomes[kind];
    if (outcome !== undefined) metrics.closed(outcome);
  }
  if (events > 0) metrics.appended(events);
}

/** Fields come in number order, so the kind is met early. */
function kindOf(reader: Reader, end: number): number {
  while (reader.at < end) {
    const tag = reader.varint();
    if (tag === kindTag) return reader.varint();
    reader.skip(tag, end);
  }
  return EventKind.unspecified;
}
