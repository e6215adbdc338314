/**
 * What one worker stream can take, over all shards of the node: tasks, runs, and the numbers that
 * name them on the stream.
 *
 * The shell makes one for each stream and gives it to every machine that the worker joins. A task
 * is in it from its offer until the worker or its machine is done with it, so a shard that comes to
 * own a run of another finds there which of its tasks are executing.
 * Invariants: Core gives out no task while `tasks.size` is at `activitySlots` or above; no shard
 * waits twice.
 */
import type { ShardId, Token } from "#core/base";

export interface HeldTask {
  shard: ShardId;
  /** Gave it out, where a split made it another shard's, which has not taken it up. */
  from?: ShardId;
  readonly token: Token;
}

export class SessionCapacity {
  /** The worker may change its mind. */
  activitySlots: number;
  /** Tasks that the worker executes, by task key. */
  readonly tasks = new Map<string, HeldTask>();
  /** Runs that it holds. */
  runCount = 0;
  /** Shards that have a task for it and found no slot: the one that waits longest is first. */
  private readonly waiting = new Set<ShardId>();
  private readonly runs = new Map<ShardId, number>();
  private lastHandle = 0;
  private lastTask = 0;
  private lastQuery = 0;

  constructor(activitySlots: number) {
    this.activitySlots = activitySlots;
  }

  /** A handle is never given twice on a stream: what is late for a run's earlier leader meets nobody. */
  nextHandle(): number {
    return ++this.lastHandle;
  }

  nextTask(): number {
    return ++this.lastTask;
  }

  nextQuery(): number {
    return ++this.lastQuery;
  }

  /** Whether a task of the shard may go out now: a slot is free and no other shard has waited for it longer. */
  hasSlot(shard: ShardId): boolean {
    if (this.tasks.size >= this.activitySlots) return false;
    return this.waiting.size === 0 || this.first() === shard;
  }

  hold(key: string, shard: ShardId, token: Token): void {
    this.tasks.set(key, { shard, token });
  }

  release(key: string): void {
    this.tasks.delete(key);
  }

  /** A shard has something for the worker and found no slot. */
  wait(shard: ShardId): void {
    this.waiting.add(shard);
  }

  /** The shard took a slot: those that wait come before its next. */
  endTurn(shard: ShardId): void {
    if (this.waiting.delete(shard)) this.waiting.add(shard);
  }

  /** The shard has nothing for the worker. */
  rest(shard: ShardId): void {
    this.waiting.delete(shard);
  }

  /** The shard whose turn it is to take a free slot: it is to be stepped with `capacity-freed`, until there is none. */
  owed(): ShardId | undefined {
    return this.waiting.size === 0 || this.tasks.size >= this.activitySlots ? undefined : this.first();
  }

  /** Counts a run that begins (1) or ceases (−1) to be held. */
  countRun(shard: ShardId, change: 1 | -1): void {
    this.runs.set(shard, (this.runs.get(shard) ?? 0) + change);
    this.runCount += change;
  }

  /** The shard is led elsewhere: nothing that it gave out counts any more, since what it waited to send was never sent. */
  forget(shard: ShardId): void {
    this.waiting.delete(shard);
    this.runCount -= this.runs.get(shard) ?? 0;
    this.runs.delete(shard);
    for (const [key, task] of this.tasks) if (task.shard === shard || task.from === shard) this.tasks.delete(key);
  }

  private first(): ShardId | undefined {
    return this.waiting.values().next().value;
  }
}
