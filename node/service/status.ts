/**
 * Refusals on the wire: `HopError` → gRPC status and `ErrorDetail`, and back. The only place
 * that knows which status belongs to which reason.
 *
 * The detail travels in the trailing metadata `hopskip-error-bin`. Its text is bounded, because
 * peers bound the size of headers.
 */
import { Metadata, type ServiceError, type StatusObject, status } from "@grpc/grpc-js";
import type { Reason, Rejection } from "#core/base";
import { HopError, InvariantError, reasons } from "#core/base";
import type { ErrorDetail, ErrorDetailInit } from "#proto";
import { CodecError, decodeErrorDetail, encodeErrorDetail, fromBytes, toBytes } from "#proto";

export const errorDetailKey = "hopskip-error-bin";
const detailBytesMax = 2048;
const statusTextBytesMax = 512;

const codes: Record<Reason, status> = {
  BAD_REQUEST: status.INVALID_ARGUMENT,
  UNAUTHENTICATED: status.UNAUTHENTICATED,
  RUN_NOT_FOUND: status.NOT_FOUND,
  SCHEDULE_NOT_FOUND: status.NOT_FOUND,
  SCHEDULE_EXISTS: status.ALREADY_EXISTS,
  CHANNEL_NOT_FOUND: status.NOT_FOUND,
  CHANNEL_EXISTS: status.ALREADY_EXISTS,
  CHANNEL_CLOSED: status.FAILED_PRECONDITION,
  WORKFLOW_NOT_DEPLOYED: status.NOT_FOUND,
  QUERY_NOT_FOUND: status.NOT_FOUND,
  QUERY_FAILED: status.FAILED_PRECONDITION,
  ANSWER_NOT_KEPT: status.FAILED_PRECONDITION,
  BLOB_NOT_FOUND: status.NOT_FOUND,
  NODE_NOT_FOUND: status.NOT_FOUND,
  SHARD_NOT_FOUND: status.NOT_FOUND,
  DEAD_LETTER_NOT_FOUND: status.NOT_FOUND,
  ENTRY_NOT_FOUND: status.NOT_FOUND,
  INSTANCE_LIVE: status.ALREADY_EXISTS,
  IDEMPOTENCY_CONFLICT: status.ALREADY_EXISTS,
  VERSION_CONFLICT: status.FAILED_PRECONDITION,
  SHARD_BUSY: status.FAILED_PRECONDITION,
  ALREADY_MEMBER: status.ALREADY_EXISTS,
  RUN_CLOSED: status.FAILED_PRECONDITION,
  HISTORY_EXPIRED: status.FAILED_PRECONDITION,
  RUN_QUEUED: status.FAILED_PRECONDITION,
  RUN_BLOCKED: status.FAILED_PRECONDITION,
  // Not RESOURCE_EXHAUSTED: generic clients retry that, and this never gets better.
  PAYLOAD_TOO_LARGE: status.INVALID_ARGUMENT,
  FENCED: status.FAILED_PRECONDITION,
  BUFFER_FULL: status.RESOURCE_EXHAUSTED,
  NO_SPACE: status.RESOURCE_EXHAUSTED,
  NOT_A_MEMBER: status.FAILED_PRECONDITION,
  FOREIGN_CLUSTER: status.FAILED_PRECONDITION,
  NOT_LEADER: status.UNAVAILABLE,
  STALE_EPOCH: status.ABORTED,
  BUDGET_EXPIRED: status.DEADLINE_EXCEEDED,
  STORE_UNAVAILABLE: status.UNAVAILABLE,
  HASH_MISMATCH: status.DATA_LOSS,
  INTERNAL: status.INTERNAL,
};

export const codeOf = (reason: Reason): status => codes[reason];

/** Anything thrown, as a refusal. What is not one becomes INTERNAL and tells nothing of the inside. */
export function asHopError(error: unknown): HopError {
  if (error instanceof HopError) return error;
  if (error instanceof CodecError) return new HopError("BAD_REQUEST", error.message, { cause: error });
  const kind = error instanceof InvariantError ? "An invariant does not hold" : "The request failed for a reason of the node's own";
  return new HopError("INTERNAL", `${kind}; its log says more`, { cause: error });
}

export function toDetail(error: HopError | Rejection): ErrorDetailInit {
  const reason = "reason" in error ? error.reason : error.reject;
  return { reason, message: clip(error.message, detailBytesMax), retryAfterMs: error.retryAfterMs ?? 0, epoch: error.epoch ?? 0 };
}

/** What a grpc-js handler hands to its callback, or emits as `error` on a stream. */
export function toStatus(error: HopError): StatusObject & Error {
  const metadata = new Metadata();
  metadata.set(errorDetailKey, Buffer.from(toBytes(encodeErrorDetail, toDetail(error))));
  return Object.assign(new Error(error.message), {
    code: codes[error.reason],
    details: clip(error.message, statusTextBytesMax),
    metadata,
  });
}

/** The refusal that another node answered with; a status without a detail is told by its code. */
export function fromStatus(error: ServiceError): HopError {
  const detail = detailOf(error.metadata);
  if (detail !== undefined && detail.reason in reasons) {
    const { message, retryAfterMs, epoch } = detail;
    return new HopError(detail.reason as Reason, message, { retryAfterMs, epoch, cause: error });
  }
  const reason =
    error.code === status.UNAVAILABLE ? "STORE_UNAVAILABLE" : error.code === status.DEADLINE_EXCEEDED ? "BUDGET_EXPIRED" : "INTERNAL";
  return new HopError(reason, error.details || error.message, { cause: error });
}

function detailOf(metadata: Metadata | undefined): ErrorDetail | undefined {
  const bytes = metadata?.get(errorDetailKey)[0];
  if (bytes === undefined || typeof bytes === "string") return undefined;
  try {
    return fromBytes(decodeErrorDetail, bytes);
  } catch {
    return undefined;
  }
}

/** `text` cut at a character so that it has at most `bytesMax` bytes on the wire. */
function clip(text: string, bytesMax: number): string {
  let bytes = 0;
  let units = 0;
  for (const char of text) {
    const code = char.codePointAt(0) as number;
    // Status text is percent-encoded outside ASCII: three bytes for each.
    bytes += code < 0x80 ? 1 : code < 0x800 ? 6 : code < 0x10000 ? 9 : 12;
    if (bytes > bytesMax) return `${text.slice(0, units)}…`;
    units += char.length;
  }
  return text;
}
