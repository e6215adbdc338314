/** Leases: when they hold, and what ends them. A hand-driven group of three. */
import { expect, test } from "bun:test";
import { asIndex, asNodeId, asShardId, asTerm } from "#core/base";
import { type Message, MessageKind, noConf, Raft, raftDefaults } from "#core/raft";
import { RaftEntryKind } from "#proto";
import { MemoryStorage } from "./memory-storage.ts";

const ids = [asNodeId(1), asNodeId(2), asNodeId(3)];
const lost: Message[] = [];

class Trio {
  readonly storages = ids.map(() => new MemoryStorage());
  readonly members: Raft[];
  mail: Message[] = [];

  constructor() {
    for (const storage of this.storages) storage.install({ index: asIndex(1), term: asTerm(1), conf: { ...noConf, voters: ids } });
    this.members = ids.map((_, at) => this.start(at));
  }

  start(at: number): Raft {
    const storage = this.storages[at] as MemoryStorage;
    return new Raft({
      ...{ id: asNodeId(at + 1), shard: asShardId(1), storage, draw: () => at, applied: storage.base.index },
      ...raftDefaults,
    });
  }

  member(id: number): Raft {
    return this.members[id - 1] as Raft;
  }

  /** Every write is durable at once; messages wait in `mail`. */
  settle(): void {
    for (const [at, raft] of this.members.entries())
      while (raft.hasReady()) {
        const { append, messages, committed } = raft.ready();
        this.mail.push(...messages);
        const storage = this.storages[at] as MemoryStorage;
        if (append?.hardState !== undefined) storage.hard = append.hardState;
        storage.append(append?.entries ?? []);
        for (const response of append?.responses ?? []) {
          if (response.to === raft.id) raft.step(response);
          else this.mail.push(response);
        }
        for (const { index } of committed) raft.applied(index);
      }
  }

  /** Delivers until nothing is under way, but for what `isLost`. */
  deliver(isLost: (message: Message) => boolean = () => false): void {
    this.settle();
    while (this.mail.length > 0) {
      for (const message of this.mail.splice(0)) if (!isLost(message)) this.member(message.to).step(message);
      this.settle();
    }
  }

  tick(now: number): void {
    for (const raft of this.members) raft.tick(now);
  }
}

/** Member 1 leads, and was heard at tick `now`. */
function led(now: number): Trio {
  const trio = new Trio();
  trio.tick(now - 2);
  trio.member(1).campaign();
  trio.deliver();
  trio.tick(now - 1);
  trio.deliver();
  trio.tick(now);
  trio.deliver();
  expect(trio.member(1).hasCommittedInTerm()).toBe(true);
  return trio;
}

test("a lease holds from the tick that a majority echoed, and not for a whole election timeout", () => {
  const leader = led(100).member(1);
  expect(leader.leaseHeldAt(100)).toBe(true);
  expect(leader.leaseHeldAt(100 + raftDefaults.electionTicks - 3)).toBe(true);
  expect(leader.leaseHeldAt(100 + raftDefaults.electionTicks - 2)).toBe(false);
});

test("heartbeats that only a minority answers renew nothing", () => {
  const trio = led(100);
  const isLost = ({ from, to }: Message) => from !== 1 || to !== 1;
  for (let now = 101; now <= 107; now++) {
    trio.tick(now);
    trio.deliver(isLost);
  }
  expect(trio.member(1).leaseHeldAt(107)).toBe(true);
  expect(trio.member(1).leaseHeldAt(108)).toBe(false);
});

test("a member that slept does not count the ticks it slept through", () => {
  const trio = led(100);
  const follower = trio.member(2);
  follower.tick(500);
  const request = { ...voteRequest(3, 5), transfer: false };
  expect(follower.step(request)).toBe("ok");
  trio.settle();
  expect(trio.mail).toEqual(lost);
});

