/** A worker's stream at a node: what `node/stream/worker-stream.ts` does with it, without bytes and payload storage. */
import { asShardId, type SessionId, type ShardId } from "#core/base";
import {
  decodeServerItem,
  encodeServerItem,
  fromBytes,
  type Hello,
  type ServerItem,
  type ServerItemInit,
  toBytes,
  type WorkerItem,
} from "#proto";
import type { ShardPort } from "../../node/shard/shard-port.ts";
import { ShardSessions } from "../../node/stream/shard-sessions.ts";
import type { SimNode } from "./node.ts";

export interface WorkerRoad {
  send(item: ServerItem): void;
  close(): void;
}

export class WorkerEnd {
  workerId = "";
  private readonly node: SimNode;
  private readonly road: WorkerRoad;
  private sessions: ShardSessions | undefined;
  private readonly sent: (item: ServerItem) => void;

  /** `sent` sees what leaves, at the moment it leaves. */
  constructor(node: SimNode, road: WorkerRoad, sent: (item: ServerItem) => void) {
    this.node = node;
    this.road = road;
    this.sent = sent;
  }

  item(item: WorkerItem): void {
    const { node, sessions } = this;
    if (sessions === undefined) return item.kind === "hello" ? this.hello(item.value) : undefined;
    switch (item.kind) {
      case "activated":
      case "queryAnswer":
      case "evicted":
        return sessions.said(item);
      case "taskDone":
      case "heartbeat":
        return node.tasks.bring(item, this.workerId, (shard, port, said) => sessions.ofTask(shard, port, said));
      case "draining":
        return sessions.drain();
      case "held":
        return sessions.held(asShardId(item.value.shard), item.value.token);
      default:
    }
  }

  ledChanged(shard: ShardId, port: ShardPort | undefined): void {
    this.sessions?.ledChanged(shard, port);
  }

  sessionIn(shard: ShardId): SessionId | undefined {
    return this.sessions?.sessionIn(shard);
  }

  closed(): void {
    this.node.workers.delete(this);
    this.sessions?.end();
  }

  private hello(hello: Hello): void {
    const { node, road } = this;
    this.workerId = hello.workerId;
    this.sessions = new ShardSessions({
      hello,
      shards: node.hosted,
      timing: node.timing,
      send: (item) => this.send(item),
      close: () => road.close(),
    });
    node.workers.add(this);
    this.sessions.begin();
  }

  private send(item: ServerItemInit): void {
    if (this.node.isDead) return;
    const sent = fromBytes(decodeServerItem, toBytes(encodeServerItem, item));
    this.sent(sent);
    this.road.send(sent);
  }
}
