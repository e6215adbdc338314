/** Values as payloads: JSON in UTF-8; `undefined` is the empty payload. */
import type { Payload, PayloadInit } from "#proto";
import { HopError } from "./errors.ts";

/** A larger value is refused by every server. */
export const payloadBytesMax = 32 * 1024 * 1024;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Throws `HopError` PAYLOAD_TOO_LARGE, and `TypeError` for what JSON can't express. */
export function toPayload(value: unknown): PayloadInit | undefined {
  if (value === undefined) return undefined;
  const json = JSON.stringify(value) as string | undefined;
  if (json === undefined) throw new TypeError(`Cannot send a value of type ${typeof value}: JSON has no form for it`);
  const data = encoder.encode(json);
  if (data.length > payloadBytesMax) {
    throw new HopError("PAYLOAD_TOO_LARGE", `Cannot send a value: its JSON has ${data.length} bytes, want at most ${payloadBytesMax}`);
  }
  return { data };
}

/** The value of a payload. `fetchBlob` gets what is kept by reference. */
export async function fromPayload(payload: Payload | undefined, fetchBlob: (sha256: Uint8Array) => Promise<Uint8Array>): Promise<unknown> {
  if (payload === undefined) return undefined;
  const data = payload.ref === undefined ? payload.data : await fetchBlob(payload.ref.sha256);
  return data.length === 0 ? undefined : JSON.parse(decoder.decode(data));
}
