/**
 * This node's replica of placement: follows its group, decides while it leads it.
 *
 * Its log is short and its state small, so it has no checkpoint: it is folded from the first entry
 * on. The membership of its own group is one of the things it is told to want.
 */
import { asIndex, asRequestId, type Index, placementShard, type RequestId, type Term } from "#core/base";
import {
  type ClusterView,
  emptyView,
  type PlacementCommand,
  type PlacementEffect,
  PlacementMachine,
  type PlacementReply,
  type ReplicaSet,
} from "#core/placement";
import { type ConfState, confChangeBytes, isJoint, type Message, noConf } from "#core/raft";
import { ConfTransition, type Identity, MemberChangeKind } from "#proto";
import { PhysicalClock } from "../shard/physical-clock.ts";
import { tickAt } from "../timing.ts";
import type { Group } from "./group.ts";
import { membershipStep } from "./membership-step.ts";
import { type Leadership, Replica } from "./replica.ts";
import type { ReplicaSurroundings } from "./surroundings.ts";

export interface PlacementReplicaParts
  extends Pick<ReplicaSurroundings, "self" | "log" | "hasher" | "timing" | "draw" | "note" | "send" | "onFault"> {
  /** Called with each committed change of the view, and when the leadership is won or lost. */
  readonly onChanged: () => void;
}

type Done = (reply: PlacementReply) => void;

interface Waiting {
  readonly index: number;
  readonly effect: PlacementEffect;
}

const core: Identity = { issuer: "core", subject: "", verified: false, causeSeq: 0 };
const reconcileMs = 100;

export class PlacementReplica {
  readonly replica: Replica<PlacementMachine>;
  private readonly parts: PlacementReplicaParts;
  private clock: PhysicalClock | undefined;
  private waiting: Waiting[] = [];
  private readonly callbacks = new Map<RequestId, Done>();
  private lastRequest = 0;
  private shown: ClusterView = emptyView;
  private conf: ConfState = noConf;
  private confIndex: Index = asIndex(0);
  private stopTimer = () => {};
  private isStopped = false;

  constructor(parts: PlacementReplicaParts) {
    this.parts = parts;
    const { log, hasher } = parts;
    this.replica = new Replica({
      ...parts,
      shard: placementShard,
      send: (message: Message) => parts.send(placementShard, message),
      snapshot: () => undefined,
      changedIndex: () => 0,
      onFault: (error) => this.onFault(error),
      kind: {
        build: () => ({ machine: new PlacementMachine({ log, hasher }), appliedIndex: asIndex(0), conf: noConf }),
        elected: (term) => this.open(term),
        applied: (machine) => this.show(machine),
        membership: (conf, index) => this.onMembership(conf, index),
        changed: () => parts.onChanged(),
        snapshotOffered: () => {},
        torn: () => {},
        mayApply: () => true,
      },
    });
  }

  /** Writes the first entry of the first node's log: the group begins with this node alone. */
  static bootstrap({ log, self }: Pick<PlacementReplicaParts, "log" | "self">): void {
    bootstrapGroup(log, placementShard, self);
  }

  get group(): Group {
    return this.replica.group;
  }

  start(): void {
    this.replica.start();
  }

  stop(): void {
    this.isStopped = true;
    this.stopTimer();
    this.replica.stop();
  }

  onDurable(): void {}

  /** It decides, and nobody else does. */
  leads(): boolean {
    const tick = tickAt(this.parts.timing);
    if (!this.replica.isOpen || this.group.leaseHeldAt(tick)) return this.replica.isOpen;
    this.group.proveLead(tick);
    return this.group.leaseHeldAt(tick);
  }

  /** The newest view that is committed. */
  view(): ClusterView {
    return this.shown;
  }

  /** The states as of a version that is committed, where this node leads placement and decides nothing else meanwhile. */
  uploadable(): { readonly version: number; readonly states: () => Uint8Array } | undefined {
    const { machine } = this.replica;
    if (!this.leads() || machine.version > this.group.commitIndex) return undefined;
    return { version: machine.version, states: () => machine.encodeState() };
  }

  /** `done` is called once, when the answer is committed or refused. */
  command(identity: Identity, command: PlacementCommand, done: Done): void {
    if (!this.leads() || !this.group.mayPropose() || this.clock === undefined) {
      const reply = { reject: "NOT_LEADER", message: "Placement is not led by this node", retryAfterMs: 20 } as const;
      return done({ kind: "rejected", rejection: reply });
    }
    if (!this.parts.log.hasRoom()) {
      const message = "Cannot change the cluster: the log's disk is full; free space, then try again";
      return done({ kind: "rejected", rejection: { reject: "NO_SPACE", message, retryAfterMs: 1000 } });
    }
    const request = asRequestId(++this.lastRequest);
    this.callbacks.set(request, done);
    const { machine } = this.replica;
    const effects = machine.step({ nowMs: this.clock.nowMs(), request, identity, command });
    this.group.proposeAppended();
    for (const effect of effects) {
      const { after } = effect;
      this.waiting.push({ index: after.until === "now" ? 0 : after.index, effect });
    }
    this.parts.log.kick(true);
    this.group.pump();
    this.release(this.group.commitIndex);
  }

