/**
 * Nodes with blobs, logs and object storage, for tests of their collection: stores on disk and links
 * between them are real, logs and object storage are in memory, and time passes when a test says so.
 */

import { asIndex, asNodeId, asShardId, asTerm, toHex } from "#core/base";
import type { ClusterView, NodeStanding } from "#core/placement";
import { EventKind, encodeEvent, encodeRecord, encodeRunStarted, toBytes } from "#proto";
import { MemoryBucket, MemoryLogStore, MemoryObjectStore } from "#store";
import { BlobCollector } from "../../node/cluster/blob-collector.ts";
import { BlobObjects } from "../../node/cluster/blob-objects.ts";
import { BlobRemoval } from "../../node/cluster/blob-removal.ts";
import { type BlobNode, graceMs, Town } from "../../node/cluster/blob-town-fixture.ts";
import { BlobUploads } from "../../node/seal/blob-uploads.ts";
import { noteBlobs } from "../../node/seal/event-blobs.ts";
import { until } from "../until.ts";

export const cluster = "hop_00000000000000bb";
export const shard = asShardId(1);
/** By so much the nodes' clocks are behind their start, so that no command from before it is open. */
const aheadMs = 600_000;

export class CollectedTown implements Disposable {
  readonly bucket = new MemoryBucket();
  readonly objects = new MemoryObjectStore(this.bucket);
  readonly town: Town;
  readonly logs: MemoryLogStore[];
  readonly collector: BlobCollector;
  /** What placement says. */
  standings: NodeStanding[];
  mapEpoch = 1;
  readonly deployed: Uint8Array[] = [];
  private startedMs = 0;

  constructor(count: number, options: { readonly isStored: boolean } = { isStored: true }) {
    const stored = options.isStored ? new BlobObjects(this.objects, cluster) : undefined;
    this.town = new Town(count, count, stored);
    this.logs = this.town.nodes.map(() => new MemoryLogStore());
    this.standings = this.town.nodes.map(() => "member");
    const timing = { wallMs: () => Date.now() + this.startedMs, monotonicMs: () => performance.now() + this.startedMs };
    for (const [i, { peer, store }] of this.town.nodes.entries())
      new BlobRemoval({ net: peer.net, store, log: this.log(i + 1), timing, graceMs: aheadMs + graceMs });
    this.startedMs = aheadMs;
    const { net } = this.town.node(1).peer;
    const view = () => this.view();
    this.collector = new BlobCollector({
      net,
      placement: {
        leads: true,
        get view() {
          return view();
        },
      },
      stored,
      timing: { ...timing, after: () => () => {} },
      graceMs,
      note: () => {},
    });
  }

  log(node: number): MemoryLogStore {
    return this.logs[node - 1] as MemoryLogStore;
  }

  node(id: number): BlobNode {
    return this.town.node(id);
  }

  /** An event that names the blob, in the logs of `nodes`. */
  async append(sha256: Uint8Array, nodes: readonly number[]): Promise<void> {
    const payload = toBytes(encodeRunStarted, { input: { ref: { sha256, size: 1 } } });
    const event = toBytes(encodeEvent, { partition: "run/default:a", kind: EventKind.runStarted, payload });
    const data = toBytes(encodeRecord, { event: [event] });
    for (const node of nodes) {
      const log = this.log(node);
      const index = asIndex(log.lastIndex(shard) + 1);
      log.append(shard, [{ index, term: asTerm(1), kind: "data", data }]);
      log.kick(true);
      await until(() => log.durableIndex(shard) >= index);
    }
  }

  /** What a node's log has goes to object storage, blobs first, and the log forgets it. */
  async seal(node: number): Promise<void> {
    const log = this.log(node);
    const through = log.durableIndex(shard);
    const named = new Set<string>();
    for await (const { body } of log.scan(shard, asIndex(1))) if (body.length > 0) noteBlobs(body, named);
    const blob = (sha256: Uint8Array) => this.node(node).blobs.get(sha256);
    await new BlobUploads({ cluster, objects: this.objects, blob }).ensure(named);
    log.compact(shard, through);
    log.release(shard, through);
  }

  /** Nothing was touched for `ms`. */
  async pass(ms: number): Promise<void> {
    this.town.passedMs += ms;
    for (const node of this.town.nodes) await node.age(ms);
  }

  async copies(sha256: Uint8Array): Promise<number> {
    return (await this.town.copies(sha256)).length;
  }

  isStored(sha256: Uint8Array): boolean {
    return this.bucket.objects.has(`${cluster}/blob/${toHex(sha256)}`);
  }

  [Symbol.dispose](): void {
    this.town[Symbol.dispose]();
  }

  private view(): ClusterView {
    const nodes = this.standings.map((standing, i) => ({
      node: asNodeId(i + 1),
      info: { peer: "", grpc: "", http: "", zone: "", version: "", protocol: 0, disk: "" },
      standing,
      replacedBy: undefined,
      joinedMs: 0,
      sinceMs: 0,
      version: 1,
    }));
    const types = new Map(
      this.deployed.map((bundle, i) => {
        const deployed = { bundle, version: 1, deployedMs: 0, identity: undefined };
        return [`t${i}`, { ...deployed, type: `t${i}`, versions: [deployed], previous: 0, ramp: undefined }];
      }),
    );
    return {
      clusterId: cluster,
      version: 1,
      mapEpoch: this.mapEpoch as ClusterView["mapEpoch"],
      replicationWanted: nodes.length,
      replicationSet: undefined,
      nodes: new Map(nodes.map((each) => [each.node, each])),
      placement: undefined,
      shards: new Map(),
      ranges: [],
      retired: new Map(),
      deployments: new Map([["default", { namespace: "default", version: 1, types, changedIn: 1 }]]),
      entries: new Map(),
      removedEntries: [],
    };
  }
}
