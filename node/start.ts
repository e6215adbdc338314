/**
 * One node's life: it holds its folder, listens, finds or founds its cluster, serves, and comes
 * down again in an order that loses nothing that was acknowledged.
 */
import { logVerbosity, Server, setLogVerbosity } from "@grpc/grpc-js";
import { asNodeId, HopError, limits, type NodeId } from "#core/base";
import { type ClusterInitReplyInit, type NodeInfo, NodePhase, type SeedAttemptInit, type ServerItemInit } from "#proto";
import { type Connection, channelOptions } from "#proto/connection";
import type { FolderLock } from "#store";
import { type Membership, NodeControl } from "./cluster/control.ts";
import { joinThrough } from "./cluster/joining.ts";
import {
  addressOf,
  advertisedPeer,
  type CompleteConfig,
  completeConfig,
  foundingOf,
  isClustered,
  isLoopback,
  type NodeConfig,
  peerPortDefault,
} from "./config.ts";
import { diskIdOf, requireLogThere, requireOwnLog } from "./folder-marks.ts";
import { requireNoCluster } from "./founding.ts";
import { hasher } from "./hasher.ts";
import { type NodeIdentity, newIdentity, objectsOf, readIdentity, writeIdentity } from "./identity.ts";
import { KnownPeers } from "./known-peers.ts";
import { cannotListen, listen, shutDown } from "./listening.ts";
import { Member } from "./member.ts";
import { nodeInfo } from "./node-info.ts";
import { type HttpServer, serveHttp } from "./observe/http.ts";
import { errorFields, type Logger } from "./observe/logger.ts";
import { Metrics } from "./observe/metrics.ts";
import { LonePeerNet } from "./peer/lone-peer-net.ts";
import type { PeerNet } from "./peer/peer-net.ts";
import { answerSeekers, type FoundCluster, parseSeeds, SeedSearch, type SeedState } from "./peer/seeds.ts";
import { TcpPeerNet } from "./peer/tcp-peer-net.ts";
import { objectsFor, type RestoreWanted, restoring } from "./restore/restoring.ts";
import { finishStaging } from "./restore/staging.ts";
import type { RunningNode } from "./running-node.ts";
import { coldStoreIn, type ObjectStorage, objectStorageOf } from "./seal/object-storage.ts";
import { refuseCalls } from "./service/closed-services.ts";
import type { Asker, ProgressStream } from "./service/cluster-control.ts";
import { ClusterService } from "./service/cluster-service.ts";
import { HealthService } from "./service/health.ts";
import { addReflection } from "./service/reflection.ts";
import type { Edge } from "./service/unary.ts";
import { holdFolder, openStorage, type Storage } from "./storage.ts";
import { type LocalServer, serveLocal } from "./stream/local-server.ts";

/** Others get this long to take the leads over, and what was appended to become durable. */
const settleMs = 5000;
const handOverMs = 2000;
const looking = "this node is looking for its cluster; ask a member, or make a cluster with `hop cluster init`";

/** Resolves when the node serves, or looks for its cluster. Rejects with `HopError` that says what to do. */
export async function startNode(given: NodeConfig): Promise<RunningNode> {
  const config = completeConfig(given);
  // What goes wrong is in this node's own log, with its context.
  setLogVerbosity(logVerbosity.NONE);
  const lock = await holdFolder(config.dataDir);
  const node = new Node(config, lock);
  try {
    await node.start();
  } catch (error) {
    await node.close();
    throw error;
  }
  return node;
}

