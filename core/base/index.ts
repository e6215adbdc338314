/** Vocabulary of Core: names, numbers, clocks, bounds, refusals, effects. */
export { assert, InvariantError, present, unreachable } from "./assert.ts";
export { bytesEqual, fromHex, noBytes, putU64, toHex } from "./bytes.ts";
export { readDuration, unitMs } from "./duration.ts";
export type { ActivateEffect, Barrier, Effect, ReplayEffect, Reply, Started, TaskEffect, Token } from "./effect.ts";
export { now } from "./effect.ts";
export type { Reason, Rejection } from "./errors.ts";
export { doIfAvailable, errorText, HopError, ifAvailable, isUnavailable, reasons } from "./errors.ts";
export type { Timed } from "./heap.ts";
export { TimerHeap } from "./heap.ts";
export type { Hlc } from "./hlc.ts";
export { compareHlc, HlcClock, logicalMax, packHlc, unpackHlc } from "./hlc.ts";
export type { Epoch, Index, NodeId, Partition, RequestId, RunId, Seq, SessionId, ShardId, Term } from "./ids.ts";
export {
  addressText,
  asIndex,
  asNodeId,
  asRequestId,
  asSeq,
  asSessionId,
  asShardId,
  asTerm,
  channelPartition,
  firstDataShard,
  instanceOf,
  isCarriedByCore,
  isChannel,
  isKey,
  isSchedule,
  keyPartition,
  nameProblem,
  namespaceOf,
  namespaceProblem,
  parseAddress,
  parseRunId,
  placementShard,
  type RunAddress,
  runOf,
  runPartition,
  schedulePartition,
  utf8Bytes,
} from "./ids.ts";
export type { Key, KeyRange } from "./key.ts";
export { inRange, keyMax, keyOfDigest, keyText, overlaps, rangeText, wholeRange } from "./key.ts";
export { limits } from "./limits.ts";
export type { Hasher, LogWriter, SavedState, StateReader, ZoneReader } from "./ports.ts";
export { Prng, seedOf } from "./prng.ts";
