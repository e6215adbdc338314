/** Prints what a member says and does the way the public scenarios print it. */
import {
  type ConfState,
  confChangeOf,
  type Entry,
  type HardState,
  type Message,
  MessageKind,
  type Role,
  type SnapshotMeta,
} from "#core/raft";
import { MemberChangeKind, RaftEntryKind } from "#proto";

/** Data of changes that were proposed in the older of two encodings, which the scenarios tell apart. */
export const oldChanges = new WeakSet<Uint8Array>();

const text = (data: Uint8Array) => new TextDecoder().decode(data);

const kindNames: ReadonlyMap<number, string> = new Map<number, string>([
  [MessageKind.append, "MsgApp"],
  [MessageKind.appendReply, "MsgAppResp"],
  [MessageKind.heartbeat, "MsgHeartbeat"],
  [MessageKind.heartbeatReply, "MsgHeartbeatResp"],
  [MessageKind.vote, "MsgVote"],
  [MessageKind.voteReply, "MsgVoteResp"],
  [MessageKind.preVote, "MsgPreVote"],
  [MessageKind.preVoteReply, "MsgPreVoteResp"],
  [MessageKind.snapshot, "MsgSnap"],
  [MessageKind.timeoutNow, "MsgTimeoutNow"],
  [MessageKind.appended, "MsgStorageAppendResp"],
]);

export const kindName = (message: { readonly kind: number }) => kindNames.get(message.kind) ?? `kind ${message.kind}`;

export const roleNames: Readonly<Record<Role, string>> = {
  follower: "StateFollower",
  preCandidate: "StatePreCandidate",
  candidate: "StateCandidate",
  leader: "StateLeader",
};

const letters: ReadonlyMap<number, string> = new Map<number, string>([
  [MemberChangeKind.addVoter, "v"],
  [MemberChangeKind.addLearner, "l"],
  [MemberChangeKind.remove, "r"],
  [MemberChangeKind.update, "u"],
]);

export function changesOf(input: string): { kind: number; node: number }[] {
  const words = input.trim() === "" ? [] : input.trim().split(" ");
  return words.map((word) => {
    const kind = [...letters].find(([, letter]) => letter === word[0])?.[0];
    if (kind === undefined) throw new SyntaxError(`Cannot read change ${word}`);
    return { kind, node: Number(word.slice(1)) };
  });
}

export function describeEntry(entry: Entry): string {
  const place = `${entry.term}/${entry.index}`;
  if (entry.kind === RaftEntryKind.data) return `${place} EntryNormal ${JSON.stringify(text(entry.data))}`;
  const name = oldChanges.has(entry.data) ? "EntryConfChange" : "EntryConfChangeV2";
  const changes = confChangeOf(entry.data).changes.map(({ kind, node }) => `${letters.get(kind)}${node}`);
  return `${place} ${name} ${changes.join(" ")}`.trimEnd();
}

export const describeHard = (hard: HardState) => `Term:${hard.term}${hard.vote === 0 ? "" : ` Vote:${hard.vote}`} Commit:${hard.commit}`;

const list = (ids: readonly number[]) => `[${ids.join(" ")}]`;

export function describeConfState(conf: ConfState): string {
  const { voters, votersOutgoing, learners, learnersNext, autoLeave } = conf;
  return `Voters:${list(voters)} VotersOutgoing:${list(votersOutgoing)} Learners:${list(learners)} LearnersNext:${list(learnersNext)} AutoLeave:${autoLeave}`;
}

export const describeSnapshot = (snapshot: SnapshotMeta) =>
  `Index:${snapshot.index} Term:${snapshot.term} ConfState:${describeConfState(snapshot.conf)}`;

/** A line of the scenarios, for messages and for work given to the two storage threads. */
export interface Line {
  readonly from: string;
  readonly to: string;
  readonly kind: string;
  readonly term: number;
  readonly logTerm?: number;
  readonly index?: number;
  readonly reject?: boolean;
  readonly rejectHint?: number;
  readonly commit?: number;
  readonly vote?: number;
  readonly entries?: readonly Entry[];
  readonly snapshot?: SnapshotMeta | undefined;
  readonly responses?: readonly Line[];
}

export function lineOf(message: Message): Line {
  const { kind, from, to } = message;
  const isVoteReply = kind === MessageKind.voteReply || kind === MessageKind.preVoteReply;
  // What is committed, which a rejection tells in addition, is not in the scenarios.
  const shown = isVoteReply ? { ...message, commit: 0, logTerm: 0 } : message;
  return { ...shown, kind: kindName({ kind }), from: kind === MessageKind.appended ? "AppendThread" : String(from), to: String(to) };
}

export function describeLine(line: Line, indent = ""): string {
  let out = `${indent}${line.from}->${line.to} ${line.kind} Term:${line.term} Log:${line.logTerm ?? 0}/${line.index ?? 0}`;
  if (line.reject === true) out += ` Rejected (Hint: ${line.rejectHint})`;
  if ((line.commit ?? 0) !== 0) out += ` Commit:${line.commit}`;
  if ((line.vote ?? 0) !== 0) out += ` Vote:${line.vote}`;
  const entries = line.entries ?? [];
  if (entries.length === 1) out += ` Entries:[${describeEntry(entries[0] as Entry)}]`;
  else if (entries.length > 1) out += ` Entries:[${entries.map((entry) => `\n${indent}  ${describeEntry(entry)}`).join("")}\n${indent}]`;
  if (line.snapshot !== undefined) out += `\n${indent}  Snapshot: ${describeSnapshot(line.snapshot)}`;
  const responses = line.responses ?? [];
  if (responses.length > 0) out += ` Responses:[\n${responses.map((each) => describeLine(each, `${indent}  `)).join("\n")}\n${indent}]`;
  return out;
}

const majority = (ids: readonly number[]) => `(${ids.join(" ")})`;

export function describeConf(conf: ConfState): string {
  let out = `voters=${majority(conf.voters)}`;
  if (conf.votersOutgoing.length > 0) out += `&&${majority(conf.votersOutgoing)}`;
  if (conf.learners.length > 0) out += ` learners=${majority(conf.learners)}`;
  if (conf.learnersNext.length > 0) out += ` learners_next=${majority(conf.learnersNext)}`;
  return conf.autoLeave ? `${out} autoleave` : out;
}

const stateNames = { probe: "StateProbe", replicate: "StateReplicate", snapshot: "StateSnapshot" } as const;

/** What is shown of a member's progress; as in `MemberStatus`. */
export interface Shown {
  readonly match: number;
  readonly next: number;
  readonly state: keyof typeof stateNames;
  readonly isLearner: boolean;
  readonly isPaused: boolean;
  readonly pendingSnapshot: number;
  readonly recentActive: boolean;
  readonly inflightCount: number;
  readonly isInflightFull: boolean;
}

export function describeProgress(shown: Shown): string {
  let out = `${stateNames[shown.state]} match=${shown.match} next=${shown.next}`;
  if (shown.isLearner) out += " learner";
  if (shown.isPaused) out += " paused";
  if (shown.pendingSnapshot > 0) out += ` pendingSnap=${shown.pendingSnapshot}`;
  if (!shown.recentActive) out += " inactive";
  if (shown.inflightCount > 0) out += ` inflight=${shown.inflightCount}${shown.isInflightFull ? "[full]" : ""}`;
  return out;
}
