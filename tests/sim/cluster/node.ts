/**
 * One life of a node in virtual time: the real replicas, groups, checkpoints and log store; only the
 * wires, the disk's timing and the clock are made up.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { firstDataShard, type NodeId, noBytes, type Partition, placementShard, type Rejection, type ShardId } from "#core/base";
import { type ClusterView, emptyView, type PlacementCommand, type PlacementReply, type ShardEntry, shardOf } from "#core/placement";
import type { Message } from "#core/raft";
import type { Envelope, EnvelopeReply, Identity } from "#proto";
import { CheckpointStore, MemoryDisk, MemoryLogStore, TieredSegmentStore } from "#store";
import { FirstLeases } from "../../../node/replica/first-leases.ts";
import { bootstrapGroup, PlacementReplica } from "../../../node/replica/placement-replica.ts";
import { Replicas } from "../../../node/replica/replicas.ts";
import type { ShardReplica } from "../../../node/replica/shard-replica.ts";
import { SnapshotSink, snapshotChunks } from "../../../node/replica/snapshot.ts";
import type { PlacementDoor } from "../../../node/replica/surroundings.ts";
import type { ShardHost } from "../../../node/shard/shard-host.ts";
import type { Timing } from "../../../node/timing.ts";
import { bunHasher } from "../../hashers.ts";
import { SimulatedTime } from "../clock.ts";
import type { Cluster } from "./cluster.ts";

/** Between two beats to another node, and how long one counts as heard after a beat. */
const beatMs = 250;
const silentMs = 1500;

const core: Identity = { issuer: "core", subject: "", verified: false, causeSeq: 0 };

/** What outlives a crash of a node. */
export class Machine {
  readonly disk = new MemoryDisk();
  readonly folder = mkdtempSync(join(tmpdir(), "hop-sim-"));

  loseCheckpoint(): void {
    rmSync(join(this.folder, "checkpoint.db"));
  }
}

export class SimNode {
  readonly id: NodeId;
  readonly machine: Machine;
  readonly log: MemoryLogStore;
  readonly checkpoint: CheckpointStore;
  readonly replicas: Replicas;
  readonly placement: PlacementReplica;
  readonly timing: Timing;
  readonly led = new Map<ShardId, ShardHost>();
  private readonly cluster: Cluster;
  private readonly fetching = new Set<ShardId>();
  private readonly heardMs = new Map<NodeId, number>();
  isDead = false;
  /** What it last heard of the cluster. */
  view: ClusterView = emptyView;

  constructor(id: NodeId, machine: Machine, cluster: Cluster, isFirst = false) {
    this.id = id;
    this.machine = machine;
    this.cluster = cluster;
    const { schedule, prng } = cluster;
    const time = new SimulatedTime(schedule, 0);
    const alive = (run: () => void) => () => {
      if (!this.isDead) run();
    };
    this.timing = {
      wallMs: () => time.wallMs(),
      monotonicMs: () => time.monotonicMs(),
      after: (ms, run) => {
        let isOff = false;
        schedule.after(
          ms,
          alive(() => !isOff && run()),
        );
        return () => {
          isOff = true;
        };
      },
    };
    this.log = new MemoryLogStore(machine.disk, {
      soon: (run) => schedule.after(0, alive(run)),
      after: (ms, run) => schedule.after(ms, alive(run)),
      write: (_, done) => schedule.after(0.2 + prng.fraction(), alive(done)),
    });
    if (isFirst) for (const shard of [placementShard, firstDataShard]) bootstrapGroup(this.log, shard, id);
    this.checkpoint = CheckpointStore.open({
      path: join(machine.folder, "checkpoint.db"),
      logId: "sim",
      warn: () => {},
      durableIndex: (shard) => this.log.durableIndex(shard),
      isRemoved: (shard) => this.log.isRemoved(shard),
    });
    this.checkpoint.syncAside = (done) =>
      schedule.after(
        0.2 + prng.fraction(),
        alive(() => done(true)),
      );
    const around = {
      self: id,
      log: this.log,
      checkpoint: this.checkpoint,
      segments: new TieredSegmentStore(this.log),
      hasher: bunHasher,
      timing: this.timing,
      draw: (below: number) => prng.below(below),
      onFault: (cause: Error) => {
        throw cause;
      },
      note: (level: string, what: string, fields?: object) => {
        if (level === "error") throw new Error(`node ${id}: ${what} ${JSON.stringify(fields)}`);
      },
      send: (_: ShardId, message: Message) => cluster.send(message),
    };
    this.placement = new PlacementReplica({ ...around, onChanged: () => {} });
    this.replicas = new Replicas({
      ...around,
      mail: { send: (to, envelope, done) => this.mail(to, envelope, done) },
      placement: this.door(),
      onLed: (shard, host) => void (host === undefined ? this.led.delete(shard) : this.led.set(shard, host)),
      onWidened: () => {},
      fetchSnapshot: (replica, offered) => this.fetch(replica, offered),
      isHeard: (node) => schedule.nowMs - (this.heardMs.get(node) ?? Number.NEGATIVE_INFINITY) < silentMs,
      onGone: () => {},
      onCommitted: () => {},
    });
    this.log.onDurable = () => this.replicas.onDurable();
  }

