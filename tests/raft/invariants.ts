/**
 * The eight invariants of the public TLA+ model of Raft, over what can be seen of all members.
 *
 * `observe` is called after every step with the member that moved; it looks at what changed, so
 * it can be called millions of times. Of committed entries only terms are kept: (index, term)
 * names an entry, which log matching itself checks.
 *
 * Where the model takes its committed prefix from each member, this takes the moments at which a
 * leader raised the commit index: only then it is certain which voters had to agree.
 */
import type { NodeId } from "#core/base";
import type { ConfState, Role } from "#core/raft";
import { majorityVote } from "../../core/raft/quorum.ts";

/** Terms of a log: −1 outside of it. `base` is what it stands on: everything up to there is committed. */
export interface LogView {
  readonly base: number;
  readonly lastIndex: number;
  term(index: number): number;
}

export interface MemberView {
  readonly id: NodeId;
  readonly term: number;
  readonly vote: number;
  readonly role: Role;
  readonly commit: number;
  readonly conf: ConfState;
  readonly log: LogView;
  /** What would be left of it after a crash now. */
  readonly durable: LogView;
}

/** A leader counted a majority of `conf` for `index`. */
interface Commit {
  readonly index: number;
  /** Of the entry there. */
  readonly term: number;
  /** Of the leader. */
  readonly leaderTerm: number;
  readonly conf: ConfState;
}

const none: readonly MemberView[] = [];

export class RaftInvariants {
  private members: readonly MemberView[] = none;
  /** Terms of committed entries, by index. */
  private readonly committed: number[] = [];
  private readonly commits: Commit[] = [];
  private readonly leaders = new Map<number, NodeId>();
  /** Term of the entry before, for every entry ever seen: by its term, then by its index. */
  private readonly before = new Map<number, number[]>();
  private readonly seen = new Map<NodeId, { commit: number; terms: number[]; lastIndex: number }>();

  /** Highest index that is known to be committed. */
  get committedIndex(): number {
    return this.committed.length - 1;
  }

  /** Terms that had a leader. */
  get leaderCount(): number {
    return this.leaders.size;
  }

  /** Checks everything that `moved`'s last step can have broken. The first broken invariant, with what it saw. */
  observe(members: readonly MemberView[], moved: MemberView): string | undefined {
    this.members = members;
    return (
      this.logMatching(moved) ??
      this.committedLogsArePrefixes(moved) ??
      this.oneLeaderATerm(moved) ??
      this.electionSafety() ??
      this.committedIsDurable() ??
      this.quorumLog() ??
      this.moreUpToDate() ??
      this.leaderCompleteness()
    );
  }

  /** Two logs that have an entry of the same index and term are equal up to it. */
  private logMatching({ id, log, commit }: MemberView): string | undefined {
    const known = this.seen.get(id) ?? { commit: 0, terms: [], lastIndex: 0 };
    this.seen.set(id, known);
    for (let index = log.lastIndex; index > Math.max(log.base, 0); index--) {
      const term = log.term(index);
      if (index <= known.lastIndex && known.terms[index] === term) break;
      known.terms[index] = term;
      const prior = log.term(index - 1);
      let ofTerm = this.before.get(term);
      if (ofTerm === undefined) {
        ofTerm = [];
        this.before.set(term, ofTerm);
      }
      const first = ofTerm[index];
      if (first === undefined) ofTerm[index] = prior;
      else if (first !== prior) return `logMatching: entry ${index} of term ${term} follows term ${prior} at ${id}, elsewhere ${first}`;
    }
    known.lastIndex = log.lastIndex;
    // A log that was cut back is compared again from there.
    known.terms.length = Math.min(known.terms.length, log.lastIndex + 1);
    if (commit > log.lastIndex) return `logMatching: ${id} has committed ${commit} but its log ends at ${log.lastIndex}`;
    return undefined;
  }