class Node implements RunningNode {
  readonly dataDir: string;
  grpc = "";
  http = "";
  readonly member: Promise<void>;
  private readonly config: CompleteConfig;
  private readonly logger: Logger;
  private readonly lock: FolderLock;
  private readonly metrics = new Metrics();
  private readonly server: Server;
  private readonly health = new HealthService();
  private readonly edge: Edge;
  private readonly membership = Promise.withResolvers<void>();
  private readonly listeners = new Set<() => void>();
  private identity: NodeIdentity | undefined;
  private net: PeerNet | undefined;
  private tcp: TcpPeerNet | undefined;
  private storage: Storage | undefined;
  private objects: ObjectStorage | undefined;
  private insides: Member | undefined;
  private search: SeedSearch | undefined;
  private seedTexts: readonly string[];
  private seedStates: readonly SeedState[] = [];
  private stopRefusing: (() => void) | undefined;
  private httpServer: HttpServer | undefined;
  private localServer: LocalServer | undefined;
  private diskId = "";
  private removedBecause = "";
  private isDraining = false;
  private isFounding = false;
  private poisoned: Error | undefined;
  private closing: Promise<void> | undefined;

  constructor(config: CompleteConfig, lock: FolderLock) {
    this.config = config;
    this.logger = config.logger;
    this.lock = lock;
    this.dataDir = config.dataDir;
    this.seedTexts = config.seeds;
    this.member = this.membership.promise;
    // Whoever waits for it is told; nobody has to.
    this.member.catch(() => {});
    this.server = new Server({ ...channelOptions(limits), "grpc.keepalive_time_ms": 10_000, "grpc.keepalive_timeout_ms": 5_000 });
    const { metrics } = this;
    this.edge = {
      identify: config.identify,
      isDraining: () => this.isDraining,
      whyNotOpen: () => this.whyNotOpen(),
      observe: (path, result, ms) => metrics.answered(path.slice(path.lastIndexOf("/") + 1), result, ms),
      fault: (path, error) => this.fault(path, error),
    };
  }

  async start(): Promise<void> {
    const { config } = this;
    this.objects = objectStorageOf(config);
    finishStaging(config.dataDir);
    this.identity = readIdentity(config.dataDir, config.version);
    const isFounder = this.identity === undefined && foundingOf(config) === "found";
    if (isFounder) this.identity = newIdentity();
    // Whoever does not get its ports leaves nothing in its folder: else it would be of a cluster of its own from then on.
    this.net = this.openNet();
    this.addServices();
    this.stopRefusing = refuseCalls(this.server, this.edge, () => this.whyNotOpen() ?? looking);
    await this.listenAll();
    await this.objects?.open();
    this.diskId = diskIdOf(config.dataDir);
    if (this.identity === undefined) return this.seek();
    await this.serve(await this.becomeMember(this.identity, { isFounder, known: [] }));
  }

  // How it stands.

  get isMember(): boolean {
    return this.insides !== undefined;
  }

  get clusterId(): string {
    return this.identity?.clusterId ?? "";
  }

  get peer(): string {
    return this.tcp?.advertised ?? "";
  }

  private phase(): NodePhase {
    if (this.removedBecause !== "") return NodePhase.removed;
    if (this.insides === undefined) return NodePhase.joining;
    return this.insides.entry?.standing === "leaving" ? NodePhase.leaving : NodePhase.member;
  }

  private whyNotOpen(): string | undefined {
    if (this.removedBecause !== "") return this.removedBecause;
    if (this.insides !== undefined) return undefined;
    return this.identity === undefined ? looking : "this node is starting";
  }

  private readonly standing: Membership = {
    phase: () => this.phase(),
    clusterId: () => this.clusterId,
    node: () => this.identity?.nodeId ?? 0,
    version: "",
    peer: () => this.peer,
    seeds: () => this.seedStates.map(seedAttempt),
    init: () => this.found(),
    restore: (wanted, asker) => this.restore(wanted, asker),
    addSeeds: (seeds) => this.addSeeds(seeds),
    onChange: (listener) => {
      this.listeners.add(listener);
      return () => void this.listeners.delete(listener);
    },
  };

  private changed(): void {
    for (const listener of [...this.listeners]) listener();
  }

  // Its way into a cluster.

