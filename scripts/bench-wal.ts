/**
 * Group commit of the write-ahead log: latency from append to durable, and records a second, with
 * 1, 8, 64 and 512 waiters that each append again when their record is durable; then how long the
 * log takes to open, and to read all of it.
 *
 * Usage: bun scripts/bench-wal.ts [--seconds N] [--bytes N] [--shards N] [--replicated]
 *   --shards      the waiters take turns in that many shards
 *   --replicated  a copy of each record is kept and taken, as for a shard with followers
 */
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { asIndex, asShardId, asTerm, type ShardId } from "#core/base";
import { WalLogStore } from "#store";

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "3" },
    bytes: { type: "string", default: "256" },
    shards: { type: "string", default: "1" },
    replicated: { type: "boolean", default: false },
  },
});
const seconds = Number(values.seconds);
const shardCount = Number(values.shards);
const body = new Uint8Array(Number(values.bytes)).fill(120);

/** One shard's records that wait: when each was appended. */
interface Line {
  readonly shard: ShardId;
  readonly began: number[];
  acknowledged: number;
}

async function run(waiters: number): Promise<void> {
  const dir = fs.mkdtempSync(join(tmpdir(), "hop-bench-wal-"));
  const log = await WalLogStore.open({ dir });
  // The folder's first segment is being filled with zeros: measured is what comes after.
  while (fs.statSync(join(dir, "wal-0000000001.log")).size < 64 << 20) await new Promise((resolve) => setTimeout(resolve, 50));
  const lines: Line[] = Array.from({ length: shardCount }, (_, i) => ({ shard: asShardId(i + 1), began: [], acknowledged: 0 }));
  const latencies: number[] = [];
  let turn = 0;
  const append = () => {
    const { shard, began } = lines[turn++ % shardCount] as Line;
    began.push(performance.now());
    log.begin(shard, asIndex(began.length), asTerm(1)).raw(body);
    log.end();
    if (values.replicated) log.takeAppended(shard);
  };
  if (values.replicated) for (const { shard } of lines) log.setReplicated(shard, true);
  const done = Promise.withResolvers<void>();
  const cpu = process.cpuUsage();
  const start = performance.now();
  log.onDurable = () => {
    const at = performance.now();
    let count = 0;
    for (const line of lines) {
      const durable = log.durableIndex(line.shard);
      for (; line.acknowledged < durable; line.acknowledged++, count++) latencies.push(at - (line.began[line.acknowledged] as number));
    }
    if (at - start > seconds * 1000) return done.resolve();
    for (let i = 0; i < count; i++) append();
    log.kick(true);
  };
  for (let i = 0; i < waiters; i++) append();
  log.kick(true);
  await done.promise;
  const elapsed = (performance.now() - start) / 1000;
  const { user, system } = process.cpuUsage(cpu);
  const acknowledged = latencies.length;
  latencies.sort((a, b) => a - b);
  const at = (share: number) => (latencies[Math.floor(acknowledged * share)] as number).toFixed(2);
  const rate = Math.round(acknowledged / elapsed);
  console.log(
    `${waiters} waiters: p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, ${rate} records/s, ${((user + system) / acknowledged).toFixed(1)} µs of CPU a record`,
  );
  await log.close();
  await reopen(dir);
  fs.rmSync(dir, { recursive: true });
}

async function reopen(dir: string): Promise<void> {
  const start = performance.now();
  const log = await WalLogStore.open({ dir });
  const opened = performance.now();
  let records = 0;
  for (const shard of log.shards()) for (const _ of log.replay(shard, asIndex(1))) records++;
  console.log(
    `  opened in ${(opened - start).toFixed(0)} ms, ${records} records replayed in ${(performance.now() - opened).toFixed(0)} ms`,
  );
  await log.close();
}

for (const waiters of [1, 8, 64, 512]) await run(waiters);
