/**
 * The port between this package and the sandbox that runs it. Not part of the public API.
 *
 * A sandbox installs its engine before any workflow code runs. Elsewhere (in a client, in
 * activity code, in a test of plain functions) the package can be imported and everything but
 * its errors and types says that it needs a run.
 */
import type { ActivityOptions } from "./activity.ts";
import type { ChildHandle, SpawnSettings } from "./child.ts";
import type { Trigger } from "./compensation.ts";
import { DeterminismError } from "./errors.ts";
import type { WorkflowInfo } from "./info.ts";
import type { LogLevel } from "./log.ts";

export interface ChildPort {
  signal(name: string, payload: unknown): Promise<void>;
  cancel(reason: string): Promise<void>;
}

export interface EngineScope {
  run<T>(work: () => T | Promise<T>): Promise<T>;
  cancel(reason: string): void;
  isCancelled(): boolean;
}

/** What a read of a channel is given; with a reducer, `value` in place of messages. */
export interface ChannelRead {
  readonly offset: number;
  readonly count: number;
  readonly missed: number;
  readonly closed: boolean;
  readonly messages: readonly unknown[];
  readonly value?: unknown;
}

export interface ChannelReadSettings {
  /** 0 = no bound. */
  readonly max: number;
  readonly lingerMs: number;
  readonly timeoutMs: number | undefined;
}

export interface Engine {
  activity(name: string, input: unknown, options: ActivityOptions | undefined): Promise<unknown>;
  /** A durable timer; `ms` is a whole number from 0 on. */
  timer(ms: number): Promise<void>;
  signal(name: string, timeoutMs: number | undefined): Promise<unknown>;
  /** `address` is `namespace:instance`, or an instance of the run's own namespace. */
  sendSignal(address: string, name: string, payload: unknown): Promise<void>;
  /** `value` is JSON text. */
  searchable(name: string, value: string): void;
  yieldChunk(chunk: unknown): Promise<void>;
  /** `address` is `namespace:name`, or the name of a channel of the run's own namespace. */
  sendChannel(address: string, value: unknown): Promise<void>;
  readChannel(address: string, settings: ChannelReadSettings): Promise<ChannelRead>;
  /** The next read is given this first. */
  unread(address: string, read: ChannelRead): void;
  resultOf(address: string): Promise<unknown>;
  /** `propagates`: a cancellation of the own run is told to the other one. */
  callWorkflow(address: string, method: string, input: unknown, propagates: boolean): Promise<unknown>;
  /** Registers an undo; what it returns takes it back, and says whether it was still to be taken back. */
  compensate(name: string, input: unknown, trigger: Trigger, options: ActivityOptions | undefined): () => boolean;
  query(name: string, answer: (input: unknown) => unknown): void;
  method(name: string, handler: (input: unknown) => unknown, validate: ((input: unknown) => unknown) | undefined): void;
  nowMs(): number;
  random(): number;
  uuid(): string;
  log(level: LogLevel, parts: readonly unknown[]): void;
  /** `workflow` is a name, or what `durable` made. */
  spawn(workflow: unknown, input: unknown, settings: SpawnSettings): Pick<ChildHandle, "run" | "started" | "result"> & ChildPort;
  shield<T>(work: () => T | Promise<T>): Promise<T>;
  /** Of `what`, for errors. */
  openScope(what: string): EngineScope;
  info(): WorkflowInfo;
}

let installed: Engine | undefined;

/** The sandbox's engine. `what` names the call, for the error outside of a sandbox. */
export function engine(what: string): Engine {
  if (installed === undefined) {
    throw new DeterminismError(`Cannot use ${what} here: it works only inside a workflow, that is in a function given to durable()`);
  }
  return installed;
}

export function install(engine: Engine): void {
  installed = engine;
}
