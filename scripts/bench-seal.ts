/**
 * Measures sealed segments: what an event costs to seal and takes to keep, and what a history costs to read.
 *
 * Prints µs of processor time, the best of several rounds for sealing (the machine may be busy), medians for
 * reading: cold, which reads the index's directory too, and warm.
 */
import { asIndex, asShardId } from "#core/base";
import { busyShard } from "../store/segment/sealed/records-fixture.ts";
import { sealSegment } from "../store/segment/sealed/seal-work.ts";
import { SealedReader } from "../store/segment/sealed/sealed-reader.ts";
import type { Piece, SealedSegment } from "../store/segment/sealed/summary.ts";
import { inMemory } from "../store/segment/sealed/verify.ts";

const sizes = process.argv.length > 2 ? process.argv.slice(2).map(Number) : [100_000, 1_000_000];
const rounds = 4;
const reads = 300;
const names = { segment: "segment", index: "index" };

async function cpuMicros(work: () => Promise<void>): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return user + system;
}

const median = (values: number[]) => values.sort((a, b) => a - b)[values.length >> 1] as number;

async function sealed(events: number): Promise<SealedSegment> {
  const records = [...busyShard(events)];
  const options = { shard: asShardId(1), firstIndex: asIndex(1), lastIndex: asIndex(records.length) };
  const logBytes = records.reduce((sum, { body }) => sum + body.length, 0);
  let best = Number.POSITIVE_INFINITY;
  let last: SealedSegment | undefined;
  for (let round = 0; round < rounds; round++) {
    const used = await cpuMicros(async () => {
      last = await sealSegment(records, options);
    });
    best = Math.min(best, used);
  }
  const { segment, index, summary } = last as SealedSegment;
  const each = (value: number) => (value / summary.rows).toFixed(1);
  console.log(
    `${summary.rows} events: sealed in ${each(best)} µs an event; ${each(logBytes)} bytes an event in records, ${each(segment.length)} sealed, ${each(index.length)} of index`,
  );
  return last as SealedSegment;
}

async function read(segment: SealedSegment, pieces: readonly Piece[], warm: SealedReader | undefined): Promise<string> {
  const micros: number[] = [];
  const bytes: number[] = [];
  for (let i = 0; i < reads; i++) {
    const { partition } = pieces[(i * 7919) % pieces.length] as Piece;
    const reader = warm ?? new SealedReader(segment.summary, inMemory(segment, names));
    const before = reader.bytesRead;
    micros.push(
      await cpuMicros(async () => {
        for await (const _ of (await reader.history(partition))?.events() ?? []);
      }),
    );
    bytes.push(reader.bytesRead - before);
  }
  return `${(median(micros) / 1000).toFixed(2)} ms, ${Math.round(median(bytes) / 1000)} KB (at most ${Math.round(Math.max(...bytes) / 1000)} KB)`;
}

for (const events of sizes) {
  const segment = await sealed(events);
  const warm = new SealedReader(segment.summary, inMemory(segment, names));
  const pieces = (await Array.fromAsync(warm.partitions())).filter(({ firstSeq, endSeq }) => endSeq - firstSeq === 36);
  await read(segment, pieces, undefined);
  console.log(`  a history of 36 events: cold ${await read(segment, pieces, undefined)}; warm ${await read(segment, pieces, warm)}`);
}
