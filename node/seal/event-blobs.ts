/** Which blobs the events of a record name. */
import { toHex } from "#core/base";
import { blobsOf, decodeBody } from "#core/run";
import { decodeEvent, decodeRecord, EventKind, fromBytes } from "#proto";
import { eventKind } from "#store";

/** A reference is a message that begins with a field of 32 bytes: what lacks that pair of bytes has none. */
const refMark = new Uint8Array([0x0a, 0x20]);

/** Adds the blobs' hashes, in hex, and returns the number of events. */
export function noteBlobs(record: Uint8Array, blobs: Set<string>): number {
  const { event } = fromBytes(decodeRecord, record);
  for (const bytes of event) noteOfEvent(bytes, blobs);
  return event.length;
}

/** Adds the hashes of the blobs that one event names, in hex. */
export function noteOfEvent(bytes: Uint8Array, blobs: Set<string>): void {
  // Looked at in the bytes: decoding each event would be half of what the node's own thread spends on a seal.
  const mayName = eventKind(bytes) === EventKind.runStarted || Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).includes(refMark);
  if (!mayName) return;
  const { kind, payload } = fromBytes(decodeEvent, bytes);
  for (const { sha256 } of blobsOf(decodeBody(kind, payload)?.body)) blobs.add(toHex(sha256));
}
