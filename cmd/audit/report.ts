/** What an audit found, for people and for programs. */
import { toHex } from "#core/base";
import type { Check } from "#core/merkle";
import type { Identity } from "#proto";
import { timeText } from "../event-text.ts";
import { expiredText, whoText } from "../history.ts";
import type { Output } from "../output.ts";
import { statusWord } from "../status.ts";
import type { Column } from "../table.ts";
import { safeJson, visible } from "../terminal.ts";
import { showChecks } from "./checks.ts";
import type { AuditedEvent, AuditedHistory, ExpiredRange } from "./history-audit.ts";

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
    const expired = history.expired === undefined ? null : expiredJson(history.expired);
    const summary = { ok, partition, expired, size: head.size, root, lastHash: toHex(head.lastHash), blobs: blobCount, blobBytes };
    output.json({ ...summary, checks, events: events.map(eventJson) });
    return;
  }
  showEvents(output, events);
  if (!output.isForPeople) return;
  const good = output.paint("green", "✓");
  output.line("");
  const { expired } = history;
  if (expired !== undefined) {
    const gone = `the history of ${counted(expired.size, "event")} under root ${toHex(expired.root)} was taken away on ${timeText(expired.timeMs)}`;
    output.line(`${output.paint("yellow", "!")} ${visible(`${gone}: ${expiredText(expired.told)}`)}`);
  }
  output.line(`${good} ${counted(head.size - (expired?.size ?? 0), "event")} of ${visible(partition)}: bytes, chain and Merkle range hold`);
  if (blobCount > 0) output.line(`${good} ${counted(blobCount, "blob")} of ${blobBytes} bytes: the hashes are those that the events name`);
  showChecks(output, checks);
  output.line(`root   ${output.paint("bold", root)}`);
}

function expiredJson({ size, root, timeMs, told }: ExpiredRange) {
  const { policy, policyVersion, policyIdentity, retentionMs, run } = told;
  const runs = run.map(({ generation, type, status, startedMs, closedMs }) => {
    return { generation, type, status: statusWord(status), startedAt: timeText(startedMs), closedAt: timeText(closedMs) };
  });
  const by = { namespace: policy, version: policyVersion, setBy: whoText(policyIdentity), retentionMs };
  return { events: size, root: toHex(root), at: timeText(timeMs), policy: by, runs };
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
