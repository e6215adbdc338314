/**
 * `@hopskip/testing`: workflows in a test's own process, with virtual time, mock activities, replay
 * of histories and crashes at every await.
 */

export { HopError, RemoteError, WorkflowFailedError } from "#sdk/client/errors";
export type { LogLine, WorkflowSource } from "./code.ts";
export { CrashError, type CrashOptions, type CrashReport } from "./crash-everywhere.ts";
export { ActivityStuckError } from "./driver.ts";
export {
  type EnvironmentOptions,
  type Fault,
  type Mocks,
  ReplayDivergedError,
  type StartOptions,
  TestEnvironment,
  type WorkflowModule,
} from "./environment.ts";
export { History, type HistoryFile } from "./history.ts";
export type { MockActivity, MockContext } from "./mock-activity.ts";
export { type Outcome, type RunStatusName, RunStuckError, TestRun } from "./test-run.ts";
export type { ActivityCall } from "./virtual-worker.ts";
