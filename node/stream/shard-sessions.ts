/**
 * One worker stream in the shards that are led on this node: it joins each of them, now and as
 * leaderships come and go.
 *
 * A shard that opens is joined after the worker said what it still executes, so that nothing is
 * given out twice for want of knowing. Handles, task and query numbers are the stream's, shared by
 * its shards through one `SessionCapacity`.
 */
import type { SessionId, ShardId } from "#core/base";
import { asShardId } from "#core/base";
import { SessionCapacity } from "#core/dispatch";
import type { Hello, ServerItemInit, TaskToken, WorkerItem } from "#proto";
import type { LocalShards } from "../cluster/local-shards.ts";
import type { ShardPort } from "../shard/shard-port.ts";
import type { Timing } from "../timing.ts";

interface Joined {
  readonly port: ShardPort;
  readonly session: SessionId;
  /** Runs of the shard that the worker holds. */
  readonly handles: Set<number>;
}

export interface ShardSessionsParts {
  readonly hello: Hello;
  readonly shards: Pick<LocalShards, "led" | "ledShards">;
  readonly timing: Timing;
  /** Encodes and sends. */
  readonly send: (item: ServerItemInit) => void;
  readonly close: (reason: string) => void;
}

/** A worker that does not answer a recall is of a version that knows none, or is about to be lost. */
const recallMsMax = 1_000;

type Said = Extract<WorkerItem, { kind: "activated" | "queryAnswer" | "evicted" }>;

export class ShardSessions {
  private readonly parts: ShardSessionsParts;
  private readonly capacity: SessionCapacity;
  private readonly joined = new Map<ShardId, Joined>();
  /** Shards that wait for what the worker still executes. */
  private readonly recalled = new Map<ShardId, () => void>();
  private isDraining = false;
  private isOver = false;
  private isTurnDue = false;

  constructor(parts: ShardSessionsParts) {
    this.parts = parts;
    this.capacity = new SessionCapacity(parts.hello.activitySlots);
  }

  /** Joins what is led here now; the hello has just said what the worker holds. */
  begin(): void {
    for (const shard of this.parts.shards.ledShards()) this.join(shard, this.parts.hello.held);
  }

  /** A shard opened or closed here. */
  ledChanged(shard: ShardId, port: ShardPort | undefined): void {
    if (this.isOver) return;
    this.part(shard);
    if (port === undefined) return;
    this.stopRecall(shard);
    this.recalled.set(
      shard,
      this.parts.timing.after(recallMsMax, () => this.held(shard, [])),
    );
    this.parts.send({ kind: "recall", value: { shard } });
  }

  /** The worker's answer to a recall. */
  held(shard: ShardId, tokens: readonly TaskToken[]): void {
    if (!this.recalled.has(shard)) return;
    this.stopRecall(shard);
    this.join(shard, tokens);
  }

  sessionIn(shard: ShardId): SessionId | undefined {
    return this.joined.get(shard)?.session;
  }

  /** What the worker said of a run that it holds. Late words about a shard that is led elsewhere now change nothing. */
  said(item: Said): void {
    const { shard } = item.value;
    const joined = shard === 0 ? this.only() : this.joined.get(asShardId(shard));
    if (joined === undefined) return;
    if (item.kind === "evicted") joined.handles.delete(item.value.handle);
    joined.port.receive(joined.session, item);
    this.turnSoon();
  }

  /** What the worker said of a task, to a shard that it may not have joined. */
  ofTask(shard: ShardId, port: ShardPort, item: Extract<WorkerItem, { kind: "taskDone" | "heartbeat" }>): void {
    port.receive(this.joined.get(shard)?.session ?? (0 as SessionId), item);
    this.turnSoon();
  }

  /** The worker takes nothing new, from no shard. */
  drain(): void {
    this.isDraining = true;
    for (const { port, session } of this.joined.values()) port.receive(session, { kind: "draining", value: {} });
  }

  /** The worker may be given so many tasks from now on. */
  resize(activitySlots: number): void {
    this.capacity.activitySlots = activitySlots;
    this.turnSoon();
  }

  /** The stream is over. */
  end(): void {
    this.isOver = true;
    for (const shard of [...this.recalled.keys()]) this.stopRecall(shard);
    for (const { port, session } of this.joined.values()) port.leave(session);
    this.joined.clear();
  }

  private join(shard: ShardId, held: readonly TaskToken[]): void {
    const port = this.parts.shards.led(shard);
    if (port === undefined || this.isOver) return;
    const handles = new Set<number>();
    const link = { send: (item: ServerItemInit) => this.send(shard, handles, item), close: this.parts.close };
    const session = port.join({ ...this.parts.hello, held: [...held] }, link, this.capacity);
    this.joined.set(shard, { port, session, handles });
    if (this.isDraining) port.receive(session, { kind: "draining", value: {} });
    this.turnSoon();
  }

  /** The shard is led here no more: the worker forgets its runs, and goes on with its tasks. */
  private part(shard: ShardId): void {
    this.stopRecall(shard);
    const joined = this.joined.get(shard);
    if (joined === undefined) return;
    this.joined.delete(shard);
    joined.port.leave(joined.session);
    for (const handle of joined.handles) this.parts.send({ kind: "drop", value: { shard, handle } });
    this.capacity.forget(shard);
    this.turnSoon();
  }

  private stopRecall(shard: ShardId): void {
    this.recalled.get(shard)?.();
    this.recalled.delete(shard);
  }

  private send(shard: ShardId, handles: Set<number>, item: ServerItemInit): void {
    switch (item.kind) {
      case "activate":
        item.value.shard = shard;
        if (item.value.fromStart === true) handles.add(item.value.handle ?? 0);
        break;
      case "drop":
        item.value.shard = shard;
        handles.delete(item.value.handle ?? 0);
        break;
      case "task":
      case "query":
        item.value.shard = shard;
        break;
      default:
    }
    this.parts.send(item);
    if (item.kind === "cancelTask") this.turnSoon();
  }

  /** Workers of a version that knows one shard a node name none. */
  private only(): Joined | undefined {
    return this.joined.size === 1 ? this.joined.values().next().value : undefined;
  }

  /** A slot may be free, and a shard wait for it. */
  private turnSoon(): void {
    if (this.isTurnDue || this.capacity.owed() === undefined) return;
    this.isTurnDue = true;
    queueMicrotask(() => {
      this.isTurnDue = false;
      this.giveTurns();
    });
  }

  private giveTurns(): void {
    // Each turn takes a slot or ends the shard's waiting, so there are no more than both together.
    for (let left = this.joined.size + this.capacity.activitySlots; left > 0 && !this.isOver; left--) {
      const shard = this.capacity.owed();
      if (shard === undefined) return;
      const joined = this.joined.get(shard);
      if (joined?.port.capacityFreed(joined.session) !== true) this.capacity.rest(shard);
    }
  }
}
