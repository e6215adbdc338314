/** Reading much of a log for what nobody waits for, so that commits do not wait for it either. */
import type { Index, ShardId } from "#core/base";
import type { LogRecord, LogStore } from "#store";
import { breath, type Timing } from "../timing.ts";

/** Looked at in one go: about half a millisecond of the node's thread. */
const turnBytes = 64 << 10;

/** Records [from, end) as `LogStore.scan` has them, with everybody else's turn in between. */
export async function* pacedScan(
  { log, timing }: { readonly log: Pick<LogStore, "scan">; readonly timing: Timing },
  shard: ShardId,
  { from, end }: { readonly from: Index; readonly end: Index },
): AsyncGenerator<LogRecord> {
  let bytes = 0;
  for await (const record of log.scan(shard, from, end)) {
    yield record;
    bytes += record.body.length;
    if (bytes < turnBytes) continue;
    bytes = 0;
    await breath(timing);
  }
}
