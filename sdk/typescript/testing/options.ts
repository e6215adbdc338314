/** What tests give to the kit, and what it tells them. */
import type { Failure } from "#proto";
import type { ActivityContext } from "#sdk/activity";

/** A workflow file, as a path or a `file:` URL; several; or a bundle that `hop bundle` made. */
export type WorkflowSource = string | URL | readonly (string | URL)[] | Uint8Array;

export interface LogLine {
  /** `namespace:instance` */
  readonly run: string;
  readonly level: string;
  readonly message: string;
}

/** What a mock activity gets beside its input: what an activity gets, and virtual time. */
export interface MockContext extends ActivityContext {
  /** Takes so long of virtual time: milliseconds, or text such as "5s" or "14d". Rejects when the activity is cancelled. */
  readonly sleep: (duration: number | string) => Promise<void>;
  /** Never returns by itself; rejects when the activity is cancelled. */
  readonly hang: () => Promise<never>;
  /** Virtual time, in milliseconds since 1970. */
  readonly now: () => number;
}

interface Shape {
  // A method, so that a mock may name a type of its own for what the workflow's JSON holds.
  run(input: unknown, context: MockContext): unknown;
}
/** A plain function in the place of an activity: it may return, throw, sleep, hang, and keep count. */
export type MockActivity = Shape["run"];

export type Mocks = Readonly<Record<string, MockActivity>>;

export interface EnvironmentOptions {
  /** File or files that export workflows, or a bundle that `hop bundle` made. */
  readonly workflows: WorkflowSource;
  /** What workflows call, by name. As a function, it makes them anew for each environment of `crashEverywhere`. */
  readonly activities?: Mocks | (() => Mocks);
  /** Virtual time of the begin: milliseconds since 1970, a date, or its text. Left out: 2026-01-01T00:00:00Z. */
  readonly startAt?: number | string | Date;
  /** Real milliseconds that a mock activity may take before the test fails. Left out: 5,000. */
  readonly activityMsMax?: number;
  readonly onLog?: (line: LogLine) => void;
}

export interface StartOptions {
  /** Name of the run; left out: one is made. */
  readonly instance?: string;
  /** Left out: `default`. */
  readonly namespace?: string;
  /** What happens where a run of this name is live; left out: `attach`. */
  readonly contention?: "attach" | "reject" | "queue" | "supersede";
  /** Why a live run is superseded. */
  readonly overrideReason?: string;
  /** Longest time of the run, and in the queue of its name: milliseconds, or text such as "1h". */
  readonly deadline?: number | string;
  readonly budget?: number | string;
  readonly idempotencyKey?: string;
}

/** When Core ends, and the worker lets go of its runs: what `crashEverywhere` tries one after the other. */
export interface Fault {
  /** Indices of the records behind which Core ends, where they hold events: nothing that rests on them has left. "all": behind each, when that has left. */
  readonly records?: readonly number[] | "all";
  /** Numbers of the answers of workflow code behind which its worker has lost all runs. */
  readonly answers?: readonly number[] | "all";
}

export interface CrashOptions {
  /** Core ends behind each of its records. Left out: true. */
  readonly core?: boolean;
  /** The worker loses its runs behind each of their answers. Left out: true. */
  readonly worker?: boolean;
}

/** How often it was tried. */
export interface CrashReport {
  readonly coreCrashes: number;
  readonly evictions: number;
}

/** A call of a mock activity. */
export interface ActivityCall {
  readonly activity: string;
  readonly input: unknown;
  /** From 1. */
  readonly attempt: number;
  readonly run: string;
  /** Virtual time of its begin. */
  readonly atMs: number;
}

export type RunStatusName =
  | "running"
  | "completed"
  | "failed"
  | "cancelled"
  | "terminated"
  | "timed_out"
  | "blocked"
  | "paused"
  | "compensating";

/** How a run ended. `value` is set where it completed, `failure` where it did not. */
export interface Outcome<Output = unknown> {
  readonly status: RunStatusName;
  readonly value: Output | undefined;
  readonly failure: Failure | undefined;
}
