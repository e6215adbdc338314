/** Writes what members do in the form in which the public TLA+ model of Raft reads traces. */
import type { Message, TraceEvent } from "#core/raft";
import { MessageKind } from "#core/raft";
import { MemberChangeKind } from "#proto";
import { kindName, roleNames } from "./describe.ts";

const texts = (ids: readonly number[]) => ids.map(String);

/** A snapshot counts as as many entries as it stands for. */
function traced(message: Message) {
  const { snapshot } = message;
  const isSnapshot = message.kind === MessageKind.snapshot;
  return {
    type: kindName(message),
    term: message.term,
    from: String(message.from),
    to: String(message.to),
    entries: isSnapshot ? (snapshot?.index ?? 0) : message.entries.length,
    logTerm: isSnapshot ? 0 : message.logTerm,
    index: isSnapshot ? 0 : message.index,
    commit: message.commit,
    vote: "0",
    reject: message.reject,
    rejectHint: message.rejectHint,
  };
}

const actions: ReadonlyMap<number, string> = new Map<number, string>([
  [MemberChangeKind.addVoter, "AddNewServer"],
  [MemberChangeKind.remove, "RemoveServer"],
  [MemberChangeKind.addLearner, "AddLearner"],
]);

function properties({ changes, newVoters, progress }: TraceEvent): { prop?: object } {
  if (progress !== undefined) return { prop: progress };
  if (newVoters !== undefined) return { prop: { cc: newVoters.length === 0 ? {} : { newconf: texts(newVoters) } } };
  if (changes === undefined) return {};
  return { prop: { cc: { changes: changes.map(({ kind, node }) => ({ nid: String(node), action: actions.get(kind) })) } } };
}

export function tlaEvent(event: TraceEvent) {
  const { name, id, hard, role, lastIndex, conf, message } = event;
  return {
    name,
    nid: String(id),
    state: { term: hard.term, vote: String(hard.vote), commit: hard.commit },
    role: roleNames[role],
    log: lastIndex,
    conf: [texts(conf.voters), texts(conf.votersOutgoing)],
    ...(message === undefined ? {} : { msg: traced(message) }),
    ...properties(event),
  };
}

/** One line of a trace file. */
export const tlaLine = (event: TraceEvent) => JSON.stringify({ tag: "trace", event: tlaEvent(event) });
