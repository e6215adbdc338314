/**
 * Runs the public interaction scenarios: members, a network that keeps messages until they are
 * delivered, and two storage threads a member, all moved by directives.
 *
 * Everything printed is compared to the letter, but for the lines of the other implementation's
 * logger. A proposal made at a follower is forwarded here, as a host does it.
 */
import { asIndex, asNodeId, asShardId, asTerm, type NodeId } from "#core/base";
import {
  type Append,
  type ConfState,
  confChangeBytes,
  confChangeOf,
  type Entry,
  isVoter,
  type Message,
  MessageKind,
  noConf,
  Raft,
  type RaftSettings,
  type Ready,
  raftDefaults,
  type SnapshotMeta,
  type Trace,
} from "#core/raft";
import { ConfTransition, RaftEntryKind } from "#proto";
import type { Directive } from "../datadriven.ts";
import {
  changesOf,
  describeEntry,
  describeHard,
  describeLine,
  describeProgress,
  describeSnapshot,
  type Line,
  lineOf,
  oldChanges,
  roleNames,
} from "./describe.ts";
import { appendLine, appliedLine, applyLine, type Forwarded, forwardedLine, lineOfMail, type Mail } from "./mail.ts";
import { MemoryStorage } from "./memory-storage.ts";

interface Member {
  readonly id: NodeId;
  readonly raft: Raft;
  readonly storage: MemoryStorage;
  readonly isAsync: boolean;
  readonly electionTicks: number;
  readonly heartbeatTicks: number;
  readonly appendWork: { readonly append: Append; readonly line: Line }[];
  readonly applyWork: (readonly Entry[])[];
  /** Snapshots the member could give, the newest last. */
  readonly history: SnapshotMeta[];
  readonly forwarded: Forwarded[];
  hard: string;
  now: number;
}

const none = asNodeId(0);
const textBytes = (text: string) => new TextEncoder().encode(text);
const numbers = (value: string) =>
  value
    .replace(/[()]/g, "")
    .split(",")
    .map((each) => Number(each));
const nodes = (value: string) => numbers(value).map(asNodeId);

/** Settings of the scenarios, where they differ from production. */
const scenarioSettings = {
  ...raftDefaults,
  electionTicks: 3,
  heartbeatTicks: 1,
  maxBytesPerMessage: Number.POSITIVE_INFINITY,
  maxApplyBytes: Number.POSITIVE_INFINITY,
  maxUncommittedBytes: Number.POSITIVE_INFINITY,
  maxInflight: 0x7fffffff,
  maxInflightBytes: Number.POSITIVE_INFINITY,
  checkQuorum: false,
  preVote: false,
  leases: false,
  restarted: false,
  stepDownOnRemoval: false,
};

export class Interaction {
  private readonly members: Member[] = [];
  private mail: Mail[] = [];
  private lines: string[] = [];
  private isQuiet = false;
  private readonly trace: Trace | undefined;

  constructor(trace?: Trace) {
    this.trace = trace;
  }

  handle(directive: Directive): string {
    this.lines = [];
    const problem = this.run(directive);
    if (problem !== undefined) {
      if (this.isQuiet) return problem;
      this.print(problem);
    }
    return this.lines.length === 0 ? "ok" : this.lines.join("\n");
  }

  private print(text: string): void {
    if (!this.isQuiet) this.lines.push(...text.split("\n"));
  }

  private indented(action: () => void): void {
    const outer = this.lines;
    this.lines = [];
    action();
    outer.push(...this.lines.map((line) => `  ${line}`));
    this.lines = outer;
  }

  private member(id: number | string): Member {
    const member = this.members[Number(id) - 1];
    if (member === undefined) throw new RangeError(`There is no member ${id}`);
    return member;
  }

