/** A shard: decide, append, apply, and say what is to be done. */
export { isRemote, knownKinds } from "./activation.ts";
export { changeOf, type Leadership } from "./changes.ts";
export type { Checkpoint, CheckpointRow } from "./checkpoint.ts";
export { verbs } from "./contention.ts";
export type { AppliedChange, HeaderAsOf, ShardOptions } from "./context.ts";
export type { DueHistory } from "./expiry.ts";
export { bornHeader, decodeHeader, encodeHeader, type SavedShard, type ShardBirth } from "./header.ts";
export { type Command, type Input, type LetterCommand, mayAppend, partitionOfCommand, ticketOf } from "./input.ts";
export type { LiveRun } from "./live-run.ts";
export { type Reunited, signalsTo } from "./reunion.ts";
export { digestOf, type HistoryEnd, type Sending, type ShardFigures, ShardMachine } from "./shard.ts";
export { taskKey } from "./tasks.ts";
export { disconnectMs } from "./waits.ts";