  private openNet(): PeerNet {
    const { config, identity } = this;
    const isAlone = identity !== undefined && identity.nodeId === 1 && !isClustered(config) && !KnownPeers.exist(this.dataDir);
    if (isAlone) return new LonePeerNet(identity.nodeId);
    this.tcp = new TcpPeerNet({
      host: config.host,
      port: config.peerPort ?? peerPortDefault,
      advertised: (port) => advertisedPeer(config, port),
      version: config.version,
      ...(identity === undefined ? {} : { identity }),
      tls: config.peerTls,
      logger: this.logger,
      isRemoved: (node) => this.insides?.placement.view.nodes.get(node)?.standing === "removed",
      onRefused: (_, rule, message) => {
        if (rule === "NODE_REMOVED") this.onRemoved(message);
      },
    });
    const { tcp } = this;
    answerSeekers(tcp, () => {
      const voters = this.insides?.voters() ?? [];
      // Who comes is told whom to ask: before that is known here, it is told to come again.
      const clusterId = voters.length === 0 ? "" : this.clusterId;
      return { clusterId, node: this.identity?.nodeId ?? 0, life: tcp.lifeId, version: config.version, voters };
    });
    return tcp;
  }

  /** Looks for a cluster for as long as it takes; never makes one by itself. */
  private seek(): void {
    const { tcp } = this;
    if (tcp === undefined) throw new HopError("INTERNAL", "A node that looks for a cluster has a port for peers");
    this.logger.info("looking for a cluster", { seeds: this.seedTexts.join(", "), peer: tcp.advertised });
    this.search?.stop();
    const search = new SeedSearch({
      seeds: parseSeeds(this.seedTexts),
      net: tcp,
      life: tcp.lifeId,
      advertised: tcp.advertised,
      clusterId: "",
      join: (found, signal) => this.join(found, signal),
      onState: (states, problem) => {
        this.seedStates = states;
        this.logger.info("still looking for a cluster", { problem });
        this.changed();
      },
    });
    this.search = search;
    search.run().catch((error: unknown) => this.membership.reject(error));
  }

  private addSeeds(seeds: readonly string[]): void {
    parseSeeds(seeds);
    this.seedTexts = [...new Set([...this.seedTexts, ...seeds])];
    if (this.insides === undefined && !this.isDraining) this.seek();
  }

  private async join(found: FoundCluster, signal: AbortSignal): Promise<void> {
    const { tcp } = this;
    if (tcp === undefined) throw new HopError("INTERNAL", "A node that joins has a port for peers");
    const addresses = [...found.members, ...found.voters.map((voter) => voter.address)];
    const who = { issuer: "core", subject: "node", verified: false, causeSeq: 0 };
    const joined = await joinThrough(
      tcp,
      addresses,
      { kind: "join", clusterId: found.clusterId, info: this.info() },
      { identity: who, signal },
    );
    if (signal.aborted || this.identity !== undefined) return;
    const { node: nodeId, ...rest } = joined;
    const identity = { ...rest, nodeId };
    writeIdentity(this.dataDir, identity, this.config.version);
    this.identity = identity;
    tcp.become(identity);
    const known = found.voters.map((voter) => asNodeId(voter.node));
    tcp.setPeers(new Map(found.voters.map((voter) => [asNodeId(voter.node), voter.address])));
    await this.enter(identity, { isFounder: false, known });
  }

  /** `hop cluster init`: makes a cluster of this node. */
  private async found(): Promise<ClusterInitReplyInit> {
    await this.requireNoCluster();
    this.search?.stop();
    const identity = newIdentity();
    writeIdentity(this.dataDir, identity, this.config.version);
    this.identity = identity;
    this.tcp?.become(identity);
    await this.enter(identity, { isFounder: true, known: [] });
    await this.member;
    return { clusterId: identity.clusterId, node: identity.nodeId };
  }