  private run({ cmd, args, input }: Directive): string | undefined {
    const ids = [...args].filter(([, value]) => value === "").map(([key]) => key);
    const first = ids[0] ?? "";
    switch (cmd) {
      case "add-nodes":
        for (let i = 0; i < Number(first); i++) this.addMember(args);
        return undefined;
      case "log-level":
        this.isQuiet = first.toLowerCase() === "none";
        return undefined;
      case "campaign":
        this.member(first).raft.campaign();
        return undefined;
      case "propose":
        return this.propose(this.member(first), RaftEntryKind.data, textBytes(ids[1] ?? ""));
      case "propose-conf-change":
        return this.proposeChange(this.member(first), args, input);
      case "stabilize":
        this.stabilize(ids, args.get("log-level"));
        return undefined;
      case "process-ready":
        this.each(ids, "handling Ready", (member) => this.processReady(member));
        return undefined;
      case "process-append-thread":
        this.each(ids, "processing append thread", (member) => this.processAppends(member));
        return undefined;
      case "process-apply-thread":
        this.each(ids, "processing apply thread", (member) => this.processApplies(member));
        return undefined;
      case "deliver-msgs":
        this.deliverMessages(ids, args);
        return undefined;
      case "tick-election":
      case "tick-heartbeat": {
        const member = this.member(first);
        const count = cmd === "tick-election" ? member.electionTicks : member.heartbeatTicks;
        for (let i = 0; i < count; i++) member.raft.tick(member.now++);
        return undefined;
      }
      case "transfer-leadership":
        this.member(args.get("from") ?? "").raft.transferLeader(asNodeId(Number(args.get("to"))));
        return undefined;
      case "report-unreachable":
        this.member(first).raft.reportUnreachable(asNodeId(Number(ids[1])));
        return undefined;
      case "set-randomized-election-timeout":
        // What was drawn can only be replaced from outside by reaching in.
        Object.assign(Reflect.get(this.member(first).raft, "state") as object, { electionTimeout: Number(args.get("timeout")) });
        return undefined;
      default:
        return this.show(cmd, ids);
    }
  }

  /** Directives that print. */
  private show(cmd: string, ids: readonly string[]): string | undefined {
    const member = cmd === "raft-state" ? undefined : this.member(ids[0] ?? "");
    if (member === undefined) {
      for (const { raft, id } of this.members)
        this.print(
          `${id}: ${roleNames[raft.role]} ${isVoter(raft.conf, id) ? "(Voter)" : "(Non-Voter)"} Term:${raft.term} Lead:${raft.leader}`,
        );
      return undefined;
    }
    if (cmd === "status") {
      for (const [id, progress] of member.raft.status().progress) this.print(`${id}: ${describeProgress(progress)}`);
    } else if (cmd === "raft-log") {
      this.printLog(member);
    } else if (cmd === "compact") {
      member.storage.compact(Number(ids[1]));
      this.printLog(member);
    } else if (cmd === "send-snapshot") {
      const message = this.snapshotMessage(member, asNodeId(Number(ids[1])));
      this.mail.push(message);
      this.print(describeLine(lineOf(message)));
    } else return "unknown command";
    return undefined;
  }

  private printLog({ storage }: Member): void {
    if (storage.log.length === 0) this.print(`log is empty: first index=${storage.firstIndex()}, last index=${storage.lastIndex()}`);
    for (const entry of storage.log) this.print(describeEntry(entry));
  }

  private snapshotMessage(member: Member, to: NodeId): Message {
    return {
      kind: MessageKind.snapshot,
      shard: asShardId(1),
      from: member.id,
      to,
      term: member.raft.term,
      logTerm: asTerm(0),
      index: asIndex(0),
      commit: asIndex(0),
      entries: [],
      reject: false,
      rejectHint: asIndex(0),
      context: 0,
      tick: 0,
      transfer: false,
      snapshot: member.history.at(-1),
    };
  }

  private addMember(args: ReadonlyMap<string, string>): void {
    const id = asNodeId(this.members.length + 1);
    const is = (key: string) => args.get(key) === "true";
    const index = asIndex(Number(args.get("index") ?? 0));
    const conf: ConfState = {
      ...noConf,
      voters: nodes(args.get("voters") ?? "").filter(Boolean),
      learners: nodes(args.get("learners") ?? "").filter(Boolean),
    };
    const snapshot: SnapshotMeta = { index, term: asTerm(index === 0 ? 0 : 1), conf };
    const storage = new MemoryStorage();
    storage.install(snapshot);
    const history = [snapshot];
    storage.latest = () => history.at(-1) ?? "later";
    const isAsync = is("async-storage-writes");
    const settings: RaftSettings = {
      ...scenarioSettings,
      id,
      shard: asShardId(1),
      storage,
      applied: index,
      draw: () => 0,
      applyUnstable: !isAsync,
      preVote: is("prevote"),
      checkQuorum: is("checkquorum"),
      stepDownOnRemoval: is("step-down-on-removal"),
      checkConfChanges: !is("disable-conf-change-validation"),
      maxInflight: Number(args.get("inflight") ?? scenarioSettings.maxInflight),
      maxApplyBytes: Number(args.get("max-committed-size-per-ready") ?? scenarioSettings.maxApplyBytes),
      trace: this.trace,
    };
    const raft = new Raft(settings);
    const hard = describeHard({ term: raft.term, vote: none, commit: raft.commit });
    const { electionTicks, heartbeatTicks } = settings;
    this.members.push({
      ...{ id, raft, storage, isAsync, electionTicks, heartbeatTicks, history, hard, now: 1 },
      ...{ appendWork: [], applyWork: [], forwarded: [] },
    });
  }

