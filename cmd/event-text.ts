/** Parts of events as text. */
import { toHex } from "#core/base";
import type { Failure, Payload } from "#proto";

/** A run's partition as its address. */
export const runText = (partition: string) => partition.replace(/^run\//, "");

/** Time as `2026-02-03T04:05:06.789Z`. */
export const timeText = (ms: number): string => {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? `${ms} ms` : date.toISOString();
};

export const shortHash = (hash: Uint8Array): string => toHex(hash.subarray(0, 6));

/** A payload in one line: its JSON text where it is text, its size else. */
export function payloadText(payload: Payload | undefined): string {
  if (payload === undefined) return "";
  if (payload.ref !== undefined) return `blob ${shortHash(payload.ref.sha256)} of ${payload.ref.size} bytes`;
  const { length } = payload.data;
  const shown = text(payload.data.subarray(0, summaryBytesMax + 4));
  if (length <= summaryBytesMax) return shown ?? `${length} bytes`;
  return `${(shown ?? "").slice(0, summaryBytesMax).replace(/[\ud800-\udbff]$/, "")}… (${length} bytes)`;
}

/** Of a payload in a summary: the whole of it is in the event. */
const summaryBytesMax = 200;

function text(bytes: Uint8Array): string | undefined {
  try {
    // As a stream: a character that the cut divides is no fault.
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
  } catch {
    return undefined;
  }
}

export function failureText(failure: Failure | undefined): string {
  if (failure === undefined) return "unknown failure";
  const own = failure.type === "" ? failure.message : `${failure.type}: ${failure.message}`;
  return failure.cause === undefined ? own : `${own}, caused by ${failureText(failure.cause)}`;
}
