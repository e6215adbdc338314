/**
 * One life of a node: its real replicas, router and roads, over a simulated log, clock and network.
 * It is put together as `node/member.ts` does it, without what serves sockets.
 */
import { asIndex, asNodeId, firstDataShard, type NodeId, type Partition, placementShard, type ShardId } from "#core/base";
import type { ClusterView } from "#core/placement";
import { messageOf } from "#core/raft";
import { decodeTransferRequest, fromBytes, type Identity, type NodeInfo } from "#proto";
import { type CheckpointStore, MemoryDisk, sealInPlace, TieredSegmentStore } from "#store";
import { ClusterDeployments } from "../../node/cluster/deployments.ts";
import { MailRoad } from "../../node/cluster/mail.ts";
import { Placement } from "../../node/cluster/placement.ts";
import { servePlacement } from "../../node/cluster/placement-service.ts";
import { PlannerLoop, transferCall } from "../../node/cluster/planner-loop.ts";
import { Router } from "../../node/cluster/router.ts";
import { mapOf } from "../../node/cluster/shard-map.ts";
import { ShardService } from "../../node/cluster/shard-service.ts";
import { FullDisk } from "../../node/replica/full-disk.ts";
import { HostedShards } from "../../node/replica/hosted-shards.ts";
import { LocalVoter } from "../../node/replica/local-voter.ts";
import { placementDoor } from "../../node/replica/placement-door.ts";
import { bootstrapGroup, PlacementReplica } from "../../node/replica/placement-replica.ts";
import { Replicas } from "../../node/replica/replicas.ts";
import type { SnapshotStores } from "../../node/replica/snapshot.ts";
import { fetchSnapshot, serveSnapshots } from "../../node/replica/snapshot-road.ts";
import { BlobUploads } from "../../node/seal/blob-uploads.ts";
import { HotTails } from "../../node/seal/hot-tails.ts";
import { LogBytes } from "../../node/seal/log-bytes.ts";
import type { Sealer } from "../../node/seal/sealer.ts";
import { type ColdStore, type SealingParts, sealerOf } from "../../node/seal/sealing.ts";
import { storedStatesOf } from "../../node/seal/stored-states.ts";
import { type Upkeep, upkeepOf } from "../../node/seal/upkeep.ts";
import type { Note, ShardHost } from "../../node/shard/shard-host.ts";
import { TaskRoad } from "../../node/stream/task-road.ts";
import type { Timing } from "../../node/timing.ts";
import { bunHasher } from "../hashers.ts";
import { CheckpointDisk, openCheckpoints } from "./checkpoints.ts";
import type { SimulatedTime } from "./clock.ts";
import { coldCluster } from "./cold-store.ts";
import { SimulatedPeerNet } from "./peer-net.ts";
import { codeOf } from "./program.ts";
import type { Simulation } from "./simulation.ts";
import { WatchedLog } from "./watched-log.ts";
import type { WorkerEnd } from "./worker-end.ts";

const itself: Identity = { issuer: "core", subject: "node", verified: true, causeSeq: 0 };
const silentMs = 1500;
/** What is noted by a node, and counted. */
const countedNotes: Readonly<Record<string, "sealed" | "archiveSealed" | "compacted">> = {
  sealed: "sealed",
  "sealed to its end": "archiveSealed",
  compacted: "compacted",
};
const announceRetryMs = 1000;

/** What outlives a life: disks and clocks. */
export class Machine {
  readonly disk = new MemoryDisk();
  readonly checkpoints = new CheckpointDisk();
  readonly time: SimulatedTime;
  readonly name: string;

  constructor(name: string, time: SimulatedTime) {
    this.name = name;
    this.time = time;
  }

  info(): NodeInfo {
    const place = this.name.split("/")[0];
    return { peer: `${place}:7072`, grpc: `${place}:7070`, http: "", zone: "", version: "0.1.0", protocol: 1, disk: this.name };
  }
}

/** What waits until a node is awake again. */
interface Waiting {
  readonly isTimer: boolean;
  readonly run: () => void;
}

