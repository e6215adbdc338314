/** One member by itself: what it refuses, what it bounds, how messages come off the wire. */
import { expect, test } from "bun:test";
import { asIndex, asNodeId, asShardId, asTerm, noBytes } from "#core/base";
import { ConfTransition, decodeRaftMessage, encodeRaftMessage, fromBytes, MemberChangeKind, RaftEntryKind, toBytes } from "#proto";
import { MemoryStorage } from "../../tests/raft/memory-storage.ts";
import { confProblem, confStateBytes, confStateOf, type Message, MessageKind, messageOf, noConf, Raft, type RaftConfig } from "./index.ts";

const node = asNodeId;

function member(voters: number[], more: Partial<RaftConfig> = {}): { raft: Raft; storage: MemoryStorage } {
  const storage = new MemoryStorage();
  storage.install({ index: asIndex(1), term: asTerm(1), conf: { ...noConf, voters: voters.map(node) } });
  const raft = new Raft({ id: node(1), shard: asShardId(7), storage, applied: asIndex(1), draw: () => 0, ...more });
  return { raft, storage };
}

/** Writes and applies all there is. */
function settle({ raft, storage }: { raft: Raft; storage: MemoryStorage }): Message[] {
  const sent: Message[] = [];
  while (raft.hasReady()) {
    const { append, messages, committed } = raft.ready();
    sent.push(...messages);
    storage.append(append?.entries ?? []);
    for (const response of append?.responses ?? []) {
      if (response.to === raft.id) raft.step(response);
      else sent.push(response);
    }
    const last = committed.at(-1);
    if (last !== undefined) raft.applied(last.index);
  }
  return sent;
}

const data = (bytes: number) => [{ kind: RaftEntryKind.data, data: new Uint8Array(bytes) }];

const message = (more: Partial<Message>): Message => ({
  ...{ kind: MessageKind.append, shard: asShardId(7), from: node(2), to: node(1), term: asTerm(3), logTerm: asTerm(1), index: asIndex(1) },
  ...{ commit: asIndex(0), entries: [], reject: false, rejectHint: asIndex(0), context: 0, tick: 0, transfer: false, snapshot: undefined },
  ...more,
});

test("the only voter leads at once, and an entry is committed when it is durable", () => {
  const one = member([1]);
  expect(one.raft.propose(data(1))).toBe("notLeader");
  one.raft.campaign();
  expect(settle(one)).toEqual([]);
  expect([one.raft.role, one.raft.term, one.raft.commit]).toEqual(["leader", asTerm(1), asIndex(2)]);
  expect(one.raft.propose(data(5))).toBe("ok");
  expect([one.raft.lastIndex(), one.raft.commit]).toEqual([asIndex(3), asIndex(2)]);
  const { append } = one.raft.ready();
  expect(append?.entries.map(({ index, term }) => [index, term])).toEqual([[asIndex(3), asTerm(1)]]);
  expect(one.raft.commit).toBe(asIndex(2));
  for (const response of append?.responses ?? []) one.raft.step(response);
  expect(one.raft.commit).toBe(asIndex(3));
});

test("a leader takes no snapshot of its own term, and wants the states of one that a later leader sends", () => {
  const one = member([1]);
  one.raft.campaign();
  settle(one);
  const snapshot = { index: asIndex(50), term: asTerm(1), conf: { ...noConf, voters: [node(1), node(2)] } };
  const offered = (term: number) => message({ kind: MessageKind.snapshot, term: asTerm(term), snapshot });
  expect([one.raft.role, one.raft.wantsSnapshot(offered(1)), one.raft.wantsSnapshot(offered(2))]).toEqual(["leader", false, true]);
});

test("a follower wants the states of a snapshot of an older term too, as stepping it would replace its log", () => {
  const one = member([1, 2]);
  one.raft.step(message({ kind: MessageKind.heartbeat, term: asTerm(5) }));
  settle(one);
  const snapshot = { index: asIndex(50), term: asTerm(1), conf: { ...noConf, voters: [node(1), node(2)] } };
  const late = message({ kind: MessageKind.snapshot, term: asTerm(4), snapshot });
  expect([one.raft.role, one.raft.term, one.raft.wantsSnapshot(late)]).toEqual(["follower", asTerm(5), true]);
  one.raft.step(late);
  expect(one.raft.lastIndex()).toBe(asIndex(50));
});

test("what waits for its commit is bounded, but one entry of any size is taken", () => {
  const one = member([1], { maxUncommittedBytes: 100 });
  one.raft.campaign();
  settle(one);
  expect(one.raft.propose(data(500))).toBe("ok");
  expect(one.raft.propose(data(1))).toBe("full");
  expect(one.raft.uncommittedBytes).toBe(500);
  settle(one);
  expect(one.raft.uncommittedBytes).toBe(0);
  expect(one.raft.propose(data(60))).toBe("ok");
  expect(one.raft.propose(data(60))).toBe("full");
  expect(one.raft.propose(data(40))).toBe("ok");
});

