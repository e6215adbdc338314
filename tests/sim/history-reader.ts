/** Reads a partition's history backwards from the simulated disk, record by record. */
import type { Index, ReplayEffect, ShardId } from "#core/base";
import { decodeEvent, decodeRecord, fromBytes } from "#proto";
import type { MemoryDisk } from "../../store/log/memory-log-store.ts";

/** Event bytes [firstSeq, endSeq) in order. Throws where the log does not lead there. */
export function readHistory(
  disk: MemoryDisk,
  shard: ShardId,
  range: Pick<ReplayEffect, "partition" | "firstSeq" | "endSeq" | "lastIndex">,
): Uint8Array[] {
  const out: Uint8Array[] = [];
  const records = disk.shards.get(shard) ?? [];
  let index: number = range.lastIndex;
  let want: number = range.endSeq - 1;
  while (want >= range.firstSeq) {
    const stored = records[index - 1];
    if (stored === undefined) throw new Error(`Cannot read ${range.partition} seq ${want}: record ${index as Index} is not there`);
    const record = fromBytes(decodeRecord, stored.body);
    let previous = 0;
    for (let i = record.event.length - 1; i >= 0 && want >= range.firstSeq; i--) {
      const bytes = record.event[i] as Uint8Array;
      const event = fromBytes(decodeEvent, bytes);
      if (event.partition !== range.partition || event.seq !== want) continue;
      out.push(bytes);
      want--;
      previous = record.previous[i] ?? 0;
    }
    if (previous === 0 && want >= range.firstSeq)
      throw new Error(`Cannot read ${range.partition} seq ${want}: record ${index} does not lead to it`);
    index = previous;
  }
  return out.reverse();
}