export class SimNode {
  readonly id: NodeId;
  readonly machine: Machine;
  readonly log: WatchedLog;
  readonly net: SimulatedPeerNet;
  readonly placement: Placement;
  readonly router: Router;
  readonly hosted: HostedShards;
  readonly replicas: Replicas;
  readonly voter: PlacementReplica;
  readonly tasks: TaskRoad;
  readonly timing: Timing;
  readonly workers = new Set<WorkerEnd>();
  readonly checkpoint: CheckpointStore;
  isDead = false;
  private readonly sim: Simulation;
  private readonly planner: PlannerLoop;
  private readonly cold: ColdStore | undefined;
  private readonly bytesOf: (shard: ShardId) => number;
  private readonly tails: HotTails | undefined;
  private readonly sealer: Sealer | undefined;
  private readonly upkeep: Upkeep | undefined;
  private pausedUntilMs = 0;
  private readonly waiting: Waiting[] = [];

  /** `isFirst`: it founds the cluster, alone. */
  constructor(sim: Simulation, id: NodeId, machine: Machine, isFirst: boolean) {
    this.sim = sim;
    this.id = id;
    this.machine = machine;
    const { schedule, prng, wires } = sim;
    this.timing = this.makeTiming();
    const { timing } = this;
    this.log = new WatchedLog(machine.disk, sim.journal, {
      soon: (run) => schedule.after(0, () => this.take(run)),
      after: (ms, run) => this.later(ms, run),
      write: (bytes, done) => sim.write(this, bytes, () => this.take(done)),
    });
    const { log } = this;
    const logBytes = new LogBytes(log, timing);
    this.bytesOf = (shard) => logBytes.of(shard);
    if (isFirst) for (const shard of [placementShard, firstDataShard]) bootstrapGroup(log, shard, id);
    this.cold = sim.workload.sealing === undefined ? undefined : sim.cold.storeFor(this);
    const checkpoint = openCheckpoints(machine.checkpoints, log);
    this.checkpoint = checkpoint;
    const syncAside = checkpoint.syncAside.bind(checkpoint);
    checkpoint.syncAside = (done) => syncAside((isSynced) => this.take(() => done(isSynced)));
    this.net = new SimulatedPeerNet({
      self: id,
      wires,
      timing,
      netOf: (node) => sim.nodes.get(node)?.net,
      everyone: () => sim.nodes.keys(),
      take: (run) => this.take(run),
    });
    const { net } = this;
    const note = (level: "info" | "warn" | "error", what: string, fields?: Record<string, string | number>) =>
      sim.noted(this, level, what, fields);
    this.tails = sim.workload.sealing && new HotTails(sim.workload.sealing.hotTailBytesMax);
    const stores = { log, checkpoint, hasher: bunHasher, ...(this.cold === undefined ? {} : { sealed: this.cold.tier }) };
    const send = (shard: ShardId, message: Parameters<SimulatedPeerNet["sendRaft"]>[2]) =>
      void net.sendRaft(asNodeId(message.to ?? 0), shard, message);
    const onFault = (error: Error) => sim.faulted(this, error);
    const draw = (below: number) => prng.below(below);
    this.voter = new PlacementReplica({
      self: id,
      log,
      hasher: bunHasher,
      timing,
      draw,
      note,
      send,
      onFault,
      onChanged: () => local.changed(),
    });
    const local = new LocalVoter(this.voter);
    const fullDisk = new FullDisk(log);
    const placement = new Placement({
      self: id,
      net,
      timing,
      local: () => local,
      known: () => [...sim.nodes.keys()],
      loads: () => this.hosted.loads(),
      isFull: () => fullDisk.look(),
      note,
    });
    this.placement = placement;
    this.hosted = new HostedShards({ log, hasher: bunHasher, checkpoint, timing, replicas: () => this.replicas, placement: this.voter });
    const { hosted } = this;
    this.router = new Router({ self: id, shards: hosted, net, timing });
    const { router } = this;
    this.replicas = new Replicas({
      self: id,
      log,
      checkpoint,
      segments: this.segments(),
      hasher: bunHasher,
      timing,
      draw,
      note,
      send,
      onFault,
      mail: new MailRoad({ self: id, net, router, shards: hosted, bundles: new ClusterDeployments(placement) }),
      placement: placementDoor(placement, id),
      onLed: (shard, host) => this.onLed(shard, host),
      onWidened: (shard) => this.router.opened(shard),
      fetchSnapshot: (replica, offered) => {
        sim.count("snapshotInstall");
        fetchSnapshot({ stores, net, note }, replica, offered);
      },
      isHeard: (node) => node === id || timing.monotonicMs() - net.lastHeardMs(node) < silentMs,
      onGone: () => {},
      onCommitted: () => {},
      storedStates: this.cold && storedStatesOf(this.cold, stores),
      tails: this.tails,
      trimming:
        sim.workload.sealing === undefined
          ? undefined
          : { keptBytes: sim.workload.sealing.keptBytes, bytesOf: this.bytesOf, readThrough: () => asIndex(Number.MAX_SAFE_INTEGER) },
      orphanGraceMs: sim.workload.orphanGraceMs,
      idleMs: sim.workload.idleMs,
      ...(sim.workload.keyRetentionMs === undefined ? {} : { keyRetentionMs: sim.workload.keyRetentionMs }),
    });
    this.planner = new PlannerLoop({ placement, options: sim.workload.plan });
    const sealing = this.sealingParts(stores, note);
    this.sealer = sealing === undefined ? undefined : sealerOf(sealing);
    this.upkeep = sealing === undefined ? undefined : this.makeUpkeep(sealing);
    this.tasks = new TaskRoad({ self: id, net, router, shards: hosted, timing, note: (what, fields) => note("info", what, fields) });
    hosted.onLedChanged = (shard, port) => {
      for (const worker of [...this.workers]) worker.ledChanged(shard, port);
      if (port !== undefined) router.opened(shard);
    };
    this.serve(stores);
  }

