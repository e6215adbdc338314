/** Vocabulary of Core: names, numbers, clocks, bounds, refusals, effects. */
export { assert, InvariantError, present, unreachable } from "./assert.ts";
export { bytesEqual, fromHex, noBytes, putU64, toHex } from "./bytes.ts";
export type { ActivateEffect, Barrier, Effect, ReplayEffect, Reply, TaskEffect, Token } from "./effect.ts";
export { now } from "./effect.ts";
export type { Reason, Rejection } from "./errors.ts";
export { HopError, reasons } from "./errors.ts";
export type { Timed } from "./heap.ts";
export { TimerHeap } from "./heap.ts";
export type { Hlc } from "./hlc.ts";
export { compareHlc, HlcClock, logicalMax, packHlc, unpackHlc } from "./hlc.ts";
export type { Epoch, Index, Partition, RequestId, RunId, Seq, SessionId, ShardId, Term } from "./ids.ts";
export {
  asIndex,
  asRequestId,
  asSeq,
  asSessionId,
  asShardId,
  asTerm,
  instanceOf,
  nameProblem,
  namespaceOf,
  namespaceProblem,
  parseRunId,
  runOf,
  runPartition,
  utf8Bytes,
} from "./ids.ts";
export { limits } from "./limits.ts";
export type { Hasher, LogWriter, StateReader } from "./ports.ts";
export { Prng, seedOf } from "./prng.ts";
