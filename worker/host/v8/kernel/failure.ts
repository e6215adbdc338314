/** Errors to failures and back. Both directions keep type, message, stack, details and causes. */
import { ActivityError, RunError } from "#sdk/runtime";
import type { WireFailure } from "../protocol.ts";

const textMax = 16 * 1024;
const depthMax = 8;

/** What history keeps of something thrown. Never throws, whatever it is given. */
export function toFailure(thrown: unknown, depth = 0): WireFailure {
  try {
    return thrown instanceof Error ? ofError(thrown, depth) : { type: "Error", message: cut(`Thrown: ${shown(thrown)}`) };
  } catch {
    return { type: "Error", message: "The error can't be read: its own properties throw" };
  }
}

function ofError(error: Error, depth: number): WireFailure {
  const failure: WireFailure = { type: cut(text(error.name) || "Error"), message: cut(text(error.message)) };
  const stack = cleanStack(error);
  if (stack !== "") failure.stack = cut(stack);
  const details: unknown = "details" in error ? error.details : undefined;
  const json = details === undefined ? undefined : detailsJson(details);
  if (json !== undefined) failure.details = json;
  if ("nonRetryable" in error && error.nonRetryable === true) failure.nonRetryable = true;
  if (error.cause !== undefined && depth + 1 < depthMax) failure.cause = toFailure(error.cause, depth + 1);
  return failure;
}

/** The error that an activity call rejects with. */
export function toActivityError(activity: string, failure: WireFailure): ActivityError {
  const details = failure.details === undefined ? undefined : parsed(failure.details);
  const { type, message, attempts = 0 } = failure;
  return new ActivityError(activity, { type, message, details, attempts, cause: toError(failure) });
}

/** The error that a call about another run rejects with. */
export function toRunError(run: string, message: string, failure: WireFailure): RunError {
  const details = failure.details === undefined ? undefined : parsed(failure.details);
  return new RunError(run, { type: failure.type, message, details, cause: toError(failure) });
}

/** An error of the other side, as far as JSON carries it. */
export function toError(failure: WireFailure): Error {
  const error = new Error(failure.message, failure.cause === undefined ? undefined : { cause: toError(failure.cause) });
  const hidden = (value: unknown) => ({ value, writable: true, configurable: true });
  Object.defineProperty(error, "name", hidden(failure.type));
  Object.defineProperty(error, "stack", hidden(failure.stack || `${failure.type}: ${failure.message}`));
  if (failure.details !== undefined) Object.defineProperty(error, "details", hidden(parsed(failure.details)));
  return error;
}

function cleanStack(error: Error): string {
  const stack = text(error.stack);
  return stack
    .split("\n")
    .filter((line) => !/\(?hop:(kernel|seal)|^\s+at (async )?(Promise\.|new Promise)/.test(line))
    .join("\n");
}

function detailsJson(details: unknown): string | undefined {
  try {
    return JSON.stringify(details);
  } catch {
    return undefined;
  }
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return json;
  }
}

function shown(value: unknown): string {
  return typeof value === "object" && value !== null ? (JSON.stringify(value) ?? "{}") : String(value);
}

function text(value: unknown): string {
  return typeof value === "string" ? value.toWellFormed() : "";
}

function cut(value: string): string {
  return value.length <= textMax / 3 ? value : `${value.slice(0, textMax / 3).toWellFormed()} …`;
}
