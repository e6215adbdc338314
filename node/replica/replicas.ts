/**
 * All replicas of this node: one clock for their groups, the way of messages to them, their births
 * and ends.
 *
 * A group in which nothing happens goes to sleep: its leader says so with the next beat of its
 * node, and its members stop counting. They wake when something is said or asked, or when the
 * leader's node is not heard any more. So a thousand idle shards cost a node no more than a few.
 */
import {
  asIndex,
  asShardId,
  asTerm,
  bytesEqual,
  doIfAvailable,
  ifAvailable,
  type KeyRange,
  type NodeId,
  overlaps,
  placementShard,
  type ShardId,
} from "#core/base";
import type { ShardEntry } from "#core/placement";
import { isOfLeader, type Message, MessageKind, membersOf, noConf } from "#core/raft";
import { changeOf } from "#core/shard";
import type { LogEntry } from "#store";
import type { ShardHost } from "../shard/shard-host.ts";
import { tickAt, tickMs } from "../timing.ts";
import { EarlyVotes } from "./early-votes.ts";
import type { Group } from "./group.ts";
import { LostStates, type StoredStatesOf } from "./lost-states.ts";
import { ShardReplica } from "./shard-replica.ts";
import { decodeSleepers, encodeSleepers, type Sleeper } from "./sleepers.ts";
import type { ReplicaSurroundings } from "./surroundings.ts";

/** Anything with a group: a shard's replica, or placement's. */
export interface GroupMember {
  readonly group: Group;
  onDurable(): void;
  stop(): void;
}

export interface ReplicasParts extends Omit<ReplicaSurroundings, "shards"> {
  /** A shard opened or closed for business here. */
  readonly onLed: (shard: ShardId, host: ShardHost | undefined) => void;
  /** A shard that is led here took in its neighbour's keys. */
  readonly onWidened: (shard: ShardId) => void;
  /** Fetches a snapshot for this node's member, and has it installed when it is there. One that fails is offered again. */
  readonly fetchSnapshot: (replica: ShardReplica, offered: Message) => void;
  /** Whether something was heard from the node lately. */
  readonly isHeard: (node: NodeId) => boolean;
  /** What was projected of the keys is another's now. */
  readonly onGone: (shard: ShardId, range: KeyRange) => void;
  /** A shard has committed further here. */
  readonly onCommitted: () => void;
  /** Left out where there is no object storage. */
  readonly storedStates?: StoredStatesOf | undefined;
}

/** Ticks without anything said or asked after which a group sleeps. */
const sleepyTicks = 40;
/** Sleeping groups are looked at each so many ticks: far less than an election takes. */
const watchTicks = 4;
/**
 * A new shard's first election is tried again after this long, and then twice that each time until it is as
 * long as elections are by themselves: votes that are under way are thrown away.
 */
const birthRetryMs = 150;
const birthRetryMsMax = 600;
const forgetPollMs = 5;
/** Before a disk that refused to delete is asked again. */
const unforgottenMs = 500;
/** A node says many times in this long which of its groups sleep. */
const saidMsMax = 2000;

/** What was said of sleeping groups, and as of which change of them. */
interface Lullaby {
  readonly version: number;
  readonly bytes: Uint8Array | undefined;
}

interface Idleness {
  ticks: number;
  isAsleep: boolean;
}