test("a leader that asked another to campaign has no lease any more in its term: when the transfer is given up it asks for the next", () => {
  const trio = led(100);
  const leader = trio.member(1);
  expect(leader.transferLeader(asNodeId(2))).toBe("ok");
  expect(leader.leaseHeldAt(100)).toBe(false);
  expect(leader.propose([{ kind: RaftEntryKind.data, data: new Uint8Array(1) }])).toBe("transferring");
  const isLost = ({ kind }: Message) => kind === MessageKind.timeoutNow;
  const { term } = leader.status();
  for (let now = 101; now <= 112; now++) {
    leader.tick(now);
    if (leader.status().term === term) expect(leader.leaseHeldAt(now)).toBe(false);
    trio.deliver(isLost);
  }
  expect(leader.status()).toMatchObject({ role: "leader", term: term + 1, transferee: 0 });
  expect(leader.mayPropose()).toBe(true);
  expect(leader.leaseHeldAt(112)).toBe(true);
});

const voteRequest = (from: number, term: number, kind: MessageKind = MessageKind.preVote): Message => ({
  ...{ kind, shard: asShardId(1), from: asNodeId(from), to: asNodeId(2), term: asTerm(term) },
  ...{ logTerm: asTerm(9), index: asIndex(99), commit: asIndex(0), entries: [], reject: false, rejectHint: asIndex(0) },
  ...{ context: 0, tick: 0, transfer: false, snapshot: undefined },
});

test("a member that answered a heartbeat and restarts helps nobody for an election timeout", () => {
  const trio = led(100);
  trio.members[1] = trio.start(1);
  const restarted = trio.member(2);
  let granted = 0;
  for (let now = 101; granted === 0 && now < 200; now++) {
    restarted.tick(now);
    restarted.step(voteRequest(3, 5));
    trio.settle();
    if (trio.mail.some(({ kind, reject }) => kind === MessageKind.preVoteReply && !reject)) granted = now;
    trio.mail = [];
  }
  expect(granted).toBe(100 + raftDefaults.electionTicks);
});

test("a promise outlives the leader's term, but not a transfer that the leader asked for", () => {
  const trio = led(100);
  const follower = trio.member(2);
  // Something of a higher term makes it forget its leader.
  follower.step({ ...voteRequest(3, 7, MessageKind.voteReply), reject: true });
  expect([follower.term, follower.leader]).toEqual([asTerm(7), asNodeId(0)]);
  follower.step(voteRequest(3, 8, MessageKind.vote));
  expect(follower.term).toBe(asTerm(7));
  follower.step({ ...voteRequest(3, 8, MessageKind.vote), transfer: true });
  expect([follower.term, follower.vote]).toEqual([asTerm(8), asNodeId(3)]);
});

test("a group of one holds its lease by itself, once it has committed in its term", () => {
  const storage = new MemoryStorage();
  storage.install({ index: asIndex(1), term: asTerm(1), conf: { ...noConf, voters: [asNodeId(1)] } });
  const raft = new Raft({ id: asNodeId(1), shard: asShardId(1), storage, applied: asIndex(1), draw: () => 0 });
  raft.campaign();
  expect(raft.leaseHeldAt(5)).toBe(false);
  const writes = [];
  while (raft.hasReady()) {
    const { append, messages } = raft.ready();
    expect(messages).toEqual([]);
    storage.append(append?.entries ?? []);
    writes.push(append?.responses.length);
    for (const response of append?.responses ?? []) raft.step(response);
  }
  expect(raft.leaseHeldAt(5)).toBe(true);
  // A thousand entries: one write, one acknowledgement of one's own, nothing sent.
  for (let i = 0; i < 1000; i++) expect(raft.propose([{ kind: RaftEntryKind.data, data: new Uint8Array(8) }])).toBe("ok");
  const { append, messages } = raft.ready();
  expect([append?.entries.length, append?.responses.length, messages.length]).toEqual([1000, 2, 0]);
  for (const response of append?.responses ?? []) raft.step(response);
  expect(raft.commit).toBe(raft.lastIndex());
});
