/** Who is connected: one entry for each worker stream that said hello. */
import type { Hello } from "#proto";

export interface ConnectedWorker {
  /** Unique in one life of the node. */
  readonly session: number;
  readonly hello: Hello;
  readonly address: string;
  readonly sinceMs: number;
  /** It takes nothing new. */
  isDraining: boolean;
  close(reason: string): void;
}

export class WorkerRegistry {
  private readonly workers = new Map<number, ConnectedWorker>();

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

  /** Ends all streams: the workers come back on new ones. */
  closeAll(reason: string): void {
    for (const worker of this.list()) worker.close(reason);
  }
}
