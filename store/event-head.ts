/** Looks into encoded records and events without decoding them: most readers want few of their fields. */
import type { Partition } from "#core/base";
import { Reader } from "#proto";

const partitionTag = 10;
const seqTag = 16;
const kindTag = 40;

/** Kind of an event; its fields come in number order, so partition to kind is all that is looked at. */
export function eventKind(event: Uint8Array): number {
  return numberField(event, kindTag);
}

/** Place of an event in its partition. */
export function eventSeq(event: Uint8Array): number {
  return numberField(event, seqTag);
}

/** Whether the event is of the partition with this name in UTF-8. */
export function isOfPartition(event: Uint8Array, name: Uint8Array): boolean {
  const reader = new Reader(event);
  if (reader.varint() !== partitionTag) return name.length === 0;
  const end = reader.extent(event.length);
  if (end - reader.at !== name.length) return false;
  // Names of one record mostly differ at their end.
  for (let i = name.length - 1; i >= 0; i--) if (event[reader.at + i] !== name[i]) return false;
  return true;
}

/** The UTF-8 bytes of the partition's name, one character each: a key that tells names apart. */
export function partitionKey(event: Uint8Array): string {
  const reader = new Reader(event);
  if (reader.varint() !== partitionTag) return "";
  return keyOfName(reader.view(event.length));
}

/** The partition's name. */
export const eventPartition = (event: Uint8Array) => Buffer.from(partitionKey(event), "latin1").toString() as Partition;

export function keyOfName(name: Uint8Array): string {
  return Buffer.from(name.buffer, name.byteOffset, name.length).toString("latin1");
}

function numberField(event: Uint8Array, wanted: number): number {
  const reader = new Reader(event);
  while (reader.at < event.length) {
    const tag = reader.varint();
    if (tag === wanted) return reader.varint();
    if (tag > wanted) return 0;
    reader.skip(tag, event.length);
  }
  return 0;
}
