/** What is sealed at one go: records of a shard's log that follow each other, as many as a segment takes. */
import { asIndex, type Index, type ShardId } from "#core/base";
import { type LogStore, packedRecords, packRecords } from "#store";
import { noteBlobs } from "./event-blobs.ts";

export interface UnsealedRange {
  readonly shard: ShardId;
  readonly first: Index;
  readonly last: Index;
  /** The records, packed in batches of about a megabyte. */
  readonly batches: readonly Uint8Array[];
  readonly events: number;
  /** Hashes of the blobs that the events name, in hex. */
  readonly blobs: ReadonlySet<string>;
}

/** Reads records from the first one at or behind `first` up to `through`, or as many of them as `bytesMax` takes, and at least one. */
export async function readUnsealed(
  log: LogStore,
  { shard, first, through }: { readonly shard: ShardId; readonly first: Index; readonly through: Index },
  bytesMax: number,
): Promise<UnsealedRange> {
  const batches: Uint8Array[] = [];
  const blobs = new Set<string>();
  let events = 0;
  let begin: Index | undefined;
  let last = first;
  for await (const batch of packRecords(upTo(log, { shard, first, through }, bytesMax))) {
    batches.push(batch);
    for (const { index, kind, at, end } of packedRecords(batch)) {
      begin ??= index;
      last = index;
      if (kind !== "data" || at === end) continue;
      events += noteBlobs(batch.subarray(at, end), blobs);
    }
  }
  return { shard, first: begin ?? first, last, batches, events, blobs };
}

async function* upTo(log: LogStore, range: { readonly shard: ShardId; readonly first: Index; readonly through: Index }, bytesMax: number) {
  let bytes = 0;
  for await (const record of log.scan(range.shard, range.first, asIndex(range.through + 1))) {
    yield record;
    bytes += record.body.length;
    if (bytes >= bytesMax) return;
  }
}
