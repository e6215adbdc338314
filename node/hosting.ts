/** What a member hosts: its replicas and placement's, and the road to everybody else's. */
import { asIndex, asNodeId, type NodeId, type ShardId } from "#core/base";
import type { Payload } from "#proto";
import { ClusterDeployments } from "./cluster/deployments.ts";
import { MailRoad } from "./cluster/mail.ts";
import { Placement } from "./cluster/placement.ts";
import { Router } from "./cluster/router.ts";
import { hasher } from "./hasher.ts";
import { KnownPeers } from "./known-peers.ts";
import type { MemberOptions } from "./member.ts";
import { countRecord } from "./observe/record-figures.ts";
import type { PeerNet } from "./peer/peer-net.ts";
import { FullDisk } from "./replica/full-disk.ts";
import { HostedShards } from "./replica/hosted-shards.ts";
import { LocalVoter } from "./replica/local-voter.ts";
import { placementDoor } from "./replica/placement-door.ts";
import { PlacementReplica } from "./replica/placement-replica.ts";
import { Replicas } from "./replica/replicas.ts";
import type { SnapshotStores } from "./replica/snapshot.ts";
import { fetchSnapshot, snapshotPatience } from "./replica/snapshot-road.ts";
import { HotTails } from "./seal/hot-tails.ts";
import { LogBytes } from "./seal/log-bytes.ts";
import { sealPolicyOf } from "./seal/seal-policy.ts";
import { storedStatesOf } from "./seal/stored-states.ts";
import type { PayloadEdge } from "./service/payloads.ts";
import type { Note } from "./shard/shard-host.ts";
import { realTiming } from "./timing.ts";
import { VisibilityPump } from "./visibility-pump.ts";

/** Without a word from a node for this long its sleeping groups wake. */
const silentMs = 1500;

export class Hosting {
  readonly note: Note;
  readonly stores: SnapshotStores;
  readonly peers: KnownPeers;
  readonly placement: Placement;
  readonly voter: PlacementReplica;
  readonly hosted: HostedShards;
  readonly router: Router;
  readonly replicas: Replicas;
  readonly pump: VisibilityPump;
  /** Of a shard's records in the log, about. */
  readonly bytesOf: (shard: ShardId) => number;
  /** Makes blobs of what is large; undefined until the node serves. */
  payloads: PayloadEdge | undefined;
  /** What of the shards here waits for object storage. */
  readonly tails: HotTails | undefined;
  private readonly toldOf: readonly NodeId[];

  constructor(options: MemberOptions) {
    const { config, identity, storage, net } = options;
    const { log, checkpoint, segments, projector } = storage;
    const self = identity.nodeId;
    const timing = realTiming;
    const note: Note = (level, what, fields) => config.logger[level](what, fields);
    this.note = note;
    this.toldOf = options.known;
    const stores = { log, checkpoint, hasher, projector, ...(options.cold === undefined ? {} : { sealed: options.cold.tier }) };
    this.stores = stores;
    const around = {
      self,
      log,
      hasher,
      timing,
      draw: (below: number) => Math.floor(Math.random() * below),
      note,
      send: (shard: Parameters<PeerNet["sendRaft"]>[1], message: Parameters<PeerNet["sendRaft"]>[2]) =>
        void net.sendRaft(asNodeId(message.to ?? 0), shard, message),
      onFault: options.onPoison,
    };
    const logBytes = new LogBytes(log, timing);
    this.bytesOf = (shard) => logBytes.of(shard);
    this.tails = options.cold && new HotTails(sealPolicyOf(config).hotTailBytesMax);
    this.peers = new KnownPeers(config.dataDir, self, net);
    const fullDisk = new FullDisk(log);
    this.voter = new PlacementReplica({
      ...around,
      onChanged: () => local.changed(),
    });
    const local = new LocalVoter(this.voter);
    const placement = new Placement({
      self,
      net,
      timing,
      local: () => local,
      known: () => this.known(),
      loads: () => this.hosted.loads(),
      isFull: () => fullDisk.look(),
      note,
    });
    this.placement = placement;
    this.hosted = new HostedShards({ log, hasher, checkpoint, timing, replicas: () => this.replicas, placement: this.voter });
    this.router = new Router({ self, shards: this.hosted, net, timing });
    const mail = this.mailRoad(options);
    this.replicas = new Replicas({
      ...around,
      checkpoint,
      segments,
      mail,
      placement: placementDoor(placement, self),
      onLed: (shard, host) => this.hosted.changed(shard, host),
      onWidened: (shard) => this.router.opened(shard),
      fetchSnapshot: (replica, offered) => fetchSnapshot({ stores, net, note, patience: snapshotPatience }, replica, offered),
      isHeard: (node) => node === self || performance.now() - net.lastHeardMs(node) < silentMs,
      onGone: (shard, range) => projector.forget(shard, range),
      tails: this.tails,
      storedStates: options.cold && storedStatesOf(options.cold, stores),
      trimming:
        options.cold === undefined
          ? undefined
          : {
              keptBytes: sealPolicyOf(config).keptBytes,
              bytesOf: this.bytesOf,
              readThrough: (shard) => asIndex(projector.appliedIndex(shard)),
            },
      onCommitted: () => this.pump.onCommitted(),
    });
    this.pump = this.openPump(options);
  }

  /** Nodes that this one was told of before its first view. */
  known(): readonly NodeId[] {
    return [...this.toldOf, ...this.peers.nodes()];
  }

  private mailRoad({ identity, net }: MemberOptions): MailRoad {
    return new MailRoad({
      self: identity.nodeId,
      net,
      router: this.router,
      shards: this.hosted,
      bundles: new ClusterDeployments(this.placement),
      storeBatch: async (batch: Payload) => this.payloads?.store(batch),
    });
  }

  private openPump({ config, storage, cold, metrics, fault }: MemberOptions): VisibilityPump {
    return new VisibilityPump({
      logs: () => this.hosted.logs(),
      log: storage.log,
      projector: storage.projector,
      sealed: cold?.tier,
      // Each event is counted once in the cluster: where its shard is led.
      onRecord: ({ shard, body }) => void (this.hosted.led(shard) !== undefined && countRecord(body, metrics)),
      onFault: (error) => fault("visibility", error),
      warn: (message) => config.logger.warn(message),
    });
  }
}
