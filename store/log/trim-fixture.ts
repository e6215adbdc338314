/**
 * Appends to many shards of the log in argv[2] and lets go of most of it, until it is killed; prints
 * each time all is durable where every shard ends and up to where it is released.
 */
import { asIndex, asShardId, asTerm, type ShardId } from "#core/base";
import { WalLogStore } from "./wal-log-store.ts";

const log = await WalLogStore.open({ dir: process.argv[2] as string, segmentBytes: 1 << 16, bufferBytes: 4096, trimMs: 0 });
const shards = Array.from({ length: 12 }, (_, i) => asShardId(i + 1));
let turn = shards.reduce((sum, shard) => sum + log.lastIndex(shard), 0);

function grow(shard: ShardId): void {
  const index = asIndex(log.lastIndex(shard) + 1);
  log.begin(shard, index, asTerm(1)).raw(new TextEncoder().encode(`${shard}/${index} ${"x".repeat((index * 37) % 700)}`));
  log.end();
}

/** The first shards are busy and keep little, the others write seldom and keep what they have for long. */
function step(): void {
  turn++;
  for (const shard of shards) {
    const isBusy = shard <= 4;
    if (!isBusy && (turn + shard) % 40 !== 0) continue;
    grow(shard);
    const through = asIndex(log.durableIndex(shard) - (isBusy ? 2 : 10));
    if (through <= log.base(shard).index) continue;
    log.compact(shard, through);
    if ((turn + shard) % 3 === 0) log.release(shard, through);
  }
  log.kick(true);
}

log.onDurable = () => {
  if (log.durablePosition() < log.position()) return;
  process.stdout.write(`${JSON.stringify(shards.map((shard) => [log.durableIndex(shard), log.released(shard)]))}\n`);
  step();
};
step();