  start(): void {
    this.placement.start();
    this.replicas.adopt(placementShard, this.placement);
    this.replicas.start();
    this.watch();
    this.beat();
  }

  /** Tells each other node that it lives, and which groups it lets sleep. */
  private beat(): void {
    for (const node of this.cluster.nodes.values()) {
      if (node === this) continue;
      const payload = this.replicas.sleepersFor(node.id);
      this.cluster.deliver(() => this.cluster.nodes.get(node.id)?.hear(this.id, payload));
    }
    this.timing.after(beatMs, () => this.beat());
  }

  private hear(from: NodeId, payload: Uint8Array | undefined): void {
    if (this.isDead) return;
    this.heardMs.set(from, this.cluster.schedule.nowMs);
    this.replicas.onSleepers(from, payload ?? noBytes);
  }

  private watch(): void {
    this.timing.after(5, () => {
      const newest = this.cluster.placementLeader()?.placement.view();
      if (newest !== undefined && newest.version > this.view.version) {
        this.view = newest;
        this.replicas.reconcile();
      }
      this.watch();
    });
  }

  crash(): void {
    this.isDead = true;
    this.log.crash();
    this.checkpoint.close();
  }

  receive(message: Message): void {
    if (!this.isDead) this.replicas.receive(message.shard, message);
  }

  private fetch(replica: ShardReplica, offered: Message): void {
    const { shard } = replica;
    if (this.fetching.has(shard)) return;
    const source = this.cluster.nodes.get(offered.from);
    if (source === undefined || source.isDead) return;
    this.fetching.add(shard);
    const stores = (node: SimNode) => ({ log: node.log, checkpoint: node.checkpoint, hasher: bunHasher });
    const chunks = snapshotChunks(stores(source), shard);
    const sink = new SnapshotSink(stores(this), shard);
    const next = (): void => {
      if (source.isDead) {
        sink.drop();
        return void this.fetching.delete(shard);
      }
      const step = chunks.next();
      const received = step.done === true ? undefined : sink.take(step.value.slice());
      if (received === undefined) return void this.timing.after(1, next);
      this.fetching.delete(shard);
      replica.installed({ ...offered, snapshot: received.meta });
      source.replicas.get(shard)?.group.snapshotSent(this.id, true);
    };
    this.timing.after(1, next);
  }

  private mail(_to: Partition, _envelope: Envelope, done: (answer: EnvelopeReply | { readonly rejection: Rejection }) => void): void {
    done({ rejection: { reject: "NOT_LEADER", message: "no road yet" } });
  }

  private door(): PlacementDoor {
    const ask = (command: PlacementCommand, done: (reply: PlacementReply) => void = () => {}) =>
      this.cluster.schedule.after(1, () => {
        const leader = this.cluster.placementLeader();
        if (leader === undefined) return done({ kind: "rejected", rejection: { reject: "NOT_LEADER", message: "no leader" } });
        leader.placement.command(core, command, (reply) => this.cluster.schedule.after(1, () => !this.isDead && done(reply)));
      });
    const view = () => this.view;
    const first = new FirstLeases(this.timing, ({ shard, term, replicas }, isAhead, done) => {
      const parent = [...view().shards.values()].find(({ change }) => change?.kind === "split" && change.child === shard);
      const born = parent?.change?.kind === "split" ? { born: { parent: parent.shard, at: parent.change.at, replicas } } : {};
      ask({ kind: "lease", shard, node: this.id, term, isAhead, ...born }, (reply) =>
        done(reply.kind === "leased" ? reply : reply.kind === "rejected" ? reply.rejection : { reject: "INTERNAL", message: reply.kind }),
      );
    });
    return {
      lease: (asked, done) => first.take(asked, done),
      leaseAhead: (asked) => first.ask(asked),
      replicasChanged: (shard, replicas) => ask({ kind: "replicas-changed", shard, replicas }),
      frozen: (report) => ask({ kind: "merge-frozen", ...report }),
      absorbed: (left, right) => ask({ kind: "merge-done", left, right }),
      entry: (shard): ShardEntry | undefined => shardOf(view(), shard),
      retired: (shard) => view().retired.get(shard),
      version: () => view().version,
    };
  }
}
