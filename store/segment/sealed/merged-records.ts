/**
 * Records of a shard's log out of its sealed segments, as far as a segment keeps them: what is sealed of
 * them again is the segment that the log itself would have made of the whole range.
 *
 * One segment at a time is in memory: its events are sorted by partition, and records come by index.
 */
import { asIndex, asShardId, asTerm, type Index, type Partition, type ShardId } from "#core/base";
import { EventKind, encodeRecord, toBytes } from "#proto";
import { eventKind } from "../../event-head.ts";
import type { RecordToSeal } from "./record-batch.ts";
import type { SealedReader } from "./sealed-reader.ts";
import type { Place, SegmentSummary } from "./summary.ts";

/** A segment and what reads it. */
export interface SegmentToMerge {
  readonly summary: SegmentSummary;
  readonly reader: SealedReader;
}

/** What is left out. */
export interface Removal {
  /** Events of the partition below that expired; 0 = none did. */
  readonly expiredEnd: (partition: Partition) => number;
  /** Told of each event that is left out. */
  readonly removed: () => void;
}

const nothing: Removal = { expiredEnd: () => 0, removed: () => {} };

/** Whether an event is one of those: what says so of earlier ones stays for ever. */
export const isExpired = ({ seq, event }: { readonly seq: number; readonly event: Uint8Array }, end: number): boolean =>
  seq < end && eventKind(event) !== EventKind.historyExpired;

interface RecordParts {
  readonly event: Uint8Array[];
  readonly previous: number[];
  readonly previousShard: number[];
}

const noBody = new Uint8Array(0);

/** Every record of the segments, in order, without what expired; those without an event are empty. The segments follow each other. */
export async function* recordsOfSegments(segments: Iterable<SegmentToMerge>, removal: Removal = nothing): AsyncGenerator<RecordToSeal> {
  for (const { summary, reader } of segments) {
    const records = await recordsIn(reader, summary.shard, removal);
    let at = 0;
    for (let index = summary.firstIndex; index <= summary.lastIndex; index = asIndex(index + 1)) {
      while (at + 1 < summary.terms.length && (summary.terms[at + 1]?.first as Index) <= index) at++;
      const parts = records.get(index);
      records.delete(index);
      const body = parts === undefined ? noBody : toBytes(encodeRecord, parts);
      yield { index, term: summary.terms[at]?.term ?? asTerm(0), kind: "data", body };
    }
  }
}

async function recordsIn(reader: SealedReader, shard: ShardId, removal: Removal): Promise<Map<number, RecordParts>> {
  const starts = new Map<string, Place | undefined>();
  for await (const { partition, firstSeq, previous } of reader.partitions()) starts.set(`${firstSeq} ${partition}`, previous);
  const records = new Map<number, RecordParts>();
  let before: Place | undefined;
  for await (const rows of reader.rows()) {
    for (const { partition, seq, event, index } of rows) {
      const start = `${seq} ${partition}`;
      if (starts.has(start)) before = starts.get(start);
      if (isExpired({ seq, event }, removal.expiredEnd(partition))) {
        removal.removed();
        before = { shard, index };
        continue;
      }
      const parts: RecordParts = records.get(index) ?? { event: [], previous: [], previousShard: [] };
      records.set(index, parts);
      parts.event.push(event);
      parts.previous.push(before?.index ?? 0);
      parts.previousShard.push(before === undefined ? 0 : asShardId(before.shard === shard ? 0 : before.shard));
      before = { shard, index };
    }
  }
  return records;
}