export class Replicas {
  private readonly parts: ReplicasParts;
  private readonly around: ReplicaSurroundings;
  private readonly shards = new Map<ShardId, ShardReplica>();
  private readonly members = new Map<ShardId, GroupMember>();
  /** Of `members`, since that changed last. */
  private groups: readonly Group[] | undefined;
  private readonly awake = new Set<ShardId>();
  private readonly idle = new Map<ShardId, Idleness>();
  /** Changes with each group that goes to sleep, wakes or ends. */
  private sleepVersion = 0;
  private readonly told = new Map<NodeId, Lullaby>();
  /** What each node said last of groups that sleep, and when. */
  private readonly said = new Map<NodeId, { atMs: number; readonly shards: ReadonlySet<ShardId> }>();
  /** Of each node what it said last, where all that it named sleeps here. */
  private readonly obeyed = new Map<NodeId, Lullaby>();
  /** Replicas that have ended, and whose end is not durable yet. */
  private forgetting = 0;
  private readonly lost: LostStates;
  private readonly early: EarlyVotes;
  /** Since sleeping groups were last looked at. */
  private ticks = 0;
  /** The clock's next turn is more than a tick away. */
  private isResting = false;
  private stopTimer = () => {};
  private isStopped = false;

  constructor(parts: ReplicasParts) {
    this.parts = parts;
    this.early = new EarlyVotes(() => parts.timing.monotonicMs());
    this.lost = new LostStates({
      ...parts,
      storedStates: parts.storedStates,
      isOver: (shard) => this.isStopped || this.shards.has(shard) || parts.log.isRemoved(shard),
      isTaken: (range) => this.hasKeysOf(range) || this.hasStatesToSaveOf(range),
      open: (shard) => void this.open(shard),
    });
    this.around = {
      ...parts,
      shards: {
        born: (child, campaigns) => this.born(child, campaigns),
        replica: (shard) => this.shards.get(shard),
        all: () => this.shards.values(),
        retire: (shard) => this.drop(shard),
        removed: (shard) => this.remove(shard),
        committed: () => parts.onCommitted(),
        opened: (shard, host) => parts.onLed(shard, host),
        closed: (shard) => parts.onLed(shard, undefined),
        widened: (shard) => parts.onWidened(shard),
        snapshotOffered: (shard, message) => {
          const replica = this.shards.get(shard);
          if (replica !== undefined) parts.fetchSnapshot(replica, message);
        },
      },
    };
  }

  /** Opens what the log holds, and lets time run. */
  start(): void {
    const { log, checkpoint } = this.parts;
    const isHere = (shard: ShardId) => shard !== placementShard && !log.isRemoved(shard);
    const shards = log.shards().filter(isHere);
    // What one that is opened gives birth to comes before its own turn.
    for (const shard of shards) if (checkpoint.meta(shard) !== undefined && !this.shards.has(shard)) this.open(shard);
    // One that has a base and no checkpoint was being born, or being fetched, and comes by that again; or its states are lost.
    const lost = this.lost.openWhole(shards.filter((shard) => !this.shards.has(shard) && checkpoint.meta(shard) === undefined));
    void this.lost.recover(lost);
    this.clock();
  }

  stop(): void {
    this.isStopped = true;
    this.stopTimer();
    for (const member of this.members.values()) member.stop();
  }

  /** Takes placement's group in. */
  adopt(shard: ShardId, member: GroupMember): void {
    this.members.set(shard, member);
    this.groups = undefined;
    this.wake(shard);
  }

  get(shard: ShardId): ShardReplica | undefined {
    return this.shards.get(shard);
  }

  group(shard: ShardId): Group | undefined {
    return this.members.get(shard)?.group;
  }

  all(): IterableIterator<ShardReplica> {
    return this.shards.values();
  }

  open(shard: ShardId): ShardReplica {
    const replica = new ShardReplica(shard, this.around);
    this.shards.set(shard, replica);
    this.members.set(shard, replica);
    this.groups = undefined;
    this.wake(shard);
    replica.start();
    return replica;
  }

  /** A message of another member. */
  receive(shard: ShardId, message: Message): void {
    if (this.isStopped) return;
    const member = this.members.get(shard) ?? this.admit(shard, message);
    if (member === undefined) return this.early.keep(shard, message);
    // The answer to a beat, perhaps to the last one before its leader went to sleep.
    if (message.kind !== MessageKind.heartbeatReply) this.wake(shard);
    member.group.receive(message);
  }

