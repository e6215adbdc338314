/**
 * A shard as a state machine: `step(input)` decides, appends and applies, and returns what the
 * shell is to do. It looks at nothing but its inputs and the ports it was given, so equal inputs
 * give equal bytes and effects on every machine.
 */
import type { Effect, Partition } from "#core/base";
import { unreachable } from "#core/base";
import type { DescribeReply } from "#proto";
import { onActivated, onEvicted, onReplayFailed } from "./activation.ts";
import { type Checkpoint, capture, encodeState, evictIdle, finishRecovery, putBack, recover, saved } from "./checkpoint.ts";
import { onCommand, onRequestGone } from "./commands.ts";
import { ShardContext, type ShardOptions } from "./context.ts";
import { pump } from "./delivery.ts";
import { describe } from "./describe.ts";
import type { Input } from "./input.ts";
import type { LiveRun } from "./live-run.ts";
import { onQueryAnswered } from "./queries.ts";
import { onHeartbeat, onTaskDone } from "./tasks.ts";
import { arm, onTick } from "./timers.ts";
import { onGone, onJoined } from "./workers.ts";

/** Figures of a shard, for metrics. */
export interface ShardFigures {
  readonly residentRuns: number;
  readonly readyTasks: number;
  readonly sessions: number;
  readonly unassignedRuns: number;
  readonly lastIndex: number;
  readonly dirtyRuns: number;
  readonly timers: number;
}

export class ShardMachine {
  private readonly ctx: ShardContext;

  constructor(options: ShardOptions) {
    this.ctx = new ShardContext(options);
  }

  step(input: Input): Effect[] {
    const { ctx } = this;
    ctx.begin(input.nowMs);
    dispatch(ctx, input);
    for (const live of ctx.takeTouched()) pump(ctx, live);
    ctx.seal();
    arm(ctx);
    return ctx.effects;
  }

  /** Folds in one record of the log, in index order; before the first step. */
  recover(index: number, body: Uint8Array): void {
    recover(this.ctx, index, body);
  }

  /**
   * Ends the recovery: timers are armed and what was under way goes on.
   *
   * `nowMs` may not be below the highest time that was ever appended (`clockMs`, saved with each checkpoint).
   */
  finishRecovery(nowMs: number, appliedIndex: number): Effect[] {
    if (appliedIndex > this.ctx.lastIndex) this.ctx.lastIndex = appliedIndex as typeof this.ctx.lastIndex;
    return finishRecovery(this.ctx, nowMs);
  }

  /** Takes up to `limit` changed states for a checkpoint. */
  capture(limit: number): Checkpoint {
    return capture(this.ctx, limit);
  }

  /** The latest checkpoint is saved: its runs may leave memory. */
  saved(): void {
    saved(this.ctx);
  }

  putBack(checkpoint: Checkpoint): void {
    putBack(this.ctx, checkpoint);
  }

  /** Drops idle, saved runs from memory. */
  evictIdle(nowMs: number): Effect[] {
    this.ctx.begin(nowMs);
    evictIdle(this.ctx);
    this.ctx.seal();
    return this.ctx.effects;
  }

  describe(partition: Partition): DescribeReply | undefined {
    const live = this.ctx.find(partition);
    return live === undefined ? undefined : describe(this.ctx, live, this.ctx.options.hasher);
  }

  /** Where the run's history lies: [firstSeq of its partition, size) and the last record's index. */
  historyEnd(partition: Partition): { size: number; lastIndex: number; closed: boolean } | undefined {
    const live = this.ctx.find(partition);
    if (live === undefined) return undefined;
    return { size: live.chain.size, lastIndex: live.chain.lastIndex, closed: live.run.closedMs > 0 };
  }

  /** Highest time in the log: the shell's clock starts above it. */
  get clockMs(): number {
    return this.ctx.clock.timeMs;
  }

  get lastIndex(): number {
    return this.ctx.lastIndex;
  }

  figures(): ShardFigures {
    const { runs, ready, pool, unassigned, lastIndex, dirty, timers } = this.ctx;
    return {
      residentRuns: runs.size,
      readyTasks: ready.size,
      sessions: pool.sessions.size,
      unassignedRuns: unassigned.size,
      lastIndex,
      dirtyRuns: dirty.size,
      timers: timers.size,
    };
  }

  /** Encoded states of the runs in memory, by partition: what two machines compare. */
  *states(): IterableIterator<[Partition, Uint8Array]> {
    for (const live of this.ctx.runs.values()) if (live.chain.size > 0) yield [live.partition, encodeState(live)];
  }

  /** For checkers: the runs in memory. Read only. */
  *liveRuns(): IterableIterator<LiveRun> {
    yield* this.ctx.runs.values();
  }
}

function dispatch(ctx: ShardContext, input: Input): void {
  switch (input.kind) {
    case "command":
      return onCommand(ctx, input.request, input.identity, input.command);
    case "request-gone":
      return onRequestGone(ctx, input.request);
    case "worker-joined":
      return onJoined(ctx, input.session, input.hello);
    case "worker-gone":
      return onGone(ctx, input.session);
    case "draining": {
      const session = ctx.pool.sessions.get(input.session);
      if (session !== undefined) session.draining = true;
      return;
    }
    case "activated":
      return onActivated(ctx, input.session, input.message);
    case "task-done":
      return onTaskDone(ctx, input.session, input.message);
    case "heartbeat":
      return onHeartbeat(ctx, input.session, input.message);
    case "query-answered":
      return onQueryAnswered(ctx, input.message);
    case "evicted":
      return onEvicted(ctx, input.session, input.handle);
    case "replay-failed":
      return onReplayFailed(ctx, input.session, input.handle, input.activation);
    case "tick":
      return onTick(ctx);
    default:
      return unreachable(input);
  }
}
