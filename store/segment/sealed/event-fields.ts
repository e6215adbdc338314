/**
 * The fields of an encoded event, as columns have them, read without making an object of each.
 *
 * Fields of unknown numbers are stepped over: they are in the bytes, which a column keeps whole.
 */
import { CodecError, Reader } from "#proto";

const hashBytes = 32;
/** Tag and length of `prev_hash`, and the hash. */
export const suffixBytes = 2 + hashBytes;

const suffixTag = 122;

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

  /** Reads [at, end) of `bytes`: an event less its `prev_hash`. Throws `CodecError` where it is none. */
  read(bytes: Uint8Array, at: number, end: number): void {
    const reader = new Reader(bytes, at);
    this.clear();
    while (reader.at < end) this.field(reader, reader.varint(), end);
    mustEnd(reader, end);
  }

  private field(reader: Reader, tag: number, end: number): void {
    switch (tag) {
      case 10:
        this.partitionEnd = reader.extent(end);
        this.partitionAt = reader.at;
        reader.at = this.partitionEnd;
        break;
      case 16:
        this.seq = reader.varint();
        break;
      case 24:
        this.timeMs = reader.varint();
        break;
      case 32:
        this.logical = reader.varint();
        break;
      case 40:
        this.kind = reader.varint();
        break;
      case 48:
        this.schemaId = reader.varint();
        break;
      case 58:
        this.identity(reader, reader.extent(end));
        break;
      case 66:
        this.payloadEnd = reader.extent(end);
        this.payloadAt = reader.at;
        reader.at = this.payloadEnd;
        break;
      default:
        reader.skip(tag, end);
    }
  }

  private identity(reader: Reader, end: number): void {
    while (reader.at < end) {
      const tag = reader.varint();
      if (tag === 10) {
        this.issuerEnd = reader.extent(end);
        this.issuerAt = reader.at;
        reader.at = this.issuerEnd;
      } else if (tag === 18) {
        this.subjectEnd = reader.extent(end);
        this.subjectAt = reader.at;
        reader.at = this.subjectEnd;
      } else if (tag === 24) this.verified = reader.varint() !== 0;
      else if (tag === 32) this.causeSeq = reader.varint();
      else reader.skip(tag, end);
    }
    mustEnd(reader, end);
  }

  private clear(): void {
    this.partitionAt = this.partitionEnd = this.issuerAt = this.issuerEnd = this.subjectAt = this.subjectEnd = 0;
    this.seq = this.timeMs = this.logical = this.kind = this.schemaId = this.causeSeq = this.payloadAt = this.payloadEnd = 0;
    this.verified = false;
  }
}

function mustEnd(reader: Reader, end: number): void {
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