  private open(term: Term): void {
    this.group.proveLead(tickAt(this.parts.timing));
    this.replica.open(term, (machine) => {
      this.clock = new PhysicalClock(machine.clockMs, this.parts.timing);
      this.watch();
      // The end of a joint configuration may be in the log already, and is no record.
      machine.skip(this.group.lastIndex);
      machine.lead({ term, nowMs: this.clock.nowMs() });
      const leadership: Leadership = {
        committed: (index) => {
          this.release(index);
          this.show(machine);
        },
        close: () => this.close(),
      };
      return leadership;
    });
    this.parts.onChanged();
  }

  private close(): void {
    this.clock = undefined;
    this.stopTimer();
    this.waiting = [];
    const message = "Placement lost its leader before the change was known to be durable: whether it happened is not known; ask again";
    const callbacks = [...this.callbacks.values()];
    this.callbacks.clear();
    for (const done of callbacks) done({ kind: "rejected", rejection: { reject: "STORE_UNAVAILABLE", message, retryAfterMs: 100 } });
    if (!this.isStopped) this.parts.onChanged();
  }

  private release(index: number): void {
    const ready = this.waiting.filter((each) => each.index <= index);
    if (ready.length === 0) return;
    this.waiting = this.waiting.filter((each) => each.index > index);
    for (const { effect } of ready) {
      const done = this.callbacks.get(effect.request);
      this.callbacks.delete(effect.request);
      done?.(effect.reply);
    }
  }

  private show(machine: PlacementMachine): void {
    if (machine.version > this.group.commitIndex || machine.version <= this.shown.version) return;
    this.shown = machine.view();
    this.parts.onChanged();
  }

  private onMembership(conf: ConfState, index: Index): void {
    this.conf = conf;
    this.confIndex = index;
  }

  /** While it leads: nobody else acts on what is wanted. */
  private watch(): void {
    this.stopTimer = this.parts.timing.after(reconcileMs, () => {
      if (this.isStopped) return;
      this.reconcile();
      this.watch();
    });
  }

  private reconcile(): void {
    const entry = this.shown.placement;
    if (!this.leads() || entry === undefined) return;
    const { conf, group } = this;
    const { self } = this.parts;
    const replicas: ReplicaSet = {
      voters: conf.voters,
      outgoing: conf.votersOutgoing,
      learners: conf.learners,
      configIndex: this.confIndex,
    };
    if (this.confIndex > entry.configIndex) this.command(core, { kind: "replicas-changed", shard: placementShard, replicas }, () => {});
    const { progress, lastIndex } = group.status();
    const match = new Map([...progress].map(([node, each]) => [node, node === self ? lastIndex : each.match]));
    const active = new Set([...progress].filter(([node, each]) => node === self || each.recentActive).map(([node]) => node));
    const isChanging = isJoint(conf) || group.hasUnappliedChange(this.replica.appliedIndex);
    const step = membershipStep({ self, voters: conf.voters, learners: conf.learners, isChanging, match, lastIndex, active }, entry.wanted);
    if (step.kind === "add-learners") group.proposeMembers({ addLearners: step.nodes });
    else if (step.kind === "change-voters") group.proposeMembers({ addVoters: step.add, remove: step.remove });
    else if (step.kind === "remove") group.proposeMembers({ remove: step.nodes });
    else if (step.kind === "transfer") group.transfer(step.to);
  }

  private onFault(error: Error): void {
    this.parts.note("error", "placement stopped", { error: error.message, stack: error.stack ?? "" });
    this.stop();
    this.parts.onFault(error);
  }
}

/** The first entry of a group that begins with one member: its own membership. */
export function bootstrapGroup(log: PlacementReplicaParts["log"], shard: typeof placementShard, self: PlacementReplicaParts["self"]): void {
  const data = confChangeBytes({ transition: ConfTransition.auto, changes: [{ kind: MemberChangeKind.addVoter, node: self }] });
  log.append(shard, [{ index: asIndex(1), term: 1 as Term, kind: "config", data }]);
  log.setHardState(shard, { term: 1 as Term, vote: 0, commit: asIndex(1) });
}