  start(): void {
    this.log.onDurable = () => this.onDurable();
    this.log.onPoison = () => this.sim.crash(this, "diskBroken");
    this.placement.onView((view) => this.onView(view));
    this.net.start();
    this.voter.start();
    this.replicas.adopt(placementShard, this.voter);
    this.replicas.start();
    this.placement.start();
    this.planner.start();
    this.sealer?.start();
    this.upkeep?.start();
    void this.announce();
    this.sim.observe(this);
  }

  /** Ends this life: nothing that it would still have done happens. */
  die(isTorn: boolean): void {
    this.isDead = true;
    this.net.close();
    this.placement.close();
    this.planner.close();
    this.sealer?.stop();
    this.upkeep?.stop();
    this.replicas.stop();
    this.log.crash(isTorn ? this.sim.prng : undefined);
    this.waiting.length = 0;
    this.machine.checkpoints.life++;
  }

  pause(ms: number): void {
    this.pausedUntilMs = Math.max(this.pausedUntilMs, this.sim.schedule.nowMs + ms);
    this.sim.schedule.at(this.pausedUntilMs, () => this.wake());
  }

  get isPaused(): boolean {
    return this.pausedUntilMs > this.sim.schedule.nowMs;
  }

  /** Something from outside arrives. */
  take(run: () => void, isTimer = false): void {
    if (this.isDead) return;
    if (this.isPaused || this.waiting.length > 0) this.waiting.push({ isTimer, run });
    else this.do(run);
  }

  wakeNow(): void {
    this.pausedUntilMs = 0;
    this.wake();
  }

  leads(shard: ShardId): boolean {
    return this.hosted.led(shard) !== undefined;
  }

  describe(partition: Partition) {
    return this.router.describe(partition);
  }

  /** What came while it stood still runs now: in the order of its coming, or timers last, as the machine likes. */
  private wake(): void {
    if (this.isDead || this.isPaused) return;
    const waiting = this.waiting.splice(0);
    if (this.sim.prng.chance(0.5)) waiting.sort((a, b) => Number(a.isTimer) - Number(b.isTimer));
    for (const { run } of waiting) if (!this.isDead) this.do(run);
  }

  private do(run: () => void): void {
    run();
    this.sim.settle();
    if (!this.isDead) this.sim.observe(this);
  }

  private later(ms: number, run: () => void): void {
    this.sim.schedule.after(ms, () => this.take(run, true));
  }

  private makeTiming(): Timing {
    const { time } = this.machine;
    return {
      wallMs: () => time.wallMs(),
      monotonicMs: () => time.monotonicMs(),
      after: (ms, run) => {
        let isOff = false;
        const fire = (): void => {
          if (!isOff) run();
        };
        // One that was called off does nothing here, so nothing of the node need be looked at.
        this.sim.schedule.after(ms / time.rate, () => {
          if (!isOff) this.take(fire, true);
        });
        return () => {
          isOff = true;
        };
      },
    };
  }

  private onDurable(): void {
    this.replicas.onDurable();
    this.sim.onDurable(this);
  }

