/** What an audit found, for people and for programs. */
import { toHex } from "#core/base";
import type { Check } from "#core/merkle";
import type { Identity } from "#proto";
import { timeText, whoText } from "../history.ts";
import type { Output } from "../output.ts";
import type { Column } from "../table.ts";
import { safeJson, visible } from "../terminal.ts";
import { showChecks } from "./checks.ts";
import type { AuditedEvent, AuditedHistory } from "./history-audit.ts";

/** An event without its bytes: a long history is kept whole until it is shown. */
export interface ShownEvent {
  readonly seq: number;
  readonly timeMs: number;
  readonly logical: number;
  readonly identity: Identity | undefined;
  readonly name: string;
  readonly summary: string;
  /** Hex. */
  readonly hash: string;
}

export function shownEvent({ event, described, hash }: AuditedEvent): ShownEvent {
  const { seq, timeMs, logical, identity } = event;
  return { seq, timeMs, logical, identity, name: described.name, summary: described.summary, hash: toHex(hash) };
}

const eventJson = ({ seq, timeMs, logical, identity, name, summary, hash }: ShownEvent) => ({
  seq,
  time: timeText(timeMs),
  logical,
  who: identity === undefined ? null : { ...identity },
  event: name,
  summary,
  hash,
});

export interface AuditReport {
  readonly partition: string;
  readonly history: AuditedHistory;
  readonly events: readonly ShownEvent[];
  /** Against a root that was kept. */
  readonly checks: readonly Check[];
}

export function showAudited(output: Output, { partition, history, events, checks }: AuditReport): void {
  const { head, blobCount, blobBytes } = history;
  const root = toHex(head.root);
  if (output.format === "json") {
    const ok = checks.every((check) => check.ok);
    const summary = { ok, partition, size: head.size, root, lastHash: toHex(head.lastHash), blobs: blobCount, blobBytes };
    output.json({ ...summary, checks, events: events.map(eventJson) });
    return;
  }
  showEvents(output, events);
  if (!output.isForPeople) return;
  const good = output.paint("green", "✓");
  output.line("");
  output.line(`${good} ${counted(head.size, "event")} of ${visible(partition)}: bytes, chain and Merkle range hold`);
  if (blobCount > 0) output.line(`${good} ${counted(blobCount, "blob")} of ${blobBytes} bytes: the hashes are those that the events name`);
  showChecks(output, checks);
  output.line(`root   ${output.paint("bold", root)}`);
}

/** A table, a line of JSON each, or the hashes; nothing for `json`, which is one value. */
export function showEvents(output: Output, events: readonly ShownEvent[]): void {
  if (output.format === "jsonl") for (const event of events) output.line(safeJson(eventJson(event)));
  else if (output.format === "ids") for (const event of events) output.line(event.hash);
  else if (output.isForPeople && events.length > 0) output.table(columns, events);
}

const columns: readonly Column<ShownEvent>[] = [
  { title: "SEQ", value: (event) => String(event.seq), align: "right" },
  { title: "TIME", value: (event) => timeText(event.timeMs) },
  { title: "WHO", value: (event) => whoText(event.identity), shrink: true },
  { title: "EVENT", value: (event) => event.name },
  { title: "SUMMARY", value: (event) => event.summary, shrink: true },
];

/** `1 event`, `2 events`. */
export const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;
