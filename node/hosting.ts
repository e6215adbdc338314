/** What a member hosts: its replicas and placement's, and the road to everybody else's. */
import { asNodeId, type Hasher } from "#core/base";
import { MailRoad } from "./cluster/mail.ts";
import { Placement } from "./cluster/placement.ts";
import { Router } from "./cluster/router.ts";
import { KnownPeers } from "./known-peers.ts";
import type { MemberOptions } from "./member.ts";
import { countRecord } from "./observe/record-figures.ts";
import type { PeerNet } from "./peer/peer-net.ts";
import { HostedShards } from "./replica/hosted-shards.ts";
import { LocalVoter } from "./replica/local-voter.ts";
import { placementDoor } from "./replica/placement-door.ts";
import { PlacementReplica } from "./replica/placement-replica.ts";
import { Replicas } from "./replica/replicas.ts";
import type { SnapshotStores } from "./replica/snapshot.ts";
import { fetchSnapshot } from "./replica/snapshot-road.ts";
import type { Note } from "./shard/shard-host.ts";
import { realTiming } from "./timing.ts";
import { VisibilityPump } from "./visibility-pump.ts";

const hasher: Hasher = {
  sha256(data, out) {
    Bun.SHA256.hash(data, out);
  },
};
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

  constructor(options: MemberOptions) {
    const { config, identity, storage, net } = options;
    const { log, checkpoint, segments, projector } = storage;
    const self = identity.nodeId;
    const timing = realTiming;
    const note: Note = (level, what, fields) => config.logger[level](what, fields);
    this.note = note;
    const stores = { log, checkpoint, hasher, projector };
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
    this.peers = new KnownPeers(config.dataDir, self, net);
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
      known: () => [...options.known, ...this.peers.nodes()],
      loads: () => this.hosted.loads(),
      note,
    });
    this.placement = placement;
    this.hosted = new HostedShards({ log, hasher, checkpoint, timing, replicas: () => this.replicas, placement: this.voter });
    this.router = new Router({ self, shards: this.hosted, net, timing });
    const mail = new MailRoad({ self, net, router: this.router, shards: this.hosted });
    this.replicas = new Replicas({
      ...around,
      checkpoint,
      segments,
      mail,
      placement: placementDoor(placement, self),
      onLed: (shard, host) => this.hosted.changed(shard, host),
      fetchSnapshot: (replica, offered) => fetchSnapshot({ stores, net, note }, replica, offered),
      isHeard: (node) => node === self || performance.now() - net.lastHeardMs(node) < silentMs,
      onGone: (shard, range) => projector.forget(shard, range),
      onCommitted: () => this.pump.onCommitted(),
    });
    this.pump = this.openPump(options);
  }

  private openPump({ config, storage, metrics, fault }: MemberOptions): VisibilityPump {
    return new VisibilityPump({
      logs: () => this.hosted.logs(),
      log: storage.log,
      projector: storage.projector,
      // Each event is counted once in the cluster: where its shard is led.
      onRecord: ({ shard, body }) => void (this.hosted.led(shard) !== undefined && countRecord(body, metrics)),
      onFault: (error) => fault("visibility", error),
      warn: (message) => config.logger.warn(message),
    });
  }
}
