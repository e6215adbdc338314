/**
 * What workers say of tasks, to whoever leads the task's shard now.
 *
 * A worker answers where its task came from, and the shard may have moved meanwhile. The token
 * fences what is said, so it may come late or twice; it is brought again until a leader that owns
 * the run took it, because a result that is lost keeps its task waiting.
 */
import { HopError, type NodeId, type Partition, parseRunId, runPartition, type ShardId } from "#core/base";
import { taskKey } from "#core/shard";
import { encodeForwardedTask, type TaskToken, toBytes, type WorkerItem } from "#proto";
import type { LocalShards } from "../cluster/local-shards.ts";
import type { Router } from "../cluster/router.ts";
import { taskCall } from "../cluster/shard-service.ts";
import type { PeerNet } from "../peer/peer-net.ts";
import { asHopError } from "../service/status.ts";
import type { ShardPort } from "../shard/shard-port.ts";
import type { Timing } from "../timing.ts";

export type TaskItem = Extract<WorkerItem, { kind: "taskDone" | "heartbeat" }>;

/** Takes the item where the shard is led here. */
export type TakeHere = (shard: ShardId, port: ShardPort, item: TaskItem) => void;

export interface TaskRoadParts {
  readonly self: NodeId;
  readonly net: PeerNet;
  readonly router: Router;
  readonly shards: Pick<LocalShards, "led" | "ledShards">;
  readonly timing: Timing;
  readonly note: (what: string, fields: Record<string, string | number>) => void;
}

/** What was said, and how it is taken where it was said. */
interface Word {
  readonly item: TaskItem;
  readonly here: TakeHere;
}

const budgetMs = 30_000;
const retryMsMin = 10;
const retryMsMax = 500;
const callMsMax = 5_000;
/** Results on their way to other nodes. Above it, what is said is dropped, and its task offered again in time. */
const underWayMax = 10_000;

export class TaskRoad {
  private readonly parts: TaskRoadParts;
  /** The newest that was said of a kind about a delivery: a worker says its results again on each new stream, and one of them is enough. */
  private readonly underWay = new Map<string, Word>();

  constructor(parts: TaskRoadParts) {
    this.parts = parts;
  }

  bring(item: TaskItem, workerId: string, here: TakeHere): void {
    const { token } = item.value;
    const run = parseRunId(token?.run ?? "");
    // A token that names no run fences nothing and frees nothing.
    if (token === undefined || typeof run !== "string") return;
    const partition = runPartition(run);
    if (this.takeHere(partition, item, here)) return;
    // Progress that is late is of no use.
    const key = keyOf(item.kind, token);
    const isUnderWay = this.underWay.has(key);
    if (!isUnderWay && this.underWay.size >= underWayMax)
      return this.parts.note("task result dropped: too many are on their way to other nodes", { run });
    this.underWay.set(key, { item, here });
    if (!isUnderWay) void this.carry(partition, key, workerId).finally(() => this.underWay.delete(key));
  }

  private async carry(partition: Partition, key: string, workerId: string): Promise<void> {
    const { timing } = this.parts;
    const newest = () => this.underWay.get(key) as Word;
    const untilMs = timing.monotonicMs() + (newest().item.kind === "heartbeat" ? callMsMax : budgetMs);
    for (let pauseMs = retryMsMin; ; pauseMs = Math.min(pauseMs * 2, retryMsMax)) {
      let last = "no node leads its shard";
      const { item, here } = newest();
      try {
        if (this.takeHere(partition, item, here) || (await this.forward(partition, item, workerId))) return;
      } catch (error) {
        last = asHopError(error).message;
      }
      if (this.parts.router.isStopping || timing.monotonicMs() + pauseMs >= untilMs) {
        if (item.kind === "taskDone") this.parts.note("task result dropped", { partition, worker: workerId, reason: last });
        return;
      }
      await new Promise<void>((resolve) => void timing.after(pauseMs, resolve));
    }
  }

  /** The map may be behind a split: whoever owns the run here takes it. */
  private takeHere(partition: Partition, item: TaskItem, here: TakeHere): boolean {
    const { shards, router } = this.parts;
    const mapped = router.epoch === 0 ? undefined : router.place(partition).shard;
    const first = mapped === undefined ? undefined : shards.led(mapped);
    if (first?.owns(partition)) {
      here(mapped as ShardId, first, item);
      return true;
    }
    for (const shard of shards.ledShards()) {
      const port = shards.led(shard);
      if (!port?.owns(partition)) continue;
      here(shard, port, item);
      return true;
    }
    return false;
  }

  private async forward(partition: Partition, item: TaskItem, workerId: string): Promise<boolean> {
    const { net, router, self } = this.parts;
    const place = router.place(partition);
    const node = router.leaderOf(place);
    if (node === undefined || node === self) throw new HopError("NOT_LEADER", `shard ${place.shard} has no leader`);
    const said = item.kind === "taskDone" ? { done: item.value } : { heartbeat: item.value };
    await net.call(node, taskCall, toBytes(encodeForwardedTask, { shard: place.shard, worker: workerId, ...said }), {
      timeoutMs: callMsMax,
    });
    return true;
  }
}

const keyOf = (kind: TaskItem["kind"], token: TaskToken) => `${kind} ${taskKey(token.run, token)} ${token.epoch}`;
