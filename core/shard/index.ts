/** A shard: decide, append, apply, and say what is to be done. */
export type { Checkpoint, CheckpointRow } from "./checkpoint.ts";
export type { ShardOptions } from "./context.ts";
export type { Command, Input } from "./input.ts";
export type { LiveRun } from "./live-run.ts";
export { type ShardFigures, ShardMachine } from "./shard.ts";