  private propose({ raft, id, forwarded }: Member, kind: RaftEntryKind, data: Uint8Array): string | undefined {
    if (raft.role !== "leader" && raft.leader !== none) {
      forwarded.push({ kind: "proposal", from: id, to: raft.leader, proposal: { kind, data } });
      return undefined;
    }
    const result = raft.propose([{ kind, data }]);
    // The other implementation puts an empty entry in the place of a change that does not fit.
    if (result === "refused") raft.propose([{ kind: RaftEntryKind.data, data: new Uint8Array(0) }]);
    return result === "ok" || result === "refused" ? undefined : "raft proposal dropped";
  }

  private proposeChange(member: Member, args: ReadonlyMap<string, string>, input: string): string | undefined {
    const transition = ConfTransition[(args.get("transition") ?? "auto") as keyof typeof ConfTransition];
    const data = confChangeBytes({ transition, changes: changesOf(input) });
    if (args.get("v1") === "true") oldChanges.add(data);
    return this.propose(member, RaftEntryKind.config, data);
  }

  private each(ids: readonly string[], what: string, action: (member: Member) => void): void {
    for (const id of ids) {
      const member = this.member(id);
      if (ids.length === 1) action(member);
      else {
        this.print(`> ${id} ${what}`);
        this.indented(() => action(member));
      }
    }
  }

  private stabilize(ids: readonly string[], level: string | undefined): void {
    const wasQuiet = this.isQuiet;
    if (level !== undefined) this.isQuiet = level.toLowerCase() === "none";
    const chosen = ids.length === 0 ? this.members : ids.map((id) => this.member(id));
    const round = (what: string, has: (member: Member) => boolean, action: (member: Member) => void): boolean => {
      let any = false;
      for (const member of chosen) {
        if (!has(member)) continue;
        any = true;
        this.print(`> ${member.id} ${what}`);
        this.indented(() => action(member));
      }
      return any;
    };
    for (;;) {
      const results = [
        round(
          "handling Ready",
          ({ raft, forwarded }) => raft.hasReady() || forwarded.length > 0,
          (member) => this.processReady(member),
        ),
        round(
          "receiving messages",
          ({ id }) => this.mail.some((mail) => mail.to === id),
          (member) => this.deliver(member.id),
        ),
        round(
          "processing append thread",
          ({ appendWork }) => appendWork.length > 0,
          (member) => {
            while (member.appendWork.length > 0) this.processAppends(member);
          },
        ),
        round(
          "processing apply thread",
          ({ applyWork }) => applyWork.length > 0,
          (member) => {
            while (member.applyWork.length > 0) this.processApplies(member);
          },
        ),
      ];
      if (!results.includes(true)) break;
    }
    this.isQuiet = wasQuiet;
  }

  private processReady(member: Member): void {
    const ready = member.raft.ready();
    const forwarded = member.forwarded.splice(0);
    const { append, committed } = ready;
    const out: string[] = [];
    if (ready.soft !== undefined) out.push(`Lead:${ready.soft.leader} State:${roleNames[ready.soft.role]}`);
    const hard = this.newHardState(member, append);
    if (hard !== undefined) out.push(`HardState ${describeHard(hard)}`);
    if (append !== undefined && append.entries.length > 0) out.push("Entries:", ...append.entries.map(describeEntry));
    if (append?.snapshot !== undefined) out.push(`Snapshot ${describeSnapshot(append.snapshot)}`);
    if (committed.length > 0) out.push("CommittedEntries:", ...committed.map(describeEntry));
    const lines = [...forwarded.map(forwardedLine), ...ready.messages.map(lineOf)];
    const work = append === undefined ? undefined : appendLine(member.id, append, hard);
    if (member.isAsync) {
      if (work !== undefined) lines.push(work);
      if (committed.length > 0) lines.push(applyLine(member.id, committed, true));
    } else lines.push(...(append?.responses ?? []).filter(({ to }) => to !== member.id).map(lineOf));
    if (lines.length > 0) out.push("Messages:", ...lines.map((line) => describeLine(line)));
    // A snapshot does not count for the flag that is printed.
    const mustSync = append?.mustSync === true && !(append.snapshot !== undefined && append.entries.length === 0 && !this.isVoteNew);
    this.print(out.length === 0 ? "<empty Ready>" : [`Ready MustSync=${mustSync}:`, ...out].join("\n"));
    this.mail.push(...forwarded, ...ready.messages);
    if (!member.isAsync) this.finish(member, ready);
    else {
      if (append !== undefined && work !== undefined) member.appendWork.push({ append, line: work });
      if (committed.length > 0) member.applyWork.push(committed);
    }
  }

