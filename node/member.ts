/**
 * A node that belongs to a cluster: its replicas, the road to everybody else's, and what the
 * services stand on.
 */
import type { Server } from "@grpc/grpc-js";
import { asIndex, asNodeId, firstDataShard, type NodeId, placementShard, type ShardId } from "#core/base";
import type { ClusterView } from "#core/placement";
import { messageOf } from "#core/raft";
import { decodeTransferRequest, fromBytes, type Identity, type NodeInfo, type ServerItemInit, type WorkerItem } from "#proto";
import type { Connection, Open } from "#proto/connection";
import { RunQuery, SealThread } from "#store";
import { BlobKeeping } from "./cluster/blob-keeping.ts";
import { ConsistencyCheck } from "./cluster/consistency-check.ts";
import type { MemberParts } from "./cluster/control.ts";
import { ClusterDeployments } from "./cluster/deployments.ts";
import { serveDiskUse } from "./cluster/disk-use.ts";
import { serveFigures } from "./cluster/figures.ts";
import { serveJoining } from "./cluster/joining.ts";
import { MemberAddresses } from "./cluster/node-list.ts";
import type { Placement } from "./cluster/placement.ts";
import { servePlacement } from "./cluster/placement-service.ts";
import { PlannerLoop, transferCall } from "./cluster/planner-loop.ts";
import { RunLists } from "./cluster/run-lists.ts";
import { mapOf } from "./cluster/shard-map.ts";
import { ShardService } from "./cluster/shard-service.ts";
import { Verifier } from "./cluster/verify.ts";
import type { CompleteConfig } from "./config.ts";
import { hasher } from "./hasher.ts";
import { Hosting } from "./hosting.ts";
import { type NodeIdentity, objectsOf } from "./identity.ts";
import { errorFields } from "./observe/logger.ts";
import type { Metrics } from "./observe/metrics.ts";
import { KnownSenders } from "./peer/known-senders.ts";
import type { PeerNet } from "./peer/peer-net.ts";
import { bootstrapGroup } from "./replica/placement-replica.ts";
import { serveSnapshots, snapshotPatience } from "./replica/snapshot-road.ts";
import { ClaimWatch } from "./restore/claim-watch.ts";
import { firstRestoreEpoch } from "./restore/claims.ts";
import { nothingSealed, serveCompaction } from "./seal/compaction-road.ts";
import type { NodeColdStore } from "./seal/object-storage.ts";
import { PlacementUpload } from "./seal/placement-upload.ts";
import { sealPolicyOf } from "./seal/seal-policy.ts";
import { type SealingParts, sealerOf } from "./seal/sealing.ts";
import { type Upkeep, upkeepOf, upkeepPaceOf } from "./seal/upkeep.ts";
import { Calls } from "./service/calls.ts";
import { ClientService } from "./service/client-service.ts";
import { addDispatch } from "./service/dispatch-service.ts";
import { PayloadEdge } from "./service/payloads.ts";
import type { Edge } from "./service/unary.ts";
import type { Storage } from "./storage.ts";
import { WorkerRegistry } from "./stream/registry.ts";
import { TaskRoad } from "./stream/task-road.ts";
import { WorkerStream, type WorkerStreamParts } from "./stream/worker-stream.ts";
import { realTiming } from "./timing.ts";

const itself: Identity = { issuer: "core", subject: "node", verified: true, causeSeq: 0 };
const announceRetryMs = 1000;
const foundPollMs = 2;

export interface MemberOptions {
  readonly config: CompleteConfig;
  readonly identity: NodeIdentity;
  readonly storage: Storage;
  readonly net: PeerNet;
  /** Object storage, where the node was told of one. */
  readonly cold: NodeColdStore | undefined;
  readonly metrics: Metrics;
  readonly edge: Edge;
  /** What others are told of this node. */
  readonly info: () => NodeInfo;
  /** Voters of placement that seeds named. */
  readonly known: readonly NodeId[];
  readonly localSocket: () => string;
  readonly fault: (where: string, error: unknown) => void;
  readonly onPoison: (cause: Error) => void;
}

