/**
 * Changes of membership, as functions from one configuration to the next.
 *
 * A simple change moves at most one voter. Anything more goes through a joint configuration that
 * needs the majority of the old and of the new voters. Every function checks the result and
 * changes nothing when it refuses.
 */
import { asNodeId, assert, type NodeId, unreachable } from "#core/base";
import {
  type ConfChangeV2,
  type ConfChangeV2Init,
  ConfTransition,
  decodeConfChangeV2,
  decodeConfState,
  encodeConfChangeV2,
  encodeConfState,
  fromBytes,
  MemberChangeKind,
  toBytes,
} from "#proto";
import type { ConfState, MemberChange } from "./types.ts";

/** The next configuration, and members of it about which nothing is known any more; or why there is none. */
export type Changed = { readonly conf: ConfState; readonly renewed: ReadonlySet<NodeId> } | { readonly problem: string };

export const noConf: ConfState = { voters: [], learners: [], votersOutgoing: [], learnersNext: [], autoLeave: false };

export const isJoint = (conf: ConfState) => conf.votersOutgoing.length > 0;

/** Everybody who is replicated to, ascending. */
export function membersOf(conf: ConfState): NodeId[] {
  return ascending(new Set([...conf.voters, ...conf.votersOutgoing, ...conf.learners, ...conf.learnersNext]));
}

/** Voters of both halves, ascending. */
export function votersOf(conf: ConfState): NodeId[] {
  return ascending(new Set([...conf.voters, ...conf.votersOutgoing]));
}

export const isVoter = (conf: ConfState, id: NodeId) => conf.voters.includes(id) || conf.votersOutgoing.includes(id);

/** What an entry of kind config holds. */
export const confChangeBytes = (change: ConfChangeV2Init) => toBytes(encodeConfChangeV2, change);
/** Throws `CodecError`. */
export const confChangeOf = (data: Uint8Array): ConfChangeV2 => fromBytes(decodeConfChangeV2, data);

export const confStateBytes = (conf: ConfState) => toBytes(encodeConfState, conf);

/** Throws `CodecError`, and `InvariantError` if what was stored is no configuration. */
export function confStateOf(data: Uint8Array): ConfState {
  const conf = fromBytes(decodeConfState, data) as unknown as ConfState;
  const problem = confProblem(conf);
  assert(problem === undefined, `Cannot read a configuration: ${problem}`);
  return conf;
}

export const leavesJoint = (change: ConfChangeV2) => change.transition === ConfTransition.auto && change.changes.length === 0;

/** The configuration after `change`, by whichever road it asks for. */
export function changedBy(conf: ConfState, change: ConfChangeV2): Changed {
  if (leavesJoint(change)) return leaveJoint(conf);
  if (change.transition !== ConfTransition.auto || change.changes.length > 1)
    return enterJoint(conf, change.changes, change.transition !== ConfTransition.explicit);
  return changeSimply(conf, change.changes);
}

export function changeSimply(conf: ConfState, changes: readonly MemberChange[]): Changed {
  if (isJoint(conf)) return { problem: "can't apply simple config change in joint config" };
  const draft = new Draft(conf);
  const problem = draft.apply(changes);
  if (problem !== undefined) return { problem };
  if (differences(conf.voters, draft.voters) > 1) return { problem: "more than one voter changed without entering joint config" };
  return draft.finish(false);
}

export function enterJoint(conf: ConfState, changes: readonly MemberChange[], autoLeave: boolean): Changed {
  if (isJoint(conf)) return { problem: "config is already joint" };
  if (conf.voters.length === 0) return { problem: "can't make a zero-voter config joint" };
  const draft = new Draft(conf);
  for (const id of conf.voters) draft.outgoing.add(id);
  const problem = draft.apply(changes);
  return problem === undefined ? draft.finish(autoLeave) : { problem };
}

export function leaveJoint(conf: ConfState): Changed {
  if (!isJoint(conf)) return { problem: "can't leave a non-joint config" };
  const draft = new Draft(conf);
  for (const id of draft.learnersNext) draft.learners.add(id);
  draft.learnersNext.clear();
  draft.outgoing.clear();
  return draft.finish(false);
}

