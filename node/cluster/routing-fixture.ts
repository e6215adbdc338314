/** Nodes that route to scripted shards over real links. */
import { asNodeId, asShardId, type Epoch, keyMax, type NodeId, type ShardId } from "#core/base";
import type { Command } from "#core/shard";
import type { Identity } from "#proto";
import { TestPeer } from "../peer/peer-fixture.ts";
import type { ShardPort } from "../shard/shard-port.ts";
import { realTiming, type Timing } from "../timing.ts";
import type { LedChanged, LocalShards } from "./local-shards.ts";
import { Router } from "./router.ts";
import { ScriptedShard } from "./scripted-shard-fixture.ts";
import { ShardMap, type ShardPlace } from "./shard-map.ts";
import { ShardService } from "./shard-service.ts";

export const ada: Identity = { issuer: "local", subject: "ada", verified: true, causeSeq: 0 };
export const asking = { identity: ada, epoch: 0 };
export const signal = (name = "go"): Command => ({ kind: "signal", run: "default:a" as never, name, payload: undefined, id: "" });

export class LedShards implements LocalShards {
  readonly ports = new Map<ShardId, ShardPort>();
  onLedChanged: LedChanged = () => {};

  led(shard: ShardId): ShardPort | undefined {
    return this.ports.get(shard);
  }

  ledShards(): ShardId[] {
    return [...this.ports.keys()];
  }

  replicas(): ShardId[] {
    return this.ledShards();
  }

  open(shard: ShardId, port: ShardPort): void {
    this.ports.set(shard, port);
    this.onLedChanged(shard, port);
  }

  close(shard: ShardId): void {
    this.ports.delete(shard);
    this.onLedChanged(shard, undefined);
  }
}

export class RoutingNode implements Disposable {
  readonly peer: TestPeer;
  readonly shards = new LedShards();
  readonly router: Router;
  readonly self: NodeId;

  constructor(id: number, timing: Timing = realTiming) {
    this.self = asNodeId(id);
    this.peer = new TestPeer(id);
    const { net } = this.peer;
    this.router = new Router({ self: this.self, shards: this.shards, net, timing });
    new ShardService({ net, shards: this.shards, router: this.router, sessionOf: () => undefined });
  }

  /** Leads the shard from now on. */
  lead(shard = 1, port = new ScriptedShard()): ScriptedShard {
    this.shards.open(asShardId(shard), port);
    return port;
  }

  [Symbol.dispose](): void {
    this.router.close();
    this.peer.net.close();
  }
}

/** Nodes 1 … `count` that know where the others are. */
export function routingNodes(count: number): RoutingNode[] & Disposable {
  const nodes = Array.from({ length: count }, (_, i) => new RoutingNode(i + 1));
  for (const { peer } of nodes) peer.meet(...nodes.map((each) => each.peer).filter((each) => each !== peer));
  return Object.assign(nodes, {
    [Symbol.dispose]: () => {
      for (const node of nodes) node[Symbol.dispose]();
    },
  });
}

/** One shard over all keys, led by a node; 0 = by none. */
export function oneShard(leader: number, epoch = 1, leaseEpoch = epoch): ShardMap {
  const place: ShardPlace = {
    shard: asShardId(1),
    first: 0,
    last: keyMax,
    leader: leader === 0 ? undefined : asNodeId(leader),
    leaseEpoch,
  };
  return new ShardMap(epoch as Epoch, [place]);
}
