/** The log of the one shard of a test environment, in memory: what is appended is durable. */
import type { LogWriter, Partition } from "#core/base";
import { decodeEvent, decodeRecord, fromBytes, Writer } from "#proto";

export class ShardLog implements LogWriter {
  /** Record `index` is at `index - 1`. */
  readonly records: Uint8Array[] = [];
  eventCount = 0;
  private readonly histories = new Map<Partition, Uint8Array[]>();
  private writer = new Writer(512);

  get lastIndex(): number {
    return this.records.length;
  }

  begin(): Writer {
    // What was handed out of the record before are views of its buffer.
    this.writer = new Writer(512);
    return this.writer;
  }

  end(): void {
    const body = this.writer.finish();
    this.records.push(body);
    for (const bytes of fromBytes(decodeRecord, body).event) {
      this.history(fromBytes(decodeEvent, bytes).partition as Partition).push(bytes);
      this.eventCount++;
    }
  }

  /** Canonical bytes of the partition's events, oldest first. */
  history(partition: Partition): Uint8Array[] {
    let events = this.histories.get(partition);
    if (events === undefined) {
      events = [];
      this.histories.set(partition, events);
    }
    return events;
  }
}
