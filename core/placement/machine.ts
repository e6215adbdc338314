/**
 * The placement group's state machine: nodes, the shard map, leases, deployments, entries.
 *
 * Like a shard it logs events, not requests, chained per partition, in the log of shard 0. Each
 * command is decided against the head state; its events are one record; what is answered waits for
 * their commit. State is the fold of the records alone: machines that were given the same ones are
 * equal byte for byte, and only a leader appends.
 */
import {
  asIndex,
  assert,
  type Barrier,
  type Hasher,
  HlcClock,
  type Index,
  InvariantError,
  type LogWriter,
  now,
  type Partition,
  placementShard,
  type Term,
  unreachable,
} from "#core/base";
import { appendEvent, followEvent } from "#core/merkle";
import {
  type ClusterRestored,
  decodeEvent,
  decodePlacementStates,
  decodeRecord,
  EventKind,
  encodePlacementStates,
  fromBytes,
  type Identity,
  toBytes,
} from "#proto";
import type { PlacementCommand, PlacementEffect, PlacementInput, PlacementReply } from "./command.ts";
import { type Decided, type Decision, decided, refused } from "./decision.ts";
import { decideSetEntry, entryPartition, type SetEntry, setEntryProblem } from "./entry.ts";
import { decodeBody, encodeBody } from "./event.ts";
import { decideCancelChange, decideFrozen, decideMergeCancel, decideMergeDone, decideWantMerge, decideWantSplit } from "./key-change.ts";
import { decideBootstrap, decideJoin, decideLeave, decideRemove, decideReplication } from "./membership.ts";
import { applyEvent, clusterPartition, emptyState, type PlacementState, partOf } from "./placement-state.ts";
import {
  type Deploy,
  type DeployedType,
  decideDeploy,
  decideRoute,
  deployedVersion,
  deployPartition,
  emptyNamespace,
  type Route,
} from "./registry.ts";
import { decideLease, decideReplicasChanged, decideWantReplicas } from "./replicas.ts";
import { applyRestored } from "./restored.ts";
import { encodePart, loadPart } from "./saved-state.ts";
import { orderedRanges } from "./shard-map.ts";
import { type PlacementCheckpoint, UnsavedParts } from "./unsaved-parts.ts";
import { bundleFor, type ClusterView, deployedTypes, viewOf } from "./view.ts";

const schemaId = 1;

export interface PlacementOptions {
  readonly log: LogWriter;
  readonly hasher: Hasher;
}

/** Figures of placement, for metrics. */
export interface PlacementFigures {
  readonly dirtyRuns: number;
  readonly lastIndex: number;
  readonly nodes: number;
  readonly shards: number;
}

export class PlacementMachine {
  private readonly options: PlacementOptions;
  private readonly clock = new HlcClock();
  private readonly state: PlacementState = emptyState();
  private readonly unsaved = new UnsavedParts();
  private last: Index = asIndex(0);
  /** Log index of the last record with events. */
  private changedIn: Index = asIndex(0);
  private hasNewRanges = false;
  private leads: Term | undefined;
  private shown: ClusterView | undefined;

  constructor(options: PlacementOptions) {
    this.options = options;
  }

  /** Takes in a checkpointed row, before the first record. Throws `RangeError` where it is of another format. */
  loadState(bytes: Uint8Array): void {
    assert(this.last === 0, "states are loaded before records");
    const part = loadPart(this.state, bytes);
    this.clock.witness(part);
    this.changed(asIndex(part.chain.lastIndex));
  }

  /** All states as `encodeState` wrote them: a machine in their place goes on behind their index. */
  loadStates(bytes: Uint8Array): void {
    const saved = fromBytes(decodePlacementStates, bytes);
    for (const state of saved.state) this.loadState(state);
    this.last = asIndex(saved.appliedIndex);
  }

  /**
   * Folds in a committed record, in log order; what a loaded row has already is skipped. Throws
   * `InvariantError` where the record does not continue what came before.
   */
  recover(index: number, body: Uint8Array): void {
    assert(this.leads === undefined, "a leader appends its records itself");
    this.advance(index);
    for (const bytes of fromBytes(decodeRecord, body).event) {
      const event = fromBytes(decodeEvent, bytes);
      const partition = event.partition as Partition;
      const { chain } = partOf(this.state, partition);
      this.clock.witness(event);
      if (event.seq < chain.size) continue;
      const fault = followEvent(chain, { bytes, event, index: this.last }, this.options.hasher);
      if (fault !== undefined) throw new InvariantError(`${fault.message} (log index ${index})`);
      this.apply(partition, bytes);
    }
    this.checkKeys();
  }