  /** To be called after each flush of the node's log. */
  onDurable(): void {
    const position = this.parts.log.durablePosition();
    for (const member of this.members.values()) {
      member.group.durable(position);
      member.onDurable();
    }
  }

  everyGroup(): readonly Group[] {
    this.groups ??= Array.from(this.members.values(), ({ group }) => group);
    return this.groups;
  }

  /** Hands the lead of a group over, where this node has it. */
  transfer(shard: ShardId, to: NodeId): void {
    const group = this.members.get(shard)?.group;
    if (group?.leads) group.transfer(to);
  }

  snapshotSent(shard: ShardId, node: NodeId, isTaken: boolean): void {
    const group = this.members.get(shard)?.group;
    if (group?.leads) group.snapshotSent(node, isTaken);
  }

  /** Placement wants something else now. */
  reconcile(): void {
    for (const shard of this.shards.values()) shard.reconcile();
  }

  onUnreachable(node: NodeId): void {
    for (const { group } of this.members.values()) if (group.leads) group.unreachable(node);
  }

  /** Something is asked of the shard: it must be awake to answer. */
  wake(shard: ShardId): void {
    const idle = this.idle.get(shard);
    if (idle === undefined) this.idle.set(shard, { ticks: 0, isAsleep: false });
    else {
      idle.ticks = 0;
      if (idle.isAsleep) this.sleepVersion++;
      idle.isAsleep = false;
    }
    this.awake.add(shard);
    if (!this.isResting || this.isStopped) return;
    this.stopTimer();
    this.clock();
  }

  /** Groups led here that sleep and have a member on the node. */
  sleepersFor(node: NodeId): Uint8Array | undefined {
    const known = this.told.get(node);
    if (known?.version === this.sleepVersion) return known.bytes;
    const sleepers: Sleeper[] = [];
    for (const [shard, { isAsleep }] of this.idle) {
      const group = isAsleep ? this.members.get(shard)?.group : undefined;
      if (group?.leads && membersOf(group.conf).includes(node)) sleepers.push({ shard, term: group.term, commit: group.commitIndex });
    }
    const bytes = sleepers.length === 0 ? undefined : encodeSleepers(sleepers);
    this.told.set(node, { version: this.sleepVersion, bytes });
    return bytes;
  }

  /** Goes to sleep with the leader where nothing is missing here. */
  onSleepers(from: NodeId, bytes: Uint8Array): void {
    const said = this.said.get(from);
    if (said !== undefined) said.atMs = this.parts.timing.monotonicMs();
    const before = this.obeyed.get(from);
    if (before?.version === this.sleepVersion && bytesEqual(before.bytes ?? bytes, bytes)) return;
    let areAllAsleep = true;
    const shards = new Set<ShardId>();
    this.said.set(from, { atMs: this.parts.timing.monotonicMs(), shards });
    for (const { shard, term, commit } of decodeSleepers(bytes)) {
      shards.add(shard);
      const group = this.members.get(shard)?.group;
      const isInStep = group?.leader === from && group.term === term && group.commitIndex === commit && group.lastIndex === commit;
      if (isInStep) this.sleep(shard);
      else areAllAsleep = false;
    }
    if (areAllAsleep) this.obeyed.set(from, { version: this.sleepVersion, bytes: bytes.slice() });
    else this.obeyed.delete(from);
  }

  /** While all groups sleep, only they are looked at. */
  private clock(): void {
    const ticks = this.awake.size === 0 ? watchTicks : 1;
    this.isResting = ticks > 1;
    this.stopTimer = this.parts.timing.after(tickMs * ticks, () => {
      if (this.isStopped) return;
      this.isResting = false;
      const tick = tickAt(this.parts.timing);
      for (const shard of [...this.awake]) this.tick(shard, tick);
      this.ticks += ticks;
      if (this.ticks >= watchTicks) {
        this.ticks = 0;
        this.watchSleepers();
      }
      this.clock();
    });
  }

