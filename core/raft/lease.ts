/**
 * How long a leader may answer reads alone.
 *
 * A member that answers a heartbeat promises to help nobody else into office for an election
 * timeout, by its own ticks from then on. The answer echoes the leader's tick at which the
 * heartbeat was sent, which is no later than the promise. So from the tick that a majority has
 * echoed, no other leader can be for nearly an election timeout.
 *
 * Nearly: two ticks are left off. One because both sides count whole ticks (a promise of ten may
 * be little more than nine long), one for clocks that don't run equally fast. `tick` is asked
 * from the clock at the moment of the read, so a process that was paused finds its lease over.
 */
import { jointIndex } from "./quorum.ts";
import type { RaftState } from "./state.ts";

const marginTicks = 2;

/** First tick at which the lease is over, judged at `tick`; −Infinity if there is none. */
export function leaseTick(raft: RaftState, tick: number): number {
  if (!raft.config.leases || raft.role !== "leader" || raft.hasEndedLease) return Number.NEGATIVE_INFINITY;
  const echoed = jointIndex(raft.conf.voters, raft.conf.votersOutgoing, (voter) =>
    voter === raft.id ? tick : (raft.progress.get(voter)?.echoedTick ?? -1),
  );
  return echoed < 0 ? Number.NEGATIVE_INFINITY : echoed + raft.config.electionTicks - marginTicks;
}
