/** The eight invariants of Raft (I6) over every group of the cluster, dead members and their disks included. */
import type { NodeId, ShardId } from "#core/base";
import { type ConfState, noConf } from "#core/raft";
import type { MemoryDisk } from "#store";
import type { Group } from "../../../node/replica/group.ts";
import { type LogView, type MemberView, RaftInvariants } from "../../raft/invariants.ts";
import type { Journal } from "../journal.ts";
import type { SimNode } from "../node.ts";
import { Violation } from "../violation.ts";

interface Watched {
  view: MemberView;
  group: Group | undefined;
  commit: number;
  last: number;
  lastTerm: number;
  durable: number;
  term: number;
  leads: boolean;
  /** Of the node's log when it was looked at: while both stay, so does all that its log says. */
  position: number;
  durablePosition: number;
}

export class RaftWatch {
  private readonly journal: Journal;
  private readonly invariants = new Map<ShardId, RaftInvariants>();
  private readonly members = new Map<ShardId, Map<NodeId, Watched>>();
  /** Of nodes that live. */
  private readonly known = new Map<Group, Watched>();

  constructor(journal: Journal) {
    this.journal = journal;
  }

  /** Looks at what a node's step may have changed of a group. False where that is nothing. */
  observe(node: SimNode, group: Group): boolean {
    const { log } = node;
    const { commitIndex: commit, term, leads } = group;
    const position = log.position();
    const durablePosition = log.durablePosition();
    let known = this.known.get(group);
    if (
      known !== undefined &&
      known.position === position &&
      known.durablePosition === durablePosition &&
      known.commit === commit &&
      known.term === term &&
      known.leads === leads
    )
      return false;
    const { shard } = group;
    // Its members end one after the other: nobody counts on it any more.
    if (this.journal.shards.get(shard)?.record.isRetired === true) return true;
    known ??= this.watch(node, group);
    const last = log.lastIndex(shard);
    const lastTerm = log.term(shard, last) ?? 0;
    const durable = log.durableIndex(shard);
    const isSame =
      known.commit === commit && known.last === last && known.lastTerm === lastTerm && known.term === term && known.leads === leads;
    Object.assign(known, { commit, last, lastTerm, durable, term, leads, position, durablePosition });
    if (!isSame) this.check(shard, known.view);
    return true;
  }

  /** The node is dead: its members are what its disk says, or, where that is lost too, what they had committed. */
  died(id: NodeId, disk: MemoryDisk | undefined): void {
    for (const [shard, members] of this.members) {
      const known = members.get(id);
      if (known === undefined) continue;
      if (known.group !== undefined) this.known.delete(known.group);
      known.group = undefined;
      known.leads = false;
      const { term, commit } = known;
      const isGone = disk === undefined || disk.facts.get(shard)?.isRemoved === true;
      const log = isGone ? this.ghost(shard, known) : diskLog(disk, shard);
      known.view = { id, term, vote: 0, role: "follower", commit: Math.min(commit, log.lastIndex), conf: noConf, log, durable: log };
      if (disk !== undefined && this.journal.shards.get(shard)?.record.isRetired !== true) this.check(shard, known.view);
    }
  }

  private check(shard: ShardId, moved: MemberView): void {
    const invariants = this.invariants.get(shard) ?? new RaftInvariants();
    this.invariants.set(shard, invariants);
    const members = [...this.membersOf(shard).values()].map((each) => each.view);
    const broken = invariants.observe(members, moved);
    if (broken === undefined) return;
    const name = broken.slice(0, broken.indexOf(":"));
    throw new Violation(name, `shard ${shard}, ${broken.slice(name.length + 2)}`);
  }

  private membersOf(shard: ShardId): Map<NodeId, Watched> {
    const found = this.members.get(shard);
    if (found !== undefined) return found;
    const made = new Map<NodeId, Watched>();
    this.members.set(shard, made);
    return made;
  }

  /** Views that move with the node. What a removed replica had committed counts on: others may still rest on it. */
  private watch(node: SimNode, group: Group): Watched {
    const { log } = node;
    const { shard } = group;
    // What it acknowledged as durable others may have counted.
    const ghost = () => this.ghost(shard, known);
    const viewOf = (lastIndex: () => number): LogView => ({
      get base() {
        return log.isRemoved(shard) ? ghost().base : log.base(shard).index;
      },
      get lastIndex() {
        return log.isRemoved(shard) ? ghost().lastIndex : lastIndex();
      },
      term: (index) => (log.isRemoved(shard) ? ghost().term(index) : index === 0 ? 0 : (log.term(shard, index as never) ?? -1)),
    });
    const view: MemberView = {
      id: node.id,
      get term() {
        return group.term;
      },
      vote: 0,
      get role() {
        return group.leads && !log.isRemoved(shard) ? ("leader" as const) : ("follower" as const);
      },
      get commit() {
        return log.isRemoved(shard) ? known.commit : group.commitIndex;
      },
      get conf(): ConfState {
        return group.conf;
      },
      log: viewOf(() => log.lastIndex(shard)),
      durable: viewOf(() => log.durableIndex(shard)),
    };
    const known: Watched = {
      view,
      group,
      commit: -1,
      last: -1,
      lastTerm: 0,
      durable: -1,
      term: 0,
      leads: false,
      position: -1,
      durablePosition: -1,
    };
    const before = this.membersOf(shard).get(node.id)?.group;
    if (before !== undefined) this.known.delete(before);
    this.membersOf(shard).set(node.id, known);
    this.known.set(group, known);
    return known;
  }

  /** A log that is gone, through what its node had committed or acknowledged as durable. */
  private ghost(shard: ShardId, { commit, durable, lastTerm }: Watched): LogView {
    const at = this.journal.shards.get(shard);
    const base = at?.base ?? 0;
    const lastIndex = Math.max(commit, durable, base);
    // What a split made begins behind an entry of term 1; what is not committed yet is of its last term.
    const term = (index: number): number => (index > lastIndex ? -1 : index <= base ? base : (at?.entry(index)?.term ?? lastTerm));
    return { base, lastIndex, term };
  }
}

function diskLog(disk: MemoryDisk, shard: ShardId): LogView {
  const base = disk.facts.get(shard)?.base ?? { index: 0, term: 0 };
  const records = disk.shards.get(shard) ?? [];
  return {
    base: base.index,
    lastIndex: base.index + records.length,
    term: (index) => (index === base.index ? base.term : (records[index - base.index - 1]?.term ?? -1)),
  };
}