export class Member {
  readonly placement: Placement;
  readonly workers = new WorkerRegistry();
  private readonly options: MemberOptions;
  private readonly hosting: Hosting;
  private readonly planner: PlannerLoop;
  private readonly addresses: MemberAddresses;
  private readonly verifier: Verifier;
  private readonly check: ConsistencyCheck;
  private readonly keeping: BlobKeeping;
  private readonly client: ClientService;
  private readonly workerParts: WorkerStreamParts;
  private closeSnapshots = (): void => {};
  private isClosed = false;
  private stopSealing = () => {};
  /** Undefined where there is no object storage. */
  private upkeep: Upkeep | undefined;
  private whyUnsealed = () => "";

  /** Writes the beginning of a cluster that has this node alone, where the log is empty. */
  static found(storage: Storage, self: NodeId): void {
    const { log } = storage;
    if (log.lastIndex(placementShard) > 0) return;
    for (const shard of [placementShard, firstDataShard]) bootstrapGroup(log, shard, self);
    log.kick(true);
  }

  constructor(options: MemberOptions) {
    this.options = options;
    const { config, identity, storage, net, metrics, edge } = options;
    const self = identity.nodeId;
    const timing = realTiming;
    const hosting = new Hosting(options);
    const { placement, note } = hosting;
    this.hosting = hosting;
    this.placement = placement;
    this.planner = new PlannerLoop({ placement });
    this.addresses = new MemberAddresses(placement);
    this.verifier = new Verifier(placement, this.hosting.hosted);
    this.check = new ConsistencyCheck({
      placement,
      verifier: this.verifier,
      onDifference: (shard, verdict) => {
        metrics.replicasDiffer();
        config.logger.error("replicas of a shard differ", { shard, verdict });
      },
    });
    this.keeping = new BlobKeeping({
      store: storage.blobs,
      dataDir: config.dataDir,
      log: storage.log,
      net,
      placement,
      objects: options.cold?.objects,
      cluster: objectsOf(identity),
      graceMs: config.blobGraceMs,
      metrics,
      note,
    });
    const { blobs } = this.keeping;
    const payloads = new PayloadEdge(blobs);
    this.hosting.payloads = payloads;
    const deployments = new ClusterDeployments(placement);
    const calls = new Calls({ router: this.hosting.router, edge: payloads, deployments });
    const runs = new RunLists({ self, net, router: this.hosting.router, shards: this.hosting.hosted, pump: this.hosting.pump, timing });
    this.client = new ClientService(
      { calls, router: this.hosting.router, blobs, runs, registry: deployments, nodes: this.addresses },
      edge,
    );
    this.workerParts = this.partsOfWorkers(payloads);
    this.hosting.hosted.onLedChanged = (shard, port) => {
      this.workers.ledChanged(shard, port);
      if (port !== undefined) this.hosting.router.opened(shard);
    };
    this.servePeers();
    metrics.watch({
      activeRuns: () => this.hosting.hosted.figure("residentRuns"),
      readyTasks: () => this.hosting.hosted.figure("readyTasks"),
      workers: () => this.workers.size,
      clientSessions: () => this.client.sessionCount,
    });
  }

  private partsOfWorkers(payloads: PayloadEdge): WorkerStreamParts {
    const { config, identity, net } = this.options;
    const { options } = this;
    const self = identity.nodeId;
    const timing = realTiming;
    const tasks = new TaskRoad({
      self,
      net,
      router: this.hosting.router,
      shards: this.hosting.hosted,
      timing,
      note: (what, fields) => config.logger.info(what, fields),
    });
    return {
      clusterId: identity.clusterId,
      version: config.version,
      epoch: () => this.hosting.router.epoch,
      node: self,
      shards: this.hosting.hosted,
      tasks,
      timing,
      nodes: this.addresses,
      advertised: () => options.info().grpc,
      localSocket: options.localSocket,
      edge: payloads,
      registry: this.workers,
      note: (what, fields) => config.logger.info(what, fields),
      onFault: (error) => options.fault("Dispatch/Connect", error),
    };
  }

  /** What the admin service needs. */
  get parts(): MemberParts {
    return { placement: this.placement, addresses: this.addresses, verifier: this.verifier, unsealed: () => this.whyUnsealed() };
  }

  /** This node's place in the cluster's view; undefined before it is known. */
  get entry() {
    return this.placement.view.nodes.get(this.options.identity.nodeId);
  }

