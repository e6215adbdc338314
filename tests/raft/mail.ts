/** What is on its way between the members of a scenario and their storage threads, and how it is printed. */
import { asIndex, asTerm, type NodeId } from "#core/base";
import type { Append, Entry, Message } from "#core/raft";
import type { RaftEntryKind } from "#proto";
import { type Line, lineOf } from "./describe.ts";

export interface Forwarded {
  readonly kind: "proposal";
  readonly from: NodeId;
  readonly to: NodeId;
  readonly proposal: { readonly kind: RaftEntryKind; readonly data: Uint8Array };
}

export interface Applied {
  readonly kind: "applied";
  readonly to: NodeId;
  readonly entries: readonly Entry[];
}

export type Mail = Message | Forwarded | Applied;

export function lineOfMail(mail: Mail): Line {
  if (mail.kind === "applied") return appliedLine(mail.to, mail.entries);
  return mail.kind === "proposal" ? forwardedLine(mail) : lineOf(mail);
}

export function forwardedLine({ from, to, proposal }: Forwarded): Line {
  const entry: Entry = { term: asTerm(0), index: asIndex(0), ...proposal };
  return { from: String(from), to: String(to), kind: "MsgProp", term: 0, entries: [entry] };
}

export function appendLine(id: NodeId, append: Append, hard: Append["hardState"]): Line {
  const own = hard === undefined ? { term: 0 } : { term: hard.term, vote: hard.vote, commit: hard.commit };
  const { entries, snapshot, responses } = append;
  return { from: String(id), to: "AppendThread", kind: "MsgStorageAppend", ...own, entries, snapshot, responses: responses.map(lineOf) };
}

export function applyLine(id: NodeId, entries: readonly Entry[], isWithResponse: boolean): Line {
  const responses = isWithResponse ? [appliedLine(id, entries)] : [];
  return { from: String(id), to: "ApplyThread", kind: "MsgStorageApply", term: 0, entries, responses };
}

export const appliedLine = (id: NodeId, entries: readonly Entry[]): Line => ({
  from: "ApplyThread",
  to: String(id),
  kind: "MsgStorageApplyResp",
  term: 0,
  entries,
});
