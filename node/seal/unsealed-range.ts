/** What is sealed at one go: records of a shard's log that follow each other, as many as a segment takes. */
import { asIndex, type Index, type ShardId } from "#core/base";
import { type LogRecord, type LogStore, RecordPacker } from "#store";
import type { Timing } from "../timing.ts";
import { hasEvents, noteBlobs } from "./event-blobs.ts";
import { pacedScan } from "./paced-scan.ts";

export interface UnsealedRange {
  readonly shard: ShardId;
  readonly first: Index;
  readonly last: Index;
  /** The records, packed in batches of about a megabyte. */
  readonly batches: readonly Uint8Array[];
  readonly hasEvents: boolean;
  /** Hashes of the blobs that the events name, in hex. */
  readonly blobs: ReadonlySet<string>;
}

/** Reads records from the first one at or behind `first` up to `through`, or as many of them as `bytesMax` takes, and at least one. */
export async function readUnsealed(
  from: { readonly log: Pick<LogStore, "scanMany">; readonly timing: Timing },
  { shard, first, through }: { readonly shard: ShardId; readonly first: Index; readonly through: Index },
  bytesMax: number,
): Promise<UnsealedRange> {
  const range = new RangeSoFar();
  for await (const records of pacedScan(from, shard, { from: first, end: asIndex(through + 1) })) {
    for (const record of records) {
      range.add(record);
      if (range.bytes >= bytesMax) return range.of(shard, first);
    }
  }
  return range.of(shard, first);
}

class RangeSoFar {
  bytes = 0;
  private readonly packer = new RecordPacker();
  private readonly batches: Uint8Array[] = [];
  private readonly blobs = new Set<string>();
  private begin: Index | undefined;
  private last: Index | undefined;
  private hasEvents = false;

  add(record: LogRecord): void {
    const { index, kind, body } = record;
    this.begin ??= index;
    this.last = index;
    if (kind === "data" && body.length > 0) {
      this.hasEvents ||= hasEvents(body);
      noteBlobs(body, this.blobs);
    }
    this.take(this.packer.add(record));
    this.bytes += body.length;
  }

  /** All of it, of which the first record was asked for at `first`. */
  of(shard: ShardId, first: Index): UnsealedRange {
    this.take(this.packer.rest());
    const { batches, hasEvents, blobs } = this;
    return { shard, first: this.begin ?? first, last: this.last ?? first, batches, hasEvents, blobs };
  }

  private take(batch: Uint8Array | undefined): void {
    if (batch !== undefined) this.batches.push(batch);
  }
}