  start(): void {
    const { log } = this.options.storage;
    log.onDurable = () => this.hosting.replicas.onDurable();
    log.onPoison = (cause) => this.options.onPoison(cause);
    this.placement.onView((view) => this.onView(view));
    this.hosting.voter.start();
    this.hosting.replicas.adopt(placementShard, this.hosting.voter);
    this.hosting.replicas.start();
    this.placement.start();
    this.planner.start();
    this.check.start();
    this.keeping.start();
    this.seal();
    void this.announce();
  }

  /** Resolves when the view has all keys owned and this node in it. */
  async ready(): Promise<void> {
    const { nodeId } = this.options.identity;
    const isIn = (view: ClusterView) => view.nodes.has(nodeId) && view.ranges.length > 0;
    while (!this.isClosed && !isIn(this.placement.view))
      await this.placement.until(isIn, 60_000, "this node in the cluster's view").catch(() => {});
  }

  addServices(server: Server): void {
    this.client.addTo(server);
    addDispatch(server, this.options.edge, this.workerParts);
  }

  readonly acceptWorker: Open<ServerItemInit, WorkerItem> = (connection) => this.accept(connection, "in-process");

  accept(connection: Connection<ServerItemInit>, address: string): WorkerStream {
    return new WorkerStream(connection, address, this.workerParts);
  }

  blob(sha256: Uint8Array): Promise<Uint8Array> {
    return this.keeping.blobs.get(sha256);
  }

  hasRoom(): boolean {
    return this.options.storage.log.hasRoom();
  }

  /** Answers what is open with a refusal that clients retry. */
  stopServing(): void {
    this.isClosed = true;
    this.stopSealing();
    this.planner.close();
    this.check.close();
    this.hosting.router.close();
    this.workers.closeAll("The node is stopping");
    this.client.closeSessions("The node is stopping");
  }

  /** Hands leaderships over where others can take them, and saves what changed: a disk that is full is not waited for. */
  async settle(limits: { readonly handOverMs: number; readonly settleMs: number }): Promise<void> {
    await this.hosting.hosted.handOver(limits.handOverMs);
    await this.hosting.hosted.settle(limits.settleMs);
  }

  /** The cluster goes on without this node, and answers it no more. */
  leave(): void {
    this.stopServing();
    this.placement.close();
    this.hosting.replicas.stop();
  }

  /** The log can take no more: nothing that is not acknowledged yet ever will be. */
  onPoison(): void {
    this.hosting.router.close();
    this.hosting.replicas.stop();
  }

  /** Who decides for the cluster, for nodes that look for it. */
  voters() {
    const { view } = this.placement;
    return (view.placement?.voters ?? []).map((node) => ({ node, address: view.nodes.get(node)?.info.peer ?? "" }));
  }

  async close(): Promise<void> {
    this.placement.close();
    this.addresses.close();
    this.keeping.close();
    this.closeSnapshots();
    this.hosting.replicas.stop();
    await this.hosting.pump.close();
  }

  private seal(): void {
    const { cold, config, identity, storage } = this.options;
    const { stores, note, replicas, tails, placement } = this.hosting;
    const { projector } = storage;
    const { uploads } = this.keeping;
    if (cold === undefined || tails === undefined || uploads === undefined) return;
    void cold.storage.keepProving(() => this.isClosed);
    const own = { objects: cold.objects, cluster: objectsOf(identity), restoreEpoch: identity.restoreEpoch ?? firstRestoreEpoch };
    const claims = new ClaimWatch({ ...own, timing: realTiming, note, isReady: () => cold.storage.isProven });
    this.whyUnsealed = () => claims.why;
    const placementUpload = new PlacementUpload({
      ...own,
      clusterId: identity.clusterId,
      hasher,
      timing: realTiming,
      note,
      placement: () => (claims.mayWrite() ? this.hosting.voter.uploadable() : undefined),
      blob: (sha256) => this.keeping.blobs.get(sha256),
    });
    const thread = new SealThread();
    const parts: SealingParts = {
      cold,
      policy: sealPolicyOf(config),
      tails,
      bytesOf: this.hosting.bytesOf,
      node: identity.nodeId,
      ...own,
      log: storage.log,
      states: stores,
      hasher,
      timing: realTiming,
      note,
      replicas: () => replicas,
      blobs: uploads,
      statesWanted: new Set(),
      bundles: () => this.keeping.bundles(),
      isReady: () => cold.storage.isProven && claims.mayWrite(),
      isRetired: (shard) => this.placement.view.retired.has(shard),
      work: thread,
    };
    const sealer = sealerOf(parts);
    const upkeep = upkeepOf({
      ...parts,
      retired: (shard) => placement.view.retired.get(shard),
      retention: { namespaces: () => placement.view.entries.get("namespace")?.values() ?? [], runs: new RunQuery(projector.database) },
      pace: upkeepPaceOf(config.objectGraceMs),
      readThrough: (shard) => asIndex(projector.follows(shard) ? projector.appliedIndex(shard) : Number.MAX_SAFE_INTEGER),
    });
    this.upkeep = upkeep;
    this.stopSealing = () => {
      sealer.stop();
      upkeep.stop();
      placementUpload.stop();
      claims.stop();
      thread.close();
    };
    sealer.start();
    upkeep.start();
    placementUpload.start();
    claims.start();
  }