  private isVoteNew = false;

  /** Hard state is printed when it is new; it is handed out more often. */
  private newHardState(member: Member, append: Append | undefined): Append["hardState"] {
    this.isVoteNew = false;
    if (append?.hardState === undefined) return undefined;
    const hard = describeHard(append.hardState);
    if (hard === member.hard) return undefined;
    const votes = (text: string) => text.replace(/ Commit:.*/, "");
    this.isVoteNew = votes(hard) !== votes(member.hard);
    member.hard = hard;
    return append.hardState;
  }

  /** Synchronous writes: all is done before anything else happens. */
  private finish(member: Member, { append, committed }: Ready): void {
    if (append !== undefined) this.write(member, append);
    this.apply(member, committed);
    for (const response of append?.responses ?? []) if (response.to !== member.id) this.mail.push(response);
    for (const response of append?.responses ?? []) if (response.to === member.id) member.raft.step(response);
    const last = committed.at(-1);
    if (last !== undefined) member.raft.applied(last.index);
  }

  private write({ storage }: Member, { hardState, snapshot, entries }: Append): void {
    if (hardState !== undefined) storage.hard = hardState;
    if (snapshot !== undefined) storage.install(snapshot);
    else storage.append(entries);
  }

  private apply({ raft, history }: Member, entries: readonly Entry[]): void {
    for (const { kind, data, index, term } of entries) {
      const conf = kind === RaftEntryKind.config ? raft.applyConfChange(confChangeOf(data)) : (history.at(-1)?.conf ?? noConf);
      history.push({ index, term, conf });
    }
  }

  private processAppends(member: Member): void {
    const work = member.appendWork.shift();
    if (work === undefined) return this.print("no append work to perform");
    this.print(`Processing:\n${describeLine({ ...work.line, responses: [] })}`);
    this.write(member, work.append);
    this.print(["Responses:", ...work.append.responses.map((each) => describeLine(lineOf(each)))].join("\n"));
    this.mail.push(...work.append.responses);
  }

  private processApplies(member: Member): void {
    const entries = member.applyWork.shift();
    if (entries === undefined) return this.print("no apply work to perform");
    this.print(`Processing:\n${describeLine(applyLine(member.id, entries, false))}`);
    this.apply(member, entries);
    this.print(`Responses:\n${describeLine(appliedLine(member.id, entries))}`);
    this.mail.push({ kind: "applied", to: member.id, entries });
  }

  private deliverMessages(ids: readonly string[], args: ReadonlyMap<string, string>): void {
    const kind = args.get("type");
    const dropped = numbers(args.get("drop") ?? "0").filter(Boolean);
    let count = 0;
    for (const id of ids) count += this.deliver(asNodeId(Number(id)), kind);
    for (const id of dropped) count += this.drop(asNodeId(id), kind);
    if (count === 0) this.print("no messages");
  }

  private take(to: NodeId, kind: string | undefined, isChosen: (mail: Mail) => boolean = () => true): Mail[] {
    const matches = (mail: Mail) => mail.to === to && (kind === undefined || lineOfMail(mail).kind === kind) && isChosen(mail);
    const taken = this.mail.filter(matches);
    this.mail = this.mail.filter((mail) => !matches(mail));
    return taken;
  }

  private deliver(to: NodeId, kind?: string): number {
    const taken = this.take(to, kind);
    for (const mail of taken) {
      this.print(describeLine(lineOfMail(mail)));
      const member = this.member(to);
      if (mail.kind === "applied") member.raft.applied(mail.entries.at(-1)?.index ?? asIndex(0));
      else if (mail.kind === "proposal") this.propose(member, mail.proposal.kind, mail.proposal.data);
      else if (member.raft.step(mail) === "unknown") this.print("raft: cannot step as peer not found");
    }
    return taken.length;
  }

  private drop(to: NodeId, kind?: string): number {
    const isRemote = (mail: Mail) => mail.kind !== "applied" && mail.from !== mail.to;
    const taken = this.take(to, kind, isRemote);
    for (const mail of taken) this.print(`dropped: ${describeLine(lineOfMail(mail))}`);
    return taken.length;
  }
}

/** Lines that the other implementation's logger wrote. */
const loggerLine = /^\s*(DEBUG|INFO|WARN|ERROR) /;

/** What a scenario expects of us. */
export function expectedOutput(expected: string): string {
  const lines = expected.split("\n").filter((line) => !loggerLine.test(line));
  return lines.length === 0 || expected === "" ? "ok" : lines.map((line) => line.trimEnd()).join("\n");
}
