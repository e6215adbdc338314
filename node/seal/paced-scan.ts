/** Reading much of a log for what nobody waits for, so that commits do not wait for it either. */
import type { Index, ShardId } from "#core/base";
import type { LogRecord, LogStore } from "#store";
import { breath, type Timing } from "../timing.ts";

/** Records [from, end) as `LogStore.scanMany` has them, with everybody else's turn in between. */
export async function* pacedScan(
  { log, timing }: { readonly log: Pick<LogStore, "scanMany">; readonly timing: Timing },
  shard: ShardId,
  { from, end }: { readonly from: Index; readonly end: Index },
): AsyncGenerator<readonly LogRecord[]> {
  for await (const records of log.scanMany(shard, from, end)) {
    yield records;
    await breath(timing);
  }
}
