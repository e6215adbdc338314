/**
 * `@hopskip/runtime`: what workflows are written with. It imports nothing and runs wherever a
 * sandbox installs its engine.
 */
export type { Activities, ActivityOptions, RetryOptions } from "./activity.ts";
export { activities, activity, retryDefaults } from "./activity.ts";
export { type CallOptions, call_workflow, callWorkflow } from "./call.ts";
export { CancellationScope, shield } from "./cancellation.ts";
export { type Channel, type ChannelBatch, channel, type ReadOptions, type Reduction } from "./channel.ts";
export type { ChildHandle, ChildStart, SpawnSettings } from "./child.ts";
export { spawn } from "./child.ts";
export type { Compensation, CompensationOptions, Trigger } from "./compensation.ts";
export { compensate } from "./compensation.ts";
export { Encoded, encode } from "./encoded.ts";
export type { ActivityErrorFields, RunErrorFields } from "./errors.ts";
export {
  ActivityError,
  ActivityFailure,
  CancelledError,
  ChannelError,
  DeterminismError,
  PayloadTooLargeError,
  RunError,
  StreamDisconnectedError,
  TimeoutError,
} from "./errors.ts";
export type { WorkflowInfo } from "./info.ts";
export { workflowInfo } from "./info.ts";
export type { LogLevel } from "./log.ts";
export { log } from "./log.ts";
export type { MethodOptions } from "./message.ts";
export { method, query, signal } from "./message.ts";
export type { MethodType, QueryType, SignalType } from "./message-types.ts";
export { defineMethod, defineQuery, defineSignal } from "./message-types.ts";
export { resultOf, sendSignal } from "./other-run.ts";
export { random, uuid } from "./random.ts";
export type { SearchableValue } from "./searchable.ts";
export { searchable } from "./searchable.ts";
export { yield_chunk, yieldChunk } from "./stream.ts";
export { now, sleep } from "./time.ts";
export type { Workflow, WorkflowInput, WorkflowOutput } from "./workflow.ts";
export { durable } from "./workflow.ts";