  private servePeers(): void {
    const { stores } = this.hosting;
    const { net } = this.options;
    const senders = new KnownSenders({
      view: () => this.placement.view,
      conf: (shard) => this.hosting.replicas.group(shard)?.conf,
      known: () => this.hosting.known(),
      note: this.hosting.note,
    });
    net.onRaft = (from, shard, decoded) => {
      const message = messageOf(decoded);
      if ("problem" in message)
        return this.options.config.logger.warn("a message of a peer was dropped", { shard, problem: message.problem });
      if (senders.takes(from, shard, message)) this.hosting.replicas.receive(shard, message);
    };
    net.onUnreachable = (node) => this.hosting.replicas.onUnreachable(node);
    net.beatPayload = (to) => this.hosting.replicas.sleepersFor(to);
    net.onBeat = (from, payload) => this.hosting.replicas.onSleepers(from, payload);
    servePlacement(this.placement);
    serveFigures(this.placement);
    serveDiskUse(this.options.net, this.options.config.dataDir);
    serveJoining(this.placement);
    serveCompaction(net, (shard) => {
      if (this.upkeep === undefined) throw nothingSealed(shard);
      return this.upkeep.compact(shard);
    });
    const taken = (shard: ShardId, node: NodeId, isTaken: boolean) => this.hosting.replicas.snapshotSent(shard, node, isTaken);
    this.closeSnapshots = serveSnapshots(net, stores, taken, snapshotPatience);
    net.serve(transferCall, (_, body) => {
      const { shard, to } = fromBytes(decodeTransferRequest, body);
      this.hosting.replicas.transfer(shard as ShardId, asNodeId(to));
      return new Uint8Array(0);
    });
    const { workers } = this;
    const { router, hosted } = this.hosting;
    new ShardService({ net, shards: hosted, router, sessionOf: (worker, shard) => workers.sessionOf(worker, shard) });
  }

  private onView(view: ClusterView): void {
    this.hosting.peers.take(view);
    const map = mapOf(view);
    if (map !== undefined) this.hosting.router.install(map);
    this.hosting.replicas.reconcile();
    this.keeping.onView();
  }

  /** Whether this node leads a placement that knows of no cluster: it has just been made. */
  private async isToFound(): Promise<boolean> {
    const isUnsure = () => this.options.identity.nodeId === 1 && this.placement.view.clusterId === "" && !this.placement.leads;
    while (isUnsure() && !this.isClosed) await new Promise((resolve) => setTimeout(resolve, foundPollMs));
    return this.placement.leads && this.placement.view.clusterId === "";
  }

  /** Tells placement where this node is now; the first node of a cluster tells it that there is one. */
  private async announce(): Promise<void> {
    const { identity, info, config } = this.options;
    const { clusterId, nodeId } = identity;
    while (!this.isClosed) {
      try {
        const isFounder = await this.isToFound();
        const reply = isFounder
          ? await this.placement.command(itself, { kind: "bootstrap", clusterId, info: info() })
          : await this.placement.command(itself, { kind: "join", clusterId, node: nodeId, info: info() });
        if (reply.kind !== "rejected") return;
        if (reply.rejection.reject !== "STORE_UNAVAILABLE")
          config.logger.warn("placement does not take this node's address", { reason: reply.rejection.message });
      } catch (error) {
        if (!this.isClosed) config.logger.info("placement is not reached yet", errorFields(error));
      }
      await new Promise((resolve) => setTimeout(resolve, announceRetryMs));
    }
  }
}
