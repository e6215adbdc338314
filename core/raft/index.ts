export type { ConfChangeV2 as ConfChange } from "#proto";
export {
  confChangeBytes,
  confChangeOf,
  confProblem,
  confStateBytes,
  confStateOf,
  isJoint,
  isVoter,
  membersOf,
  noConf,
  votersOf,
} from "./membership.ts";
export { asksForVote, isOfLeader, messageOf } from "./message.ts";
export { type Proposal, Raft } from "./raft.ts";
export type { MemberStatus, RaftStatus } from "./status.ts";
export {
  type Append,
  type ConfState,
  type Entry,
  entryBytes,
  type HardState,
  type MemberChange,
  type Message,
  MessageKind,
  nobody,
  type Proposed,
  type RaftConfig,
  type RaftSettings,
  type RaftStorage,
  type ReadState,
  type Ready,
  type Role,
  raftDefaults,
  type SnapshotMeta,
  type SoftState,
  type Stepped,
  type Trace,
  type TraceDetail,
  type TraceEvent,
} from "./types.ts";
