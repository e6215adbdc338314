/** What Raft reads of the node's log: everything handed out to be written, durable or not yet. */
import { asIndex, asNodeId, asTerm, type Index, ifAvailable, type ShardId, type Term } from "#core/base";
import type { ConfState, Entry, HardState, RaftStorage, SnapshotMeta } from "#core/raft";
import { RaftEntryKind } from "#proto";
import type { LogStore } from "#store";

export interface RaftStorageParts {
  readonly log: LogStore;
  readonly shard: ShardId;
  /** Membership as of `appliedIndex`. */
  readonly conf: ConfState;
  /** What the checkpointed state is the fold of; only committed entries are checkpointed. */
  readonly appliedIndex: Index;
  /** The log alone does not lead a new member past this index: it is given a snapshot. 0 = it does from the start. */
  readonly changedIndex: () => number;
  /** State that a new member may be given now. */
  readonly snapshot: () => SnapshotMeta | undefined;
}

export class LogRaftStorage implements RaftStorage {
  private readonly parts: RaftStorageParts;

  constructor(parts: RaftStorageParts) {
    this.parts = parts;
  }

  initialState(): { hard: HardState; conf: ConfState } {
    const { log, shard, conf, appliedIndex } = this.parts;
    const { term, vote, commit } = log.hardState(shard);
    // A replica that was removed and comes back keeps its vote, and nothing of its log.
    const committed = Math.min(Math.max(commit, appliedIndex, log.base(shard).index), log.lastIndex(shard));
    return { hard: { term, vote: asNodeId(vote), commit: asIndex(committed) }, conf };
  }

  firstIndex(): Index {
    const { log, shard, changedIndex } = this.parts;
    const first = log.firstIndex(shard);
    // A member that has the first entry has followed from the start, with the states that belong to it.
    return first === 1 && changedIndex() > 1 ? asIndex(2) : first;
  }

  lastIndex(): Index {
    return this.parts.log.lastIndex(this.parts.shard);
  }

  term(index: number): Term | "compacted" | "unavailable" {
    const { log, shard } = this.parts;
    if (index === 0) return asTerm(0);
    const term = log.term(shard, asIndex(index));
    if (term !== undefined) return term;
    return index < this.firstIndex() ? "compacted" : "unavailable";
  }

  entries(lo: number, hi: number, bytesMax: number): Entry[] | "compacted" | "unavailable" {
    const { log, shard } = this.parts;
    if (lo < this.firstIndex()) return "compacted";
    if (hi > log.lastIndex(shard) + 1) return "unavailable";
    // Raft asks again at its next tick.
    const read = ifAvailable(() => log.entries(shard, asIndex(lo), asIndex(hi), bytesMax));
    if (read === undefined) return "unavailable";
    return read.map(({ index, term, kind, data }) => ({
      index,
      term,
      kind: kind === "config" ? RaftEntryKind.config : RaftEntryKind.data,
      data,
    }));
  }

  snapshot(): SnapshotMeta | "later" {
    return ifAvailable(this.parts.snapshot) ?? "later";
  }
}
