/**
 * Vocabulary of a Raft group: entries, hard state, membership, messages, what a step asks for.
 *
 * The objects are those of the wire codec with branded numbers: nothing is converted on the way
 * in or out. Node 0 is nobody, index 0 and term 0 are before the log.
 */
import { asNodeId, type Index, type NodeId, type ShardId, type Term } from "#core/base";
import { type RaftEntryKind, RaftMessageKind } from "#proto";

export const nobody = asNodeId(0);

/** `data` is whatever the state machine takes (empty: a new leader's first entry), or an encoded `ConfChangeV2`. */
export interface Entry {
  readonly term: Term;
  readonly index: Index;
  readonly kind: RaftEntryKind;
  readonly data: Uint8Array;
}

/** What must be durable before a member speaks again. Only `term` and `vote` need a flush of their own. */
export interface HardState {
  readonly term: Term;
  readonly vote: NodeId;
  readonly commit: Index;
}

/** Ascending ids. Joint while `votersOutgoing` is not empty. */
export interface ConfState {
  readonly voters: readonly NodeId[];
  readonly learners: readonly NodeId[];
  readonly votersOutgoing: readonly NodeId[];
  readonly learnersNext: readonly NodeId[];
  readonly autoLeave: boolean;
}

/** The state as of `index`, without the state: whoever stores or sends one moves the data. */
export interface SnapshotMeta {
  readonly index: Index;
  readonly term: Term;
  readonly conf: ConfState;
}

/** Kinds on the wire, and `appended`, by which a member's own log reports to it. */
export const MessageKind = { ...RaftMessageKind, appended: 64 } as const;
export type MessageKind = (typeof MessageKind)[keyof typeof MessageKind];

/** The wire's `RaftMessage`. `encodeRaftMessage` takes it, `messageOf` makes one of what was decoded. */
export interface Message {
  readonly kind: MessageKind;
  readonly shard: ShardId;
  readonly from: NodeId;
  readonly to: NodeId;
  readonly term: Term;
  readonly logTerm: Term;
  /** Only a member's own coalesced acknowledgement changes after it was made. */
  index: Index;
  readonly commit: Index;
  readonly entries: readonly Entry[];
  readonly reject: boolean;
  readonly rejectHint: Index;
  readonly context: number;
  readonly tick: number;
  readonly transfer: boolean;
  readonly snapshot: SnapshotMeta | undefined;
}

export type Role = "follower" | "preCandidate" | "candidate" | "leader";

/** Lost at a restart; for whoever shows or routes. */
export interface SoftState {
  readonly leader: NodeId;
  readonly role: Role;
}

/** A read that may be answered from a state that has applied `index`. */
export interface ReadState {
  readonly context: number;
  readonly index: Index;
}

/**
 * One write to the log. Writes are done in the order they were handed out. All of it is durable
 * at once or not at all, and before any of `responses` is stepped (those to oneself) or sent.
 */
export interface Append {
  /** An entry at or below the last index replaces it and all behind it. */
  readonly entries: readonly Entry[];
  /** May be left out when only its commit index is new: that is learnt again. */
  readonly hardState: HardState | undefined;
  /**
   * The log begins behind it; what it held before is no part of the log any more. Entries up to
   * it that were handed out before and are not applied yet are not to be applied any more.
   */
  readonly snapshot: SnapshotMeta | undefined;
  /** False if nothing is lost when this is not flushed (only the commit index moved). */
  readonly mustSync: boolean;
  readonly responses: readonly Message[];
}

/** What there is to do. All parts may be done side by side. */
export interface Ready {
  /** To other members; may leave now. May be lost. */
  readonly messages: readonly Message[];
  readonly append: Append | undefined;
  /** Next entries to apply, in order. Say `applied(last index)` when that is done. */
  readonly committed: readonly Entry[];
  readonly reads: readonly ReadState[];
  /** Set when it changed. */
  readonly soft: SoftState | undefined;
}

/**
 * The log as far as it was handed out to be written, read synchronously.
 *
 * Entries between the first and the last index are there. `compacted`: below the first one.
 * `unavailable`: not readable just now, ask again later.
 */
