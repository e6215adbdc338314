/** Which blobs the events of a record name. */
import { toHex } from "#core/base";
import { blobsOf, decodeBody } from "#core/run";
import { decodeEvent, EventKind, fromBytes, Reader } from "#proto";
import { EventFields, RecordEvents } from "#store";

/** A reference is a message that begins with a field of 32 bytes: what lacks that pair of bytes has none. */
const refMark = Uint8Array.of(0x0a, 0x20);
/** Kinds that name the code of a run. */
const startKinds: readonly number[] = [EventKind.runStarted, EventKind.startQueued, EventKind.childSpawned];
/** Such a kind, field 5 in one byte. */
const startMarks = startKinds.map((kind) => Uint8Array.of(0x28, kind));

const events = new RecordEvents();
const fields = new EventFields();

/** Whether the record has an event. */
export function hasEvents(record: Uint8Array): boolean {
  events.read(new Reader(record), 0, record.length);
  return events.count > 0;
}

/** Adds the blobs' hashes, in hex. */
export function noteBlobs(record: Uint8Array, blobs: Set<string>): void {
  // Looked for in the bytes, which most records are done with: to decode each would be most of what reading the log takes.
  const bytes = Buffer.from(record.buffer, record.byteOffset, record.length);
  if (!bytes.includes(refMark) && !startMarks.some((mark) => bytes.includes(mark))) return;
  events.read(new Reader(record), 0, record.length);
  for (let i = 0; i < events.count; i++) noteOfEvent(record.subarray(events.ats[i], events.ends[i]), blobs);
}

/** Adds the hashes of the blobs that one event names, in hex. */
export function noteOfEvent(event: Uint8Array, blobs: Set<string>): void {
  fields.read(new Reader(event), 0, event.length);
  const { kind, payloadAt, payloadEnd } = fields;
  // Names of 32 bytes look like a reference too: only the payload holds any.
  const mayName =
    startKinds.includes(kind) || Buffer.from(event.buffer, event.byteOffset + payloadAt, payloadEnd - payloadAt).includes(refMark);
  if (!mayName) return;
  const { payload } = fromBytes(decodeEvent, event);
  for (const { sha256 } of blobsOf(decodeBody(kind, payload)?.body)) blobs.add(toHex(sha256));
}
