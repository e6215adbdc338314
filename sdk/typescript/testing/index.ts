/**
 * `@hopskip/testing`: workflows in a test's own process, with virtual time, mock activities, replay
 * of histories and crashes at every await.
 */
export { TestEnvironment, type WorkflowModule } from "./environment.ts";
export {
  ActivityStuckError,
  CrashError,
  HopError,
  InstanceLiveError,
  MethodFailedError,
  RemoteError,
  ReplayDivergedError,
  RunNotFoundError,
  RunStuckError,
  WorkflowFailedError,
  WorkflowNotDeployedError,
} from "./errors.ts";
export { History, type HistoryFile } from "./history.ts";
export type {
  ActivityCall,
  CrashOptions,
  CrashReport,
  EnvironmentOptions,
  Fault,
  LogLine,
  MockActivity,
  MockContext,
  Mocks,
  Outcome,
  RunStatusName,
  StartOptions,
  WorkflowSource,
} from "./options.ts";
export { TestChannel, type TestChannelOptions } from "./test-channel.ts";
export { type TestConsumer, TestRun } from "./test-run.ts";