  /** Steps over an entry without a record: a new leader's first, or a configuration. A checkpoint's index is stepped over too. */
  skip(index: number): void {
    if (index > this.last) this.last = asIndex(index);
  }

  /** Before the first step of a leader, which has applied all that is committed. */
  lead(options: { readonly term: Term; readonly nowMs: number }): void {
    assert(this.leads === undefined || options.term > this.leads, `Cannot lead in term ${options.term}: led in ${this.leads}`);
    this.leads = options.term;
    this.clock.witness({ timeMs: Math.max(options.nowMs, this.clock.timeMs), logical: this.clock.logical });
  }

  step(input: PlacementInput): PlacementEffect[] {
    assert(this.leads !== undefined, "only a leader decides");
    const { events, reply } = decide(this.state, input.command);
    if (events.length > 0) this.append(events, input);
    return [{ kind: "reply", request: input.request, reply: this.complete(reply), after: this.committed() }];
  }

  /** The first records of a log that begins with what a cluster before it had. */
  restore(events: readonly ClusterRestored[], by: Pick<PlacementInput, "nowMs" | "identity">): void {
    assert(this.leads !== undefined && this.state.parts.size === 0, "only a leader of an empty placement restores it");
    for (const body of events) this.append([{ partition: clusterPartition, event: { kind: EventKind.clusterRestored, body } }], by);
  }

  /** The state as it is now; on a leader also what is not committed yet: compare its version with the commit index. */
  view(): ClusterView {
    this.shown ??= viewOf(this.state, this.changedIn);
    return this.shown;
  }

  /** Bundle that a new run of the type is pinned to. */
  newest(namespace: string, type: string): Uint8Array | undefined {
    return bundleFor(this.view(), namespace, { type });
  }

  /** Newest deployment of each type, by type. */
  deployments(namespace: string): DeployedType[] {
    return deployedTypes(this.view(), namespace);
  }

  get lastIndex(): Index {
    return this.last;
  }

  /** Version of the view. */
  get version(): Index {
    return this.changedIn;
  }

  /** Highest time in the log: the shell's clock starts above it. */
  get clockMs(): number {
    return this.clock.timeMs;
  }

  figures(): PlacementFigures {
    const { nodes, map } = this.state;
    return { dirtyRuns: this.unsaved.count, lastIndex: this.last, nodes: nodes.size, shards: map.shards.size };
  }

  /** Takes up to `limit` changed partitions for a checkpoint, the longest changed first. */
  capture(limit: number): PlacementCheckpoint {
    return this.unsaved.capture(this.last, limit, (partition) => encodePart(this.state, partOf(this.state, partition)));
  }

  /** The latest checkpoint is saved. All stays in memory: nothing follows from it. */
  saved(): void {}

  /** The latest checkpoint could not be saved: its partitions count as changed again. */
  putBack(checkpoint: PlacementCheckpoint): void {
    this.unsaved.putBack(checkpoint);
  }

  /** Encoded states by partition, ordered by name: what two machines compare. */
  *states(): IterableIterator<[Partition, Uint8Array]> {
    for (const partition of [...this.state.parts.keys()].sort()) yield [partition, encodePart(this.state, partOf(this.state, partition))];
  }

  /** All states in one piece, with the index that they are the fold of. */
  encodeState(): Uint8Array {
    return toBytes(encodePlacementStates, { state: [...this.states()].map(([, state]) => state), appliedIndex: this.last });
  }

  private advance(index: number): void {
    assert(index > this.last, `placement records come in order: got ${index} after ${this.last}`);
    this.last = asIndex(index);
  }

  private append(events: readonly Decided[], input: Pick<PlacementInput, "nowMs" | "identity">): void {
    const { log, hasher } = this.options;
    const index = asIndex(this.last + 1);
    this.last = index;
    const writer = log.begin(placementShard, index, this.leads as Term);
    for (const { partition, event } of events) {
      this.clock.tick(input.nowMs);
      const { timeMs, logical } = this.clock;
      const { identity } = input;
      const added = { timeMs, logical, kind: event.kind, schemaId, identity, encode: encodeBody, payload: event };
      const bytes = appendEvent({ writer, index, hasher }, partOf(this.state, partition).chain, added);
      // From its bytes, as a follower does: the two can't differ.
      this.apply(partition, bytes);
    }
    log.end();
    this.checkKeys();
  }