/** Sets that change while a list of steps is applied. */
class Draft {
  readonly voters: Set<NodeId>;
  readonly outgoing: Set<NodeId>;
  readonly learners: Set<NodeId>;
  readonly learnersNext: Set<NodeId>;
  private readonly known: Set<NodeId>;
  private readonly renewed = new Set<NodeId>();

  constructor(conf: ConfState) {
    this.voters = new Set(conf.voters);
    this.outgoing = new Set(conf.votersOutgoing);
    this.learners = new Set(conf.learners);
    this.learnersNext = new Set(conf.learnersNext);
    this.known = new Set(membersOf(conf));
  }

  apply(changes: readonly MemberChange[]): string | undefined {
    for (const change of changes) {
      // Node 0 takes the place of a step that was decided against.
      if (change.node === 0) continue;
      const id = asNodeId(change.node);
      const kind = change.kind as MemberChangeKind;
      switch (kind) {
        case MemberChangeKind.addVoter:
          this.addVoter(id);
          break;
        case MemberChangeKind.addLearner:
          this.addLearner(id);
          break;
        case MemberChangeKind.remove:
          this.remove(id);
          break;
        case MemberChangeKind.update:
          break;
        default:
          // Comes from bytes, so it may be anything.
          if (typeof kind === "number") return `unexpected conf type ${String(kind)}`;
          unreachable(kind);
      }
    }
    return this.voters.size === 0 ? "removed all voters" : undefined;
  }

  private meet(id: NodeId): void {
    if (!this.known.has(id)) this.renewed.add(id);
    this.known.add(id);
  }

  private addVoter(id: NodeId): void {
    this.meet(id);
    this.learners.delete(id);
    this.learnersNext.delete(id);
    this.voters.add(id);
  }

  /** A voter of the outgoing half must stay one until that is left. */
  private addLearner(id: NodeId): void {
    this.meet(id);
    if (this.learners.has(id)) return;
    this.voters.delete(id);
    this.learnersNext.delete(id);
    (this.outgoing.has(id) ? this.learnersNext : this.learners).add(id);
  }

  private remove(id: NodeId): void {
    this.voters.delete(id);
    this.learners.delete(id);
    this.learnersNext.delete(id);
    if (!this.outgoing.has(id)) this.known.delete(id);
  }

  finish(autoLeave: boolean): Changed {
    for (const id of this.learners)
      assert(!this.voters.has(id) && !this.outgoing.has(id), `Cannot change membership: node ${id} is a learner and a voter`);
    for (const id of this.learnersNext)
      assert(this.outgoing.has(id), `Cannot change membership: node ${id} is to become a learner but is no outgoing voter`);
    const conf: ConfState = {
      voters: ascending(this.voters),
      learners: ascending(this.learners),
      votersOutgoing: ascending(this.outgoing),
      learnersNext: ascending(this.learnersNext),
      autoLeave,
    };
    return { conf, renewed: this.renewed };
  }
}

const ascending = (ids: ReadonlySet<NodeId>): NodeId[] => [...ids].sort((a, b) => a - b);

function differences(before: readonly NodeId[], after: ReadonlySet<NodeId>): number {
  const gone = before.filter((id) => !after.has(id)).length;
  return gone + after.size - (before.length - gone);
}

/** What is wrong with a configuration that came from outside, or undefined. */
export function confProblem(conf: ConfState): string | undefined {
  const voters = new Set(votersOf(conf));
  for (const list of [conf.voters, conf.learners, conf.votersOutgoing, conf.learnersNext])
    for (const [at, id] of list.entries())
      if (id <= 0 || (at > 0 && id <= (list[at - 1] as number))) return `ids ${list.join(" ")} are not ascending and above 0`;
  const both = conf.learners.find((id) => voters.has(id));
  if (both !== undefined) return `node ${both} is a learner and a voter`;
  const loose = conf.learnersNext.find((id) => !conf.votersOutgoing.includes(id) || conf.voters.includes(id));
  if (loose !== undefined) return `node ${loose} is to become a learner but is no outgoing voter`;
  if (isJoint(conf) && conf.voters.length === 0) return "it has outgoing voters but no incoming ones";
  return conf.autoLeave && !isJoint(conf) ? "it is to be left but is not joint" : undefined;
}
