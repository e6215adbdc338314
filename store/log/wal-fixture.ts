/** Appends to the log in argv[2] and prints each index that is durable, until it is killed. */
import { asIndex, asShardId, asTerm } from "#core/base";
import { WalLogStore } from "./wal-log-store.ts";

const shard = asShardId(1);
const log = await WalLogStore.open({ dir: process.argv[2] as string, segmentBytes: 1 << 16, bufferBytes: 4096 });
let next = log.lastIndex(shard);

/** Batches of one to seven records of many sizes. */
function appendBatch(): void {
  for (let i = 0; i <= next % 7; i++) {
    next = asIndex(next + 1);
    log.begin(shard, next, asTerm(1)).raw(new TextEncoder().encode(`${next} ${"x".repeat((next * 37) % 900)}`));
    log.end();
  }
  log.kick(true);
}

log.onDurable = () => {
  process.stdout.write(`${log.durableIndex(shard)}\n`);
  appendBatch();
};
appendBatch();
