/** What is sealed at one go: records of a shard's log that follow each other, as many as a segment takes. */
import { asIndex, type Index, type ShardId } from "#core/base";
import { type LogRecord, type LogStore, packRecords } from "#store";
import type { Timing } from "../timing.ts";
import { noteBlobs } from "./event-blobs.ts";
import { pacedScan } from "./paced-scan.ts";

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
  from: { readonly log: Pick<LogStore, "scan">; readonly timing: Timing },
  { shard, first, through }: { readonly shard: ShardId; readonly first: Index; readonly through: Index },
  bytesMax: number,
): Promise<UnsealedRange> {
  const blobs = new Set<string>();
  let events = 0;
  let begin: Index | undefined;
  let last = first;
  async function* read(): AsyncGenerator<LogRecord> {
    let bytes = 0;
    for await (const record of pacedScan(from, shard, { from: first, end: asIndex(through + 1) })) {
      const { index, kind, body } = record;
      begin ??= index;
      last = index;
      if (kind === "data" && body.length > 0) events += noteBlobs(body, blobs);
      yield record;
      bytes += body.length;
      if (bytes >= bytesMax) return;
    }
  }
  const batches = await Array.fromAsync(packRecords(read()));
  return { shard, first: begin ?? first, last, batches, events, blobs };
}