  private onLed(shard: ShardId, host: ShardHost | undefined): void {
    if (this.isDead) return;
    if (host !== undefined) this.sim.watchHost(this, shard, host);
    this.hosted.changed(shard, host);
  }

  private onView(view: ClusterView): void {
    const map = mapOf(view);
    if (map !== undefined) this.router.install(map);
    this.replicas.reconcile();
  }

  private serve(stores: Parameters<typeof serveSnapshots>[1]): void {
    const { net, replicas, hosted, router } = this;
    net.onRaft = (_, shard, decoded) => {
      const message = messageOf(decoded);
      if ("problem" in message) throw new Error(`node ${this.id} got a message that makes no sense: ${message.problem}`);
      replicas.receive(shard, message);
    };
    net.onUnreachable = (node) => replicas.onUnreachable(node);
    net.beatPayload = (to) => replicas.sleepersFor(to);
    net.onBeat = (from, payload) => replicas.onSleepers(from, payload);
    servePlacement(this.placement);
    serveSnapshots(net, stores, (shard, node, isTaken) => {
      if (!this.isDead) replicas.snapshotSent(shard, node, isTaken);
    });
    net.serve(transferCall, (_, body) => {
      const { shard, to } = fromBytes(decodeTransferRequest, body);
      replicas.transfer(shard as ShardId, asNodeId(to));
      return new Uint8Array(0);
    });
    new ShardService({ net, shards: hosted, router, sessionOf: (worker, shard) => this.sessionOf(worker, shard) });
  }

  private segments(): TieredSegmentStore {
    const { cold, sim } = this;
    if (cold === undefined) return new TieredSegmentStore(this.log);
    return new TieredSegmentStore(this.log, {
      history: (wanted) => {
        sim.count("sealedRead");
        return cold.tier.history(wanted);
      },
    });
  }

  private makeUpkeep(sealing: SealingParts): Upkeep {
    return upkeepOf({
      ...sealing,
      retired: (shard) => this.placement.view.retired.get(shard),
      readThrough: () => asIndex(Number.MAX_SAFE_INTEGER),
      pace: {
        lookMs: sealing.policy.lookMs * 4,
        compaction: { targetBytes: 40_000, rowsMax: 10_000, segmentsMin: 3 },
        // Listings are up to a minute old.
        garbage: { graceMs: 65_000, everyMs: 5000, manifestsKept: 4 },
      },
    });
  }

  private sealingParts(states: SnapshotStores, note: Note): SealingParts | undefined {
    const { cold, log, timing, id, sim, tails } = this;
    const policy = sim.workload.sealing;
    if (cold === undefined || policy === undefined || tails === undefined) return undefined;
    return {
      cold,
      policy,
      tails,
      bytesOf: this.bytesOf,
      node: id,
      cluster: coldCluster,
      log,
      states,
      hasher: bunHasher,
      timing,
      note: (level, what, fields) => {
        const counted = countedNotes[what];
        if (counted !== undefined) sim.count(counted);
        note(level, what, fields);
      },
      replicas: () => this.replicas,
      blobs: new BlobUploads({ cluster: coldCluster, objects: cold.objects, blob: async (sha256) => codeOf(sha256) }),
      bundles: () => [],
      statesWanted: new Set(),
      isReady: () => true,
      isRetired: (shard) => this.placement.view.retired.has(shard),
      work: sealInPlace,
    };
  }

  private sessionOf(workerId: string, shard: ShardId) {
    let found: ReturnType<WorkerEnd["sessionIn"]>;
    for (const worker of this.workers) if (worker.workerId === workerId) found = worker.sessionIn(shard) ?? found;
    return found;
  }

  /** Tells placement where this node is; the first one tells it that there is a cluster. */
  private async announce(): Promise<void> {
    const { placement, id, machine, sim } = this;
    while (!this.isDead) {
      try {
        const isFounder = placement.leads && placement.view.clusterId === "";
        const info = machine.info();
        const reply = isFounder
          ? await placement.command(itself, {
              kind: "bootstrap",
              clusterId: "sim",
              info,
              replicationWanted: sim.workload.replication,
              shards: 1,
            })
          : await placement.command(itself, { kind: "join", clusterId: "sim", node: id, info });
        if (reply.kind !== "rejected") return;
      } catch {
        // Placement is not reached yet.
      }
      await new Promise<void>((resolve) => void this.timing.after(announceRetryMs, resolve));
    }
  }
}