  private apply(partition: Partition, bytes: Uint8Array): void {
    const { timeMs, logical, kind, payload, identity } = fromBytes(decodeEvent, bytes);
    const part = partOf(this.state, partition);
    part.timeMs = timeMs;
    part.logical = logical;
    this.changed(this.last);
    this.unsaved.changed(partition, this.last);
    const event = decodeBody(kind, payload);
    if (event?.kind === EventKind.clusterRestored) return this.restored(event.body);
    if (kind === EventKind.shardCreated || kind === EventKind.splitDone || kind === EventKind.mergeDecided) this.hasNewRanges = true;
    if (event !== undefined) applyEvent(this.state, partition, event, { timeMs, identity: named(identity), version: this.last });
  }

  private restored(body: ClusterRestored): void {
    applyRestored(this.state, body, { version: this.last, witness: (part) => this.clock.witness(part) });
    for (const partition of this.state.parts.keys()) this.unsaved.changed(partition, this.last);
    this.hasNewRanges = true;
  }

  private changed(index: Index): void {
    if (index > this.changedIn) this.changedIn = index;
    this.shown = undefined;
  }

  /** Invariant I16, where a record changed who owns what. */
  private checkKeys(): void {
    if (this.hasNewRanges) orderedRanges(this.state.map.shards.values());
    this.hasNewRanges = false;
  }

  /** A refusal too rests on what was decided before. */
  private committed(): Barrier {
    return this.changedIn === 0 ? now : { until: "committed", index: this.changedIn };
  }

  private complete(reply: PlacementReply): PlacementReply {
    return reply.kind === "leased" ? { ...reply, version: this.changedIn } : reply;
  }
}

const named = (identity: Identity | undefined) => (identity === undefined ? undefined : { ...identity });

function decide(state: PlacementState, command: PlacementCommand): Decision {
  switch (command.kind) {
    case "bootstrap":
      return decideBootstrap(state, command);
    case "join":
      return decideJoin(state, command);
    case "leave":
      return decideLeave(state, command.node);
    case "remove":
      return decideRemove(state, command.node);
    case "lease":
      return decideLease(state, command);
    case "replicas-changed":
      return decideReplicasChanged(state, command);
    case "want-replicas":
      return decideWantReplicas(state, command);
    case "want-split":
      return decideWantSplit(state, command);
    case "want-merge":
      return decideWantMerge(state, command);
    case "merge-frozen":
      return decideFrozen(state, command);
    case "merge-done":
      return decideMergeDone(state, command);
    case "merge-cancel":
      return decideMergeCancel(state, command);
    case "cancel-change":
      return decideCancelChange(state, command);
    case "set-replication":
      return decideReplication(state, command);
    case "set-entry":
      return decideEntry(state, command);
    case "deploy":
      return decideDeployment(state, command.namespace, command.deploy);
    case "route":
      return decideRouting(state, command.namespace, command.route);
    default:
      return unreachable(command);
  }
}

function decideDeployment(state: PlacementState, namespace: string, deploy: Deploy): Decision {
  const deployments = state.namespaces.get(namespace) ?? emptyNamespace(namespace);
  const body = decideDeploy(deployments, deploy);
  if (body === undefined) return decided({ kind: "version", version: deployedVersion(deployments, deploy) });
  const event = { kind: EventKind.bundleDeployed, body };
  return decided({ kind: "version", version: body.version }, { partition: deployPartition(namespace), event });
}

function decideRouting(state: PlacementState, namespace: string, route: Route): Decision {
  const body = decideRoute(state.namespaces.get(namespace) ?? emptyNamespace(namespace), route);
  if (body === undefined) return decided({ kind: "done" });
  if ("reject" in body) return refused(body.reject, body.message);
  return decided({ kind: "done" }, { partition: deployPartition(namespace), event: { kind: EventKind.deploymentRouted, body } });
}

function decideEntry(state: PlacementState, set: SetEntry): Decision {
  const problem = setEntryProblem(set);
  if (problem !== undefined) return refused(problem.reject, problem.message);
  const partition = entryPartition(set);
  const entry = state.entries.get(partition);
  const body = decideSetEntry(entry, set);
  if (body === undefined) return decided({ kind: "version", version: entry?.version ?? 0 });
  if ("reject" in body) return refused(body.reject, body.message);
  return decided({ kind: "version", version: body.version }, { partition, event: { kind: EventKind.entrySet, body } });
}