test("a change of membership is refused while another is not applied, and changes nothing", () => {
  const one = member([1]);
  one.raft.campaign();
  settle(one);
  const add = (id: number) => ({ transition: ConfTransition.auto, changes: [{ kind: MemberChangeKind.addLearner, node: id }] });
  expect(one.raft.proposeConfChange(add(2))).toBe("ok");
  const last = one.raft.lastIndex();
  expect(one.raft.proposeConfChange(add(3))).toBe("refused");
  expect(one.raft.confChangeProblem(add(3))).toMatch(/^possible unapplied conf change/);
  expect(one.raft.lastIndex()).toBe(last);
  expect(() => one.raft.applyConfChange({ transition: ConfTransition.auto, changes: [] })).toThrow("can't leave a non-joint config");
  expect(one.raft.conf.voters).toEqual([node(1)]);
});

test("messages that are for nobody here, or make no sense, change nothing", () => {
  const { raft } = member([1, 2, 3]);
  const before = JSON.stringify(raft.status());
  expect(raft.step(message({ to: node(2) }))).toBe("foreign");
  expect(raft.step(message({ kind: MessageKind.appended, from: node(2) }))).toBe("foreign");
  expect(raft.step(message({ kind: MessageKind.heartbeatReply, from: node(9) }))).toBe("unknown");
  const entry = (index: number, term: number) => ({ index: asIndex(index), term: asTerm(term), kind: RaftEntryKind.data, data: noBytes });
  expect(raft.step(message({ entries: [entry(2, 1), entry(4, 1)] }))).toBe("foreign");
  expect(raft.step(message({ entries: [entry(2, 2), entry(3, 1)] }))).toBe("foreign");
  expect(raft.step(message({ entries: [entry(2, 9)] }))).toBe("foreign");
  expect(JSON.stringify(raft.status())).toBe(before);
  expect(raft.hasReady()).toBe(false);
  expect(raft.step(message({ entries: [entry(2, 1), entry(3, 3)] }))).toBe("ok");
  expect(raft.lastIndex()).toBe(asIndex(3));
});

test("a member whose log is shorter than what it committed does not start", () => {
  const storage = new MemoryStorage();
  storage.install({ index: asIndex(1), term: asTerm(1), conf: { ...noConf, voters: [node(1)] } });
  storage.hard = { term: asTerm(1), vote: node(1), commit: asIndex(5) };
  const start = () => new Raft({ id: node(1), shard: asShardId(1), storage, applied: asIndex(1), draw: () => 0 });
  expect(start).toThrow("Cannot start a member: it committed 5 but its log ends at 1");
});

test("a message comes off the wire as it went on, and one that makes no sense is named", () => {
  const conf = { ...noConf, voters: [node(1), node(2)], learners: [node(5)] };
  const entry = { index: asIndex(2), term: asTerm(1), kind: RaftEntryKind.config, data: new Uint8Array([1, 2]) };
  const sent = [
    message({ entries: [entry], commit: asIndex(1) }),
    message({ kind: MessageKind.snapshot, snapshot: { index: asIndex(9), term: asTerm(2), conf } }),
    message({ kind: MessageKind.heartbeat, tick: 2 ** 40, context: 3 }),
    message({ kind: MessageKind.vote, transfer: true }),
  ];
  const carry = (each: Message) => messageOf(fromBytes(decodeRaftMessage, toBytes(encodeRaftMessage, each)));
  for (const each of sent) expect(carry(each)).toEqual(each);
  const problems: [Partial<Message>, string][] = [
    [{ kind: MessageKind.appended }, "kind 64 is not known"],
    [{ from: node(0) }, "it has no sender or no addressee"],
    [{ from: node(1) }, "node 1 sends it to itself"],
    [{ term: asTerm(0) }, "it has no term"],
    [{ kind: MessageKind.snapshot }, "it brings no snapshot"],
    [
      { kind: MessageKind.snapshot, snapshot: { index: asIndex(9), term: asTerm(2), conf: { ...conf, learners: [node(1)] } } },
      "in its snapshot's configuration node 1 is a learner and a voter",
    ],
  ];
  for (const [more, problem] of problems) expect(carry(message(more))).toEqual({ problem });
});

test("a stored configuration is read back, and one that is none is refused", () => {
  const conf = { ...noConf, voters: [node(1), node(3)], votersOutgoing: [node(1), node(2)], learnersNext: [node(2)], autoLeave: true };
  expect(confStateOf(confStateBytes(conf))).toEqual(conf);
  expect(confProblem({ ...noConf, voters: [node(2), node(1)] })).toBe("ids 2 1 are not ascending and above 0");
  expect(confProblem({ ...noConf, voters: [node(1)], autoLeave: true })).toBe("it is to be left but is not joint");
  expect(() => confStateOf(confStateBytes({ ...conf, votersOutgoing: [] }))).toThrow("Cannot read a configuration");
});
