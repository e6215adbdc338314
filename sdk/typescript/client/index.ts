/** `@hopskip/client`: start workflows, talk to runs, read their histories. */
export {
  ChannelClient,
  type ChannelDescription,
  ChannelHandle,
  type ChannelOptions,
  type MessagesOptions,
} from "./channels.ts";
export { type ClientOptions, HopClient, type StartedSignal, type StartOptions } from "./client.ts";
export { ClusterClient, type ProgressOf } from "./cluster-client.ts";
export {
  errorOf,
  type FailedStatus,
  HopError,
  InstanceLiveError,
  MethodFailedError,
  RemoteError,
  RunNotFoundError,
  UnavailableError,
  WorkflowFailedError,
  WorkflowNotDeployedError,
} from "./errors.ts";
export type { MethodType, QueryType, SignalType } from "./message-types.ts";
export { type Outcome, type StatusName, statusName } from "./outcome.ts";
export { payloadBytesMax } from "./payload.ts";
export { type Chunk, type HistoryOptions, RunHandle, type StreamOptions, type WaitOptions } from "./run-handle.ts";
export {
  type Backfill,
  type Overlap,
  type PreviewedTime,
  ScheduleClient,
  ScheduleHandle,
  type ScheduleOptions,
  type ScheduleState,
  type ScheduleTimes,
} from "./schedules.ts";
export type { Answer, Ask, AskKind, ConnectionState } from "./session.ts";
export type { InputOf, OutputOf, Workflow, WorkflowRef } from "./workflow.ts";
