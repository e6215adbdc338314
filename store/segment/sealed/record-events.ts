/** The events of an encoded record as places in its bytes, read without making an object of each. */
import type { Reader } from "#proto";
import { mustEnd } from "./event-fields.ts";

/** Fields of a `Record`. */
const eventTag = 10;
const previousTag = 16;
const previousShardTag = 48;

/** Reused from record to record: of the arrays the first `count` are this one's. */
export class RecordEvents {
  count = 0;
  /** Event `i` is [ats[i], ends[i]) of the reader's bytes. */
  readonly ats: number[] = [];
  readonly ends: number[] = [];
  private readonly previous: number[] = [];
  private previousCount = 0;
  private readonly previousShard: number[] = [];
  private previousShardCount = 0;

  /** Reads [at, end) of the reader's bytes. Throws `CodecError` where it is no record. */
  read(reader: Reader, at: number, end: number): void {
    reader.at = at;
    this.count = this.previousCount = this.previousShardCount = 0;
    while (reader.at < end) {
      const tag = reader.varint();
      if (tag === eventTag) {
        const to = reader.extent(end);
        this.ats[this.count] = reader.at;
        this.ends[this.count++] = to;
        reader.at = to;
      } else if (tag === previousTag) this.previous[this.previousCount++] = reader.varint();
      else if (tag === previousShardTag) this.previousShard[this.previousShardCount++] = reader.varint();
      else reader.skip(tag, end);
    }
    mustEnd(reader, end);
  }

  /** Index of the record that holds the event before event `i` of its partition; 0 = none. */
  previousIndex(i: number): number {
    return i < this.previousCount ? (this.previous[i] as number) : 0;
  }

  /** The shard whose log that record is in; 0 = the same. */
  previousShardOf(i: number): number {
    return i < this.previousShardCount ? (this.previousShard[i] as number) : 0;
  }
}