  /** `hop cluster restore`: makes a cluster of this node out of what another one had uploaded. */
  private async *restore(wanted: RestoreWanted, { identity: who }: Asker): ProgressStream {
    await this.requireNoCluster();
    const { dataDir, config, tcp } = this;
    const objects = objectsFor(wanted, { url: config.objectStore, objects: this.objects?.objects });
    this.search?.stop();
    this.isFounding = true;
    try {
      const parts = { dataDir, version: config.version, objects, info: this.info(), identity: who, hasher, wallMs: Date.now };
      const identity = yield* restoring({ ...parts, warn: (message) => this.logger.warn(message) }, wanted);
      this.identity = identity;
      tcp?.become(identity);
      await this.enter(identity, { isFounder: false, known: [] });
      await this.member;
      yield { text: `This is node ${identity.nodeId} of ${identity.clusterId}`, finished: true };
    } finally {
      this.isFounding = false;
      if (this.identity === undefined && !this.isDraining) this.seek();
    }
  }

  private async requireNoCluster(): Promise<void> {
    await requireNoCluster(() => this.identity, this.search);
    if (this.isFounding) throw new HopError("ALREADY_MEMBER", "Cannot make a cluster: this node is being made one already");
  }

  private async enter(identity: NodeIdentity, how: { readonly isFounder: boolean; readonly known: readonly NodeId[] }): Promise<void> {
    const member = await this.becomeMember(identity, how);
    this.changed();
    void this.serve(member).catch((error: unknown) => this.fault("start", error));
  }

  private onRemoved(message: string): void {
    if (this.removedBecause !== "") return;
    this.removedBecause = "this node was removed from its cluster; start it with an empty data folder, and it joins as a new one";
    this.health.set(false);
    this.logger.error("this node was removed from its cluster", { why: message });
    // Nobody speaks with it any more: to go on asking would only fill its log and theirs.
    this.insides?.leave();
    this.net?.close();
    this.changed();
    const failure = new HopError("NOT_A_MEMBER", this.removedBecause);
    this.membership.reject(failure);
    this.config.onFailed(failure);
  }

  // Serving.

  private async becomeMember(
    identity: NodeIdentity,
    how: { readonly isFounder: boolean; readonly known: readonly NodeId[] },
  ): Promise<Member> {
    const { config, net } = this;
    if (net === undefined) throw new HopError("INTERNAL", "A member has a way to its peers");
    requireLogThere(this.dataDir);
    writeIdentity(this.dataDir, identity, config.version);
    const cold = this.objects && coldStoreIn(this.objects, objectsOf(identity));
    const storage = await openStorage(this.lock, {
      dataDir: this.dataDir,
      warn: (message) => this.logger.warn(message),
      onFlush: (ms) => this.metrics.flushed(ms),
      requireOwn: (logId) => requireOwnLog(this.dataDir, logId),
      sealed: cold?.tier,
    });
    this.storage = storage;
    const isFirst = identity.nodeId === 1 && (how.isFounder || !KnownPeers.exist(this.dataDir));
    if (isFirst) Member.found(storage, identity.nodeId);
    const member = new Member({
      config,
      identity,
      storage,
      net,
      cold,
      metrics: this.metrics,
      edge: this.edge,
      info: () => this.info(),
      known: how.known,
      localSocket: () => this.localServer?.path ?? "",
      fault: (where, error) => this.fault(where, error),
      onPoison: (cause) => this.onPoison(cause),
    });
    this.stopRefusing?.();
    this.stopRefusing = undefined;
    member.addServices(this.server);
    this.insides = member;
    return member;
  }

  private async serve(member: Member): Promise<void> {
    member.start();
    const ready = member.ready().then(() => this.onReady());
    ready.then(this.membership.resolve, this.membership.reject);
    // A node of several may have to wait for others: it serves when they are there.
    if (this.tcp === undefined) await ready;
  }

  private onReady(): void {
    if (this.isDraining) return;
    this.health.set(true);
    const { grpc, http, dataDir: data, clusterId: cluster } = this;
    this.logger.info("node ready", { grpc, http, data, cluster, node: this.identity?.nodeId ?? 0 });
    this.changed();
  }