  private tick(shard: ShardId, tick: number): void {
    const member = this.members.get(shard);
    const idle = this.idle.get(shard);
    if (member === undefined || idle === undefined) return void this.awake.delete(shard);
    const { group } = member;
    // Nobody else votes: there is nothing to time.
    if (group.leads && group.isSoleVoter && membersOf(group.conf).length === 1) {
      if (group.takeActivity()) idle.ticks = 0;
      else if (++idle.ticks >= sleepyTicks) this.sleep(shard);
      return;
    }
    group.tick(tick);
    if (group.takeActivity()) idle.ticks = 0;
    else idle.ticks++;
    if (group.leads && idle.ticks >= sleepyTicks && isQuiet(group)) this.sleep(shard);
  }

  private sleep(shard: ShardId): void {
    const idle = this.idle.get(shard);
    if (idle === undefined) return;
    if (!idle.isAsleep) this.sleepVersion++;
    idle.isAsleep = true;
    this.awake.delete(shard);
  }

  /** Groups wake in which something was said or asked, and those whose leader's node is silent: it may be gone. */
  private watchSleepers(): void {
    for (const [shard, { isAsleep }] of this.idle) {
      const group = isAsleep ? this.members.get(shard)?.group : undefined;
      if (group === undefined) continue;
      if (group.takeActivity() || (!group.leads && !this.isToldToSleep(shard, group.leader))) this.wake(shard);
    }
  }

  /** The leader's node lives and still says so: one that came back without the shard does not. */
  private isToldToSleep(shard: ShardId, leader: NodeId): boolean {
    const said = this.said.get(leader);
    if (said === undefined || !said.shards.has(shard)) return false;
    return this.parts.isHeard(leader) && this.parts.timing.monotonicMs() - said.atMs < saidMsMax;
  }

  /** A leader speaks to a member that this node is to have, and has not yet. */
  private admit(shard: ShardId, message: Message): GroupMember | undefined {
    const { log, placement, self } = this.parts;
    if (!isOfLeader(message) || message.to !== self) return undefined;
    const entry = placement.entry(shard);
    if (entry === undefined || !(entry.wanted.includes(self) || entry.learners.includes(self))) return undefined;
    // It is born here by the split of a shard that this node has, or of one that is still to be born: it may not come before that.
    if (shard !== placementShard && this.hasStatesToSaveOf(entry.range)) return undefined;
    for (const each of this.shards.values()) if (each.givesBirthTo(shard) || this.takesInAgain(each)) return undefined;
    // What had its keys here may not come back after a crash without its states.
    if (this.hasInTheWayOf(entry) || this.forgetting > 0 || !this.lost.mayBeSent(shard)) return undefined;
    if (shard !== placementShard && !this.isCleared(shard, entry.range)) return undefined;
    // A beginning without the states that belong to it is worth nothing: they come with a snapshot.
    if (log.base(shard).index > 0 || this.lost.isLost(shard)) log.remove(shard);
    if (log.isRemoved(shard)) log.setBase(shard, asIndex(0), asTerm(0));
    return this.open(shard);
  }

  /** No place and no states of the shard are left; false where they can't be deleted now. */
  private isCleared(shard: ShardId, range: KeyRange | undefined): boolean {
    const { checkpoint } = this.parts;
    return doIfAvailable(() => {
      checkpoint.removeMeta(shard);
      if (range !== undefined) checkpoint.deleteRange(range);
    });
  }

  /**
   * Its log has it take in a shard that is removed here: it did so before a crash, and was not saved since. Until it has
   * come that far again, states that it needs are saved under keys that it does not know to be its own.
   */
  private takesInAgain({ replica }: ShardReplica): boolean {
    const takesIn = ({ kind, data }: LogEntry) => {
      const change = kind === "data" && data.length > 0 ? changeOf(data) : undefined;
      return change?.kind === "absorbed" && this.parts.log.isRemoved(asShardId(change.value.shard));
    };
    return ifAvailable(() => replica.unapplied().some(takesIn)) ?? true;
  }