  /** Of two committed logs one is a prefix of the other. */
  private committedLogsArePrefixes({ id, role, term, conf, commit, log }: MemberView): string | undefined {
    const known = this.seen.get(id) as { commit: number };
    // After a crash it knows less; what it learns again is compared again.
    for (let index = Math.max(Math.min(known.commit, commit), log.base) + 1; index <= commit; index++) {
      const own = log.term(index);
      const first = this.committed[index];
      if (first === undefined) this.committed[index] = own;
      else if (first !== own) return `committedLogsArePrefixes: entry ${index} is of term ${own} at ${id}, was committed in term ${first}`;
    }
    const last = this.commits.at(-1);
    if (role === "leader" && commit > known.commit && commit > (last?.index ?? 0))
      this.note({ index: commit, term: log.term(commit), leaderTerm: term, conf });
    known.commit = commit;
    return undefined;
  }

  /** Of the commits of one leader the newest says what the others say, so a long run stays short here. */
  private note(commit: Commit): void {
    if (this.commits.at(-1)?.leaderTerm === commit.leaderTerm) this.commits.pop();
    this.commits.push(commit);
  }

  /** A term has one leader. */
  private oneLeaderATerm({ id, role, term }: MemberView): string | undefined {
    if (role !== "leader") return undefined;
    const first = this.leaders.get(term) ?? id;
    this.leaders.set(term, first);
    return first === id ? undefined : `oneLeaderATerm: ${id} leads term ${term}, as ${first} did`;
  }

  /** A leader has every entry of its own term that anybody has. */
  private electionSafety(): string | undefined {
    for (const leader of this.members) {
      if (leader.role !== "leader") continue;
      for (const other of this.members) {
        const last = lastOfTerm(other.log, leader.term);
        if (last > leader.log.lastIndex || (last > 0 && leader.log.term(last) !== leader.term && last > leader.log.base))
          return `electionSafety: ${other.id} has entry ${last} of term ${leader.term}, its leader ${leader.id} does not`;
      }
    }
    return undefined;
  }

  /** Whatever is committed, a majority of those who had to agree would have after a crash of all. */
  private committedIsDurable(): string | undefined {
    return this.majorityHas("committedIsDurable", ({ durable }) => durable);
  }

  /** Every majority has a member whose log has all that is committed. */
  private quorumLog(): string | undefined {
    return this.majorityHas("quorumLog", ({ log }) => log);
  }

  private majorityHas(name: string, logOf: (member: MemberView) => LogView): string | undefined {
    const commit = this.commits.at(-1);
    if (commit === undefined) return undefined;
    const holds = (id: NodeId) => this.members.some((member) => member.id === id && has(logOf(member), commit));
    const { voters, votersOutgoing } = commit.conf;
    for (const half of [voters, votersOutgoing])
      if (majorityVote(half, holds) !== "won")
        return `${name}: entry ${commit.index} of term ${commit.term} is committed, but of ${half.join(" ")} only ${half.filter(holds).join(" ")} have it`;
    return undefined;
  }

  /** Whose log is at least as up to date as that of one who has what a leader committed, has that too. */
  private moreUpToDate(): string | undefined {
    const commit = this.commits.at(-1);
    if (commit === undefined) return undefined;
    for (const owner of this.members) {
      if (!has(owner.log, commit)) continue;
      for (const other of this.members) {
        if (other === owner || has(other.log, commit)) continue;
        if (isUpToDate(other.log, owner.log))
          return `moreUpToDate: ${other.id} is more up to date than ${owner.id} but has not entry ${commit.index} of term ${commit.term}`;
      }
    }
    return undefined;
  }

  /** A leader has everything that was committed in the terms before its own. */
  private leaderCompleteness(): string | undefined {
    for (const leader of this.members) {
      if (leader.role !== "leader") continue;
      const commit = this.commits.findLast(({ leaderTerm }) => leaderTerm < leader.term);
      if (commit !== undefined && !has(leader.log, commit))
        return `leaderCompleteness: ${leader.id} leads term ${leader.term} without entry ${commit.index}, committed in term ${commit.leaderTerm}`;
    }
    return undefined;
  }
}

const has = (log: LogView, { index, term }: Commit) => index <= log.base || log.term(index) === term;

function lastOfTerm(log: LogView, term: number): number {
  let index = log.lastIndex;
  while (index > log.base && log.term(index) > term) index--;
  return log.term(index) === term ? index : 0;
}

function isUpToDate(log: LogView, than: LogView): boolean {
  const [own, other] = [log.term(log.lastIndex), than.term(than.lastIndex)];
  return own > other || (own === other && log.lastIndex >= than.lastIndex);
}