  private info(): NodeInfo {
    const { config, grpc, http, diskId: disk } = this;
    return nodeInfo(config, { peer: this.tcp?.advertised, grpc, http, disk });
  }

  private addServices(): void {
    const control = new NodeControl({
      membership: { ...this.standing, version: this.config.version },
      member: () => this.insides?.parts,
    });
    new ClusterService(control, this.edge).addTo(this.server);
    this.health.addTo(this.server);
    addReflection(this.server);
  }

  private async listenAll(): Promise<void> {
    const { host, grpcPort, httpHost, httpPort } = this.config;
    if (!isLoopback(host)) this.logger.warn("Callers are not verified: whoever reaches the address may act under any name", { host });
    this.grpc = addressOf(host, await listen(this.server, addressOf(host, grpcPort)));
    this.httpServer = this.serveHttp(httpHost, httpPort);
    this.http = this.httpServer.address;
    this.localServer = this.serveLocal();
  }

  readonly acceptWorker = (connection: Connection<ServerItemInit>) => this.openMember().accept(connection, "in-process");

  blob(sha256: Uint8Array): Promise<Uint8Array> {
    return this.openMember().blob(sha256);
  }

  private openMember(): Member {
    const why = this.whyNotOpen();
    if (this.insides === undefined || why !== undefined) throw new HopError("STORE_UNAVAILABLE", `Cannot use the node: ${why ?? looking}`);
    return this.insides;
  }

  /** A shorter road for workers on this machine. Without it they speak over gRPC like any other. */
  private serveLocal(): LocalServer | undefined {
    try {
      return serveLocal(this.dataDir, (connection) => this.openMember().accept(connection, "local socket"));
    } catch (error) {
      this.logger.warn("workers on this machine speak over gRPC: no unix socket could be made", errorFields(error));
      return undefined;
    }
  }

  private serveHttp(hostname: string, port: number): HttpServer {
    try {
      return serveHttp({
        hostname,
        port,
        metrics: this.metrics,
        isAlive: () => this.poisoned === undefined,
        whyNotReady: () => this.whyNotReady(),
      });
    } catch (error) {
      throw cannotListen(addressOf(hostname, port), error, "--http");
    }
  }

  private whyNotReady(): string | undefined {
    if (this.poisoned !== undefined) return `the node can't go on: ${this.poisoned.message}`;
    const why = this.whyNotOpen();
    if (why !== undefined) return why;
    if (!this.health.isServing) return "not serving";
    return this.insides?.hasRoom() ? undefined : "appends are refused: the log's disk is full, or too far behind";
  }

  private fault(where: string, error: unknown): void {
    this.logger.error("fault", { where, ...errorFields(error) });
  }

  private onPoison(cause: Error): void {
    if (this.poisoned !== undefined) return;
    this.poisoned = cause;
    this.health.set(false);
    this.logger.error("the node can't go on", errorFields(cause));
    this.insides?.onPoison();
    this.config.onFailed(cause);
  }

  // Its end.

  close(): Promise<void> {
    this.closing ??= this.end();
    return this.closing;
  }

  private async end(): Promise<void> {
    this.isDraining = true;
    this.search?.stop();
    this.membership.reject(new HopError("STORE_UNAVAILABLE", "The node is stopping"));
    this.health.set(false);
    this.health.close();
    const { insides, storage } = this;
    if (insides !== undefined) {
      // Others take the leads over while what was decided becomes durable; then what is open is refused.
      await insides.settle({ handOverMs, settleMs }).catch((error: unknown) => this.fault("shutdown", error));
      insides.stopServing();
    }
    this.localServer?.close();
    await shutDown(this.server);
    await insides?.close();
    this.net?.close();
    if (storage === undefined) this.lock.release();
    else await storage.close();
    await this.objects?.close();
    await this.httpServer?.close();
    this.logger.info("node stopped");
  }
}

function seedAttempt({ seed, asked, problem, triedMs }: SeedState): SeedAttemptInit {
  return { seed, address: asked.map(({ address }) => address), problem, triedMs };
}