  private hasInTheWayOf({ shard, range }: ShardEntry): boolean {
    for (const each of this.shards.values()) {
      // One that waits for its first states does not know its keys yet.
      const own = each.isBlank ? this.parts.placement.entry(each.shard)?.range : each.range;
      if (each.shard === shard || own === undefined) continue;
      if (overlaps(own, range)) return true;
    }
    return false;
  }

  private born(child: ShardId, campaigns: boolean): boolean {
    if (this.shards.has(child) || this.parts.log.isRemoved(child)) return true;
    const group = ifAvailable(() => this.open(child))?.group;
    if (group === undefined) return false;
    if (campaigns) {
      if (group.leader === 0) group.campaign({ isFirst: group.term === 0 });
      this.parts.timing.after(birthRetryMs, () => this.campaign(child, birthRetryMs * 2));
    } else for (const request of this.early.take(child)) group.receive(request);
    return true;
  }

  private campaign(shard: ShardId, retryMs: number): void {
    const group = this.shards.get(shard)?.group;
    if (group === undefined || this.isStopped || group.leader !== 0 || retryMs > birthRetryMsMax) return;
    group.campaign();
    this.parts.timing.after(retryMs, () => this.campaign(shard, retryMs * 2));
  }

  /** The replica ends; what it was is archive. */
  private drop(shard: ShardId, range?: KeyRange): void {
    const replica = this.shards.get(shard);
    if (replica === undefined) return;
    replica.stop();
    this.shards.delete(shard);
    this.members.delete(shard);
    this.groups = undefined;
    this.idle.delete(shard);
    this.awake.delete(shard);
    this.sleepVersion++;
    this.parts.log.remove(shard);
    this.parts.log.kick(true);
    this.forgetting++;
    this.forget(shard, { position: this.parts.log.position(), range });
  }

  /**
   * A crash must not leave a shard that is neither removed nor checkpointed, nor a place in the log
   * without the states that belong to it: `range`, where they go too, is deleted last.
   */
  private forget(shard: ShardId, gone: { readonly position: number; readonly range: KeyRange | undefined }): void {
    const { log, timing } = this.parts;
    const { position, range } = gone;
    if (this.isStopped) return;
    if (log.durablePosition() < position) return void timing.after(forgetPollMs, () => this.forget(shard, gone));
    const isOver = this.shards.has(shard) || !log.isRemoved(shard);
    // Whoever came meanwhile has begun with a range of its own, empty.
    const left = range === undefined || this.hasKeysOf(range) ? undefined : range;
    if (isOver || this.isCleared(shard, left)) this.forgetting--;
    else timing.after(unforgottenMs, () => this.forget(shard, gone));
  }

  private hasKeysOf(range: KeyRange): boolean {
    for (const each of this.shards.values()) if (overlaps(each.range, range)) return true;
    return false;
  }

  /** A split has given the keys away, and their last states of before are still to be saved: over whatever is there. */
  private hasStatesToSaveOf(range: KeyRange): boolean {
    for (const each of this.shards.values()) if (each.isPartingWith(range)) return true;
    return false;
  }

  /** The node is no member of the shard any more: its states go too. */
  private remove(shard: ShardId): void {
    const replica = this.shards.get(shard);
    if (replica === undefined) return;
    const { range } = replica;
    this.drop(shard, range);
    this.parts.onGone(shard, range);
  }
}

/** Everything is committed, and every member has it. */
function isQuiet(group: Group): boolean {
  if (group.commitIndex !== group.lastIndex) return false;
  const { progress, applied } = group.status();
  // What is committed may wait until it can be read.
  if (applied !== group.commitIndex) return false;
  for (const { match, recentActive } of progress.values()) if (match < group.lastIndex || !recentActive) return false;
  return group.conf !== noConf;
}
