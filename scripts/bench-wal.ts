/**
 * Group commit of the write-ahead log: latency from append to durable, and records a second, with
 * 1, 8, 64 and 512 waiters that each append again when their record is durable.
 *
 * Usage: bun scripts/bench-wal.ts [--seconds N] [--bytes N]
 */
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { asIndex, asShardId, asTerm } from "#core/base";
import { WalLogStore } from "#store";

const { values } = parseArgs({ options: { seconds: { type: "string", default: "3" }, bytes: { type: "string", default: "256" } } });
const seconds = Number(values.seconds);
const body = new Uint8Array(Number(values.bytes)).fill(120);
const shard = asShardId(1);

async function run(waiters: number): Promise<void> {
  const dir = fs.mkdtempSync(join(tmpdir(), "hop-bench-wal-"));
  const log = await WalLogStore.open({ dir });
  // The folder's first segment is being filled with zeros: measured is what comes after.
  while (fs.statSync(join(dir, "wal-0000000001.log")).size < 64 << 20) await new Promise((resolve) => setTimeout(resolve, 50));
  const began: number[] = [];
  const latencies: number[] = [];
  let index = 0;
  let acknowledged = 0;
  const append = () => {
    began[++index] = performance.now();
    log.begin(shard, asIndex(index), asTerm(1)).raw(body);
    log.end();
  };
  const done = Promise.withResolvers<void>();
  const cpu = process.cpuUsage();
  const start = performance.now();
  log.onDurable = () => {
    const at = performance.now();
    const durable = log.durableIndex(shard);
    const count = durable - acknowledged;
    for (; acknowledged < durable; acknowledged++) latencies.push(at - (began[acknowledged + 1] as number));
    if (at - start > seconds * 1000) return done.resolve();
    for (let i = 0; i < count; i++) append();
    log.kick(true);
  };
  for (let i = 0; i < waiters; i++) append();
  log.kick(true);
  await done.promise;
  const elapsed = (performance.now() - start) / 1000;
  const { user, system } = process.cpuUsage(cpu);
  latencies.sort((a, b) => a - b);
  const at = (share: number) => (latencies[Math.floor(latencies.length * share)] as number).toFixed(2);
  const rate = Math.round(acknowledged / elapsed);
  console.log(
    `${waiters} waiters: p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, ${rate} records/s, ${((user + system) / acknowledged).toFixed(1)} µs of CPU a record`,
  );
  await log.close();
  const reopened = performance.now();
  const again = await WalLogStore.open({ dir });
  let records = 0;
  for (const _ of again.replay(shard, asIndex(1))) records++;
  console.log(`  reopened and replayed ${records} records in ${(performance.now() - reopened).toFixed(0)} ms`);
  await again.close();
  fs.rmSync(dir, { recursive: true });
}

for (const waiters of [1, 8, 64, 512]) await run(waiters);
