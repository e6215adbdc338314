/** What the test kit throws. Each message says what was tried, and what is to be done. */
export {
  errorOf,
  HopError,
  InstanceLiveError,
  MethodFailedError,
  RemoteError,
  RunNotFoundError,
  WorkflowFailedError,
  WorkflowNotDeployedError,
} from "#sdk/client/errors";

/** The run will not end: what it waits for never happens. */
export class RunStuckError extends Error {
  override name = "RunStuckError";
}

/** A mock activity that takes real time without end. */
export class ActivityStuckError extends Error {
  override name = "ActivityStuckError";
}

/** The history holds other operations than the code asks for. */
export class ReplayDivergedError extends Error {
  override name = "ReplayDivergedError";
}

/** What a crash changed, and must not have. */
export class CrashError extends Error {
  override name = "CrashError";
}