export interface RaftStorage {
  /** Hard state as last written, and the membership as of the index that is given as `applied`. */
  initialState(): { readonly hard: HardState; readonly conf: ConfState };
  /** Index of the first entry there is: 1 in a log that was never cut. */
  firstIndex(): Index;
  /** `firstIndex() − 1` in an empty log. */
  lastIndex(): Index;
  /** Also answers for `firstIndex() − 1`, the entry that the log stands on. */
  term(index: Index): Term | "compacted" | "unavailable";
  /** Entries in [begin, end): at least one, then as many as fit into `maxBytes` by `entryBytes`. */
  entries(begin: Index, end: Index, maxBytes: number): readonly Entry[] | "compacted" | "unavailable";
  /** What to send to a member that is behind the log; `later` if there is none yet. */
  snapshot(): SnapshotMeta | "later";
}

/** What an entry counts for wherever bytes are bounded. */
export const entryBytes = (entry: Entry) => entry.data.length + 16;

/** Fate of a proposal: appended, or why nothing was. `refused`: see `confChangeProblem`. */
export type Proposed = "ok" | "notLeader" | "transferring" | "full" | "refused";

/** Fate of a message: `unknown` came from nobody this member knows, `foreign` is no message for it. */
export type Stepped = "ok" | "unknown" | "foreign";

/** All settings. What `raftDefaults` has may be left out. */
export interface RaftSettings {
  readonly id: NodeId;
  readonly shard: ShardId;
  readonly storage: RaftStorage;
  /** Last index that the state machine has applied; `committed` goes on behind it. */
  readonly applied: Index;
  /** Ticks without a leader after which an election begins: drawn from [this, twice this). */
  readonly electionTicks: number;
  readonly heartbeatTicks: number;
  /** A number in [0, below). */
  draw(below: number): number;
  /** Entries in one message, by `entryBytes`; one always fits. */
  readonly maxBytesPerMessage: number;
  /** Committed entries handed out and not yet applied, by `entryBytes`; one always fits. */
  readonly maxApplyBytes: number;
  /** Payload bytes that may wait for their commit; beyond it proposals are `full`. */
  readonly maxUncommittedBytes: number;
  /** Append messages on their way to one member, and entry payload bytes in them. */
  readonly maxInflight: number;
  readonly maxInflightBytes: number;
  /** A leader steps down when no majority answered for an election timeout. */
  readonly checkQuorum: boolean;
  /** Ask before raising the term. */
  readonly preVote: boolean;
  /**
   * Answering a heartbeat promises to elect nobody else for an election timeout, whatever happens
   * in between: leases rest on it.
   */
  readonly leases: boolean;
  /**
   * This member may have answered heartbeats before it was started, and keeps the promise that it
   * may have forgotten. Left out: true if its hard state has a term.
   */
  readonly restarted?: boolean | undefined;
  /** A leader that is no voter any more becomes a follower. */
  readonly stepDownOnRemoval: boolean;
  /** Refuse changes of membership that do not fit the one in force. */
  readonly checkConfChanges: boolean;
  /** Hand out committed entries before they are durable here. */
  readonly applyUnstable: boolean;
  /** Told about each event in the vocabulary of the TLA+ model. */
  readonly trace?: Trace | undefined;
}

/** An event of the TLA+ model's vocabulary, with the member as it was then. */
export interface TraceEvent extends TraceDetail {
  readonly name: string;
  readonly id: NodeId;
  readonly hard: HardState;
  readonly role: Role;
  readonly lastIndex: Index;
  readonly conf: ConfState;
}

export interface TraceDetail {
  readonly message?: Message | undefined;
  readonly changes?: readonly MemberChange[] | undefined;
  readonly newVoters?: readonly NodeId[] | undefined;
  readonly progress?: { readonly match: number; readonly next: number } | undefined;
}

export type Trace = (event: TraceEvent) => void;

/** One step of a change of membership. */
export interface MemberChange {
  readonly kind: number;
  readonly node: number;
}

/** As production runs it: a tick is 50 ms. */
export const raftDefaults = {
  electionTicks: 10,
  heartbeatTicks: 2,
  maxBytesPerMessage: 1 << 20,
  maxApplyBytes: 8 << 20,
  maxUncommittedBytes: 64 << 20,
  maxInflight: 256,
  maxInflightBytes: 16 << 20,
  checkQuorum: true,
  preVote: true,
  leases: true,
  stepDownOnRemoval: true,
  checkConfChanges: true,
  applyUnstable: false,
} as const;

export type RaftConfig = Omit<RaftSettings, keyof typeof raftDefaults> & Partial<Pick<RaftSettings, keyof typeof raftDefaults>>;
