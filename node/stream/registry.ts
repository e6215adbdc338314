/** Who is connected: one entry for each worker stream that said hello. */
import type { SessionId, ShardId } from "#core/base";
import type { Hello } from "#proto";
import type { ShardPort } from "../shard/shard-port.ts";

export interface ConnectedWorker {
  /** Unique in one life of the node. */
  readonly session: number;
  readonly hello: Hello;
  readonly address: string;
  readonly sinceMs: number;
  /** It takes nothing new. */
  isDraining: boolean;
  close(reason: string): void;
  /** A shard opened or closed on this node. */
  ledChanged(shard: ShardId, port: ShardPort | undefined): void;
  /** Its session in a shard of this node. */
  sessionIn(shard: ShardId): SessionId | undefined;
}

export class WorkerRegistry {
  private readonly workers = new Map<number, ConnectedWorker>();
  private lastSession = 0;

  /** Number for the next stream. */
  nextSession(): number {
    return ++this.lastSession;
  }

  add(worker: ConnectedWorker): void {
    this.workers.set(worker.session, worker);
  }

  remove(session: number): void {
    this.workers.delete(session);
  }

  get size(): number {
    return this.workers.size;
  }

  list(): ConnectedWorker[] {
    return [...this.workers.values()];
  }

  /** A shard opened or closed on this node: every worker joins it, or leaves it. */
  ledChanged(shard: ShardId, port: ShardPort | undefined): void {
    for (const worker of this.list()) worker.ledChanged(shard, port);
  }

  /** Session in a shard of a worker by its own id; of its newest stream where it has several. */
  sessionOf(workerId: string, shard: ShardId): SessionId | undefined {
    let found: SessionId | undefined;
    if (workerId === "") return found;
    for (const worker of this.workers.values()) if (worker.hello.workerId === workerId) found = worker.sessionIn(shard) ?? found;
    return found;
  }

  /** Ends all streams: the workers come back on new ones. */
  closeAll(reason: string): void {
    for (const worker of this.list()) worker.close(reason);
  }
}
