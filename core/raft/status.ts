/** What a member shows of itself. */
import { asIndex, type Index, type NodeId } from "#core/base";
import type { ProgressState } from "./progress.ts";
import type { RaftState } from "./state.ts";
import type { ConfState, HardState, SoftState } from "./types.ts";

/** What a leader knows of a member. */
export interface MemberStatus {
  readonly match: Index;
  readonly next: Index;
  readonly state: ProgressState;
  readonly recentActive: boolean;
  readonly isLearner: boolean;
  readonly isPaused: boolean;
  readonly pendingSnapshot: Index;
  readonly inflightCount: number;
  readonly isInflightFull: boolean;
}

export interface RaftStatus extends HardState, SoftState {
  readonly id: NodeId;
  readonly applied: Index;
  readonly lastIndex: Index;
  readonly durableIndex: Index;
  readonly conf: ConfState;
  /** To whom leadership is being handed over; 0 = nobody. */
  readonly transferee: NodeId;
  /** A change of membership may be in the log and not applied: no other is taken. */
  readonly hasPendingChange: boolean;
  /** Empty unless this member leads. */
  readonly progress: ReadonlyMap<NodeId, MemberStatus>;
}

export function statusOf(state: RaftState): RaftStatus {
  const { id, leader, role, conf, transferee, log } = state;
  const progress = new Map<NodeId, MemberStatus>();
  for (const each of role === "leader" ? state.members : [])
    progress.set(each.id, {
      match: asIndex(each.match),
      next: asIndex(each.next),
      state: each.state,
      recentActive: each.recentActive,
      isLearner: each.isLearner,
      isPaused: each.isPaused(),
      pendingSnapshot: asIndex(each.pendingSnapshot),
      inflightCount: each.inflights.count,
      isInflightFull: each.inflights.isFull(),
    });
  const { applied } = log;
  return {
    ...state.hardState(),
    ...{ id, leader, role, conf, transferee, applied, progress },
    lastIndex: log.lastIndex(),
    durableIndex: log.durableIndex(),
    hasPendingChange: role === "leader" && state.pendingConfIndex > applied,
  };
}
