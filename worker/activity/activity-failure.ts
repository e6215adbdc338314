/** What an activity threw, as a failure that can be recorded: bounded, with its causes. */
import { limits } from "#core/base";
import type { FailureInit } from "#proto";

const encoder = new TextEncoder();

interface Thrown {
  readonly name?: unknown;
  readonly message?: unknown;
  readonly stack?: unknown;
  readonly cause?: unknown;
  readonly details?: unknown;
  readonly nonRetryable?: unknown;
}

/** Never throws itself, whatever was thrown. */
export function failureOf(thrown: unknown, depth = 1): FailureInit {
  if (!(thrown instanceof Error) && !isErrorLike(thrown))
    return { type: "NonError", message: clip(textOf(thrown), limits.failureBytesMax) };
  const error: Thrown = thrown;
  const cause = error.cause;
  return {
    type: clip(textOf(error.name ?? "Error"), limits.nameBytesMax),
    message: clip(textOf(error.message ?? ""), limits.failureBytesMax),
    stack: typeof error.stack === "string" ? clip(error.stack, limits.failureBytesMax) : "",
    details: detailsOf(error.details),
    nonRetryable: error.nonRetryable === true,
    cause: cause === undefined || cause === null || depth >= limits.failureDepthMax ? undefined : failureOf(cause, depth + 1),
  };
}

/** A failure that the worker itself states. */
export function failure(type: string, message: string, options: { nonRetryable: boolean }): FailureInit {
  return { type, message: clip(message, limits.failureBytesMax), nonRetryable: options.nonRetryable };
}

/** Errors of another realm or library are no instances of this one's Error. */
function isErrorLike(thrown: unknown): thrown is Thrown {
  return typeof thrown === "object" && thrown !== null && "message" in thrown && "stack" in thrown;
}

function textOf(value: unknown): string {
  try {
    return typeof value === "object" && value !== null ? JSON.stringify(value) : `${value as string}`;
  } catch {
    return "A value that has no text";
  }
}

/** Details that are no JSON, or are too large to go inline, are left out: the failure itself matters more. */
function detailsOf(details: unknown): FailureInit["details"] {
  if (details === undefined) return undefined;
  try {
    const text = JSON.stringify(details);
    if (text === undefined) return undefined;
    const data = encoder.encode(text);
    return data.length <= limits.inlineBytesMax ? { data } : undefined;
  } catch {
    return undefined;
  }
}

/** At most `bytesMax` bytes of UTF-8, cut between characters. */
function clip(text: string, bytesMax: number): string {
  if (text.length * 3 <= bytesMax) return text.toWellFormed();
  const into = new Uint8Array(bytesMax);
  const { read } = encoder.encodeInto(text, into);
  return text.slice(0, read).toWellFormed();
}
