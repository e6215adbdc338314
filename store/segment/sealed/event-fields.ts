/**
 * The fields of an encoded event, as columns have them, read without making an object of each.
 *
 * Fields of unknown numbers are stepped over: they are in the bytes, which a column keeps whole.
 */
import { CodecError, type Reader } from "#proto";

const hashBytes = 32;
/** Tag and length of `prev_hash`, and the hash. */
export const suffixBytes = 2 + hashBytes;

const suffixTag = 122;
const identityTag = 58;
/** Types of fields: the lowest bits of their tags. */
const [number, bytes] = [0, 2];

/** Reused from event to event; texts and payload are places in the bytes. */
export class EventFields {
  partitionAt = 0;
  partitionEnd = 0;
  seq = 0;
  timeMs = 0;
  logical = 0;
  kind = 0;
  schemaId = 0;
  issuerAt = 0;
  issuerEnd = 0;
  subjectAt = 0;
  subjectEnd = 0;
  verified = false;
  causeSeq = 0;
  payloadAt = 0;
  payloadEnd = 0;

  /** Reads [at, end) of the reader's bytes: an event less its `prev_hash`. Throws `CodecError` where it is none. */
  read(reader: Reader, at: number, end: number): void {
    reader.at = at;
    this.clear();
    while (reader.at < end) {
      const tag = reader.varint();
      const type = tag & 7;
      // One place that reads numbers and one that reads lengths: what is read in many is long to compile.
      if (type === number) this.number(tag, reader.varint());
      else if (type === bytes) {
        const to = reader.extent(end);
        if (tag === identityTag) this.identity(reader, to);
        else this.text(tag, reader.at, to);
        reader.at = to;
      } else reader.skip(tag, end);
    }
    mustEnd(reader, end);
  }

  private number(tag: number, value: number): void {
    if (tag === 16) this.seq = value;
    else if (tag === 24) this.timeMs = value;
    else if (tag === 32) this.logical = value;
    else if (tag === 40) this.kind = value;
    else if (tag === 48) this.schemaId = value;
  }

  private text(tag: number, at: number, end: number): void {
    if (tag === 10) {
      this.partitionAt = at;
      this.partitionEnd = end;
    } else if (tag === 66) {
      this.payloadAt = at;
      this.payloadEnd = end;
    }
  }

  private identity(reader: Reader, end: number): void {
    while (reader.at < end) {
      const tag = reader.varint();
      const type = tag & 7;
      if (type === number) this.identityNumber(tag, reader.varint());
      else if (type === bytes) {
        const to = reader.extent(end);
        this.identityText(tag, reader.at, to);
        reader.at = to;
      } else reader.skip(tag, end);
    }
    mustEnd(reader, end);
  }

  private identityNumber(tag: number, value: number): void {
    if (tag === 24) this.verified = value !== 0;
    else if (tag === 32) this.causeSeq = value;
  }

  private identityText(tag: number, at: number, end: number): void {
    if (tag === 10) {
      this.issuerAt = at;
      this.issuerEnd = end;
    } else if (tag === 18) {
      this.subjectAt = at;
      this.subjectEnd = end;
    }
  }

  private clear(): void {
    this.partitionAt = this.partitionEnd = this.issuerAt = this.issuerEnd = this.subjectAt = this.subjectEnd = 0;
    this.seq = this.timeMs = this.logical = this.kind = this.schemaId = this.causeSeq = this.payloadAt = this.payloadEnd = 0;
    this.verified = false;
  }
}

/** Throws `CodecError` where the message that was read did not end at `end`. */
export function mustEnd(reader: Reader, end: number): void {
  if (reader.at !== end) throw new CodecError(`Cannot read a message: it ends ${reader.at - end} bytes too far`);
}

/** Whether [at, end) ends as each event does: with `prev_hash`, which is its last field. */
export function endsInPrevHash(bytes: Uint8Array, at: number, end: number): boolean {
  return end - at >= suffixBytes && bytes[end - suffixBytes] === suffixTag && bytes[end - hashBytes - 1] === hashBytes;
}

/** Writes `prev_hash` as the last field of an event into `into`, which has room for it at `at`. */
export function putSuffix(into: Uint8Array, at: number, prevHash: Uint8Array): void {
  into[at] = suffixTag;
  into[at + 1] = hashBytes;
  into.set(prevHash, at + 2);
}
