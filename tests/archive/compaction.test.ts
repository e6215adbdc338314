/** Many small segments become few, over every kind of interruption, and whoever reads meanwhile reads on. */
import { expect, test } from "bun:test";
import { asIndex, asSeq, type Index, type Partition, type ShardId, wholeRange } from "#core/base";
import { EventKind, encodeRunState, type ShardHeader, type ShardSealed, toBytes } from "#proto";
import { type CheckpointStore, type LogStore, MemoryLogStore, manifestKey, sealInPlace, TieredSegmentStore } from "#store";
import { Compactor } from "../../node/seal/compaction.ts";
import { Garbage } from "../../node/seal/compaction-garbage.ts";
import type { SealableShard } from "../../node/seal/sealer.ts";
import { event, RecordWriter, fixtureShard as shard, writeLife } from "../../store/event-fixture.ts";
import { bunHasher, digest } from "../hashers.ts";
import { cluster, SealedShard } from "./sealed-shard.ts";

const policy = { targetBytes: 1 << 20, rowsMax: 1e6, segmentsMin: 2 };
const graceMs = 1000;

/** A shard whose log is sealed in small segments, and forgotten. */
class Town {
  readonly log = new MemoryLogStore();
  readonly writer = new RecordWriter(this.log);
  readonly sealed = new SealedShard();
  nowMs = 0;
  /** By partition, the events below that expired. */
  readonly expired = new Map<string, number>();
  readonly statesWanted = new Set<ShardId>();
  readonly states = {
    checkpoint: {
      load: (partition: Partition) => this.savedState(partition),
      meta: () => ({ appliedIndex: asIndex(1e6) }),
    } as unknown as CheckpointStore,
  };
  readonly notes: string[] = [];
  private header: Pick<ShardHeader, "sealedThrough" | "manifest" | "manifestSha256"> = {
    sealedThrough: 0,
    manifest: 0,
    manifestSha256: new Uint8Array(0),
  };

  private savedState(partition: Partition) {
    const { size = 0, lastIndex = 0 } = this.writer.chains.get(partition) ?? {};
    const state = { partition, size, lastIndex, expiredEnd: this.expired.get(partition) ?? 0 };
    return { state: toBytes(encodeRunState, state), shard };
  }

  async write(seals: number): Promise<this> {
    for (let i = 0; i < seals; i++) {
      writeLife(this.writer, i, 20);
      await this.writer.settle();
      const { manifest, sha256 } = await this.sealed.seal(this.log, shard, this.writer.index, 1 << 20);
      this.header = { sealedThrough: manifest.through, manifest: manifest.number, manifestSha256: sha256 };
    }
    return this;
  }

  forget(): void {
    this.log.compact(shard, this.writer.index);
    this.log.release(shard, this.writer.index);
  }

  readonly led: SealableShard = {
    shard,
    range: wholeRange,
    epoch: 1,
    clockMs: 0,
    through: asIndex(0),
    header: () => this.header as ShardHeader,
    record: ({ through, manifest, sha256 }: ShardSealed) => {
      this.header = { sealedThrough: through, manifest, manifestSha256: sha256 };
      return undefined;
    },
  };

  /** A node's compactor, with what it knows of object storage. */
  node(sealed = this.sealed, wanted = policy): { compactor: Compactor; garbage: Garbage } {
    const timing = { monotonicMs: () => this.nowMs, wallMs: () => this.nowMs, after: () => () => {} };
    const note = (_: unknown, what: string, fields?: Record<string, string | number>) =>
      void this.notes.push(`${what} ${fields?.keys ?? fields?.reason ?? ""}`);
    const shared = { cluster, restoreEpoch: 1, ...sealed.cold, hasher: bunHasher, timing, note };
    const garbage = new Garbage({ ...shared, graceMs, everyMs: 1, manifestsKept: 3 });
    const blobs = undefined as never;
    const compactor = new Compactor({
      ...shared,
      node: 1,
      policy: wanted,
      lookMs: 1,
      garbage,
      blobs,
      states: this.states,
      statesWanted: this.statesWanted,
      hasExpired: () => this.expired.size > 0,
      isReady: () => true,
      shards: () => [this.led],
      work: sealInPlace,
    });
    return { compactor, garbage };
  }

  /** Every history is what was written. */
  async check(sealed = this.sealed, log: LogStore = this.log): Promise<void> {
    const store = new TieredSegmentStore(log, sealed.cold.tier);
    for (const [partition, events] of this.writer.written) {
      const got = await Array.fromAsync(store.history(this.rangeOf(partition)));
      expect([partition, Buffer.compare(Buffer.concat(got.flat()), Buffer.concat(events))]).toEqual([partition, 0]);
    }
  }

  /** The history from an event on. */
  async read(partition: string, firstSeq = 0): Promise<Buffer> {
    const store = new TieredSegmentStore(this.log, this.sealed.cold.tier);
    return Buffer.concat((await Array.fromAsync(store.history({ ...this.rangeOf(partition), firstSeq: asSeq(firstSeq) }))).flat());
  }

  rangeOf(partition: string) {
    const { size = 0, lastIndex = 0 } = this.writer.chains.get(partition) ?? {};
    return { shard, partition: partition as Partition, firstSeq: asSeq(0), endSeq: asSeq(size), lastIndex: lastIndex as Index };
  }

  keys(): string[] {
    return [...this.sealed.bucket.objects.keys()];
  }
}

test("small segments become one, which has every history as it was", async () => {
  const town = await new Town().write(9);
  town.forget();
  const { compactor } = town.node();
  const done = await compactor.compact(town.led);
  expect(done).toMatchObject({ segments: 9, manifest: 10 });
  const newest = await town.sealed.cold.manifests.newest(shard);
  expect(newest?.manifest.segments.map(({ summary }) => [summary.firstIndex, summary.lastIndex])).toEqual([
    [asIndex(1), town.writer.index],
  ]);
  expect(town.led.header()).toMatchObject({ manifest: 10, sealedThrough: town.writer.index });
  await town.check();
  expect(await compactor.compact(town.led)).toBeUndefined();
  // And it goes on; what is large already is not written again for the sake of a little.
  await town.write(3);
  expect(await compactor.compact(town.led)).toMatchObject({ segments: 3 });
  await town.check();
});

test("a crash or an outage from any write on, or its answer lost, leaves the shard whole, and the next one ends what was begun", async () => {
  for (let at = 0, isOver = false; !isOver; at++) {
    for (const kind of ["refused", "lost-answer"] as const) {
      const town = await new Town().write(4);
      town.forget();
      let asked = 0;
      // Nothing answers any more from that write on.
      town.sealed.faults = ({ verb }) => ((verb === "put" ? asked++ : asked - 1) >= at ? { kind } : undefined);
      const first = await town
        .node()
        .compactor.compact(town.led)
        .catch(() => undefined);
      town.sealed.faults = () => undefined;
      const again = new SealedShard(town.sealed.bucket);
      await town.check(again);
      const { manifest, sha256 } = (await again.cold.manifests.newest(shard)) ?? {};
      // As the sealer does with a manifest that was put and not recorded.
      if (manifest !== undefined && sha256 !== undefined && manifest.number > town.led.header().manifest)
        town.led.record({ through: manifest.through, manifest: manifest.number, sha256, statesThrough: 0 });
      await town.node(again).compactor.compact(town.led);
      expect((await again.cold.manifests.newest(shard))?.manifest.segments).toHaveLength(1);
      await town.check(again);
      if (first !== undefined) isOver = true;
    }
  }
}, 60_000);

test("who seals meanwhile wins, and what was merged for nothing is garbage", async () => {
  const town = await new Town().write(4);
  let isSealed = false;
  const { compactor } = town.node();
  const put = town.sealed.cold.manifests.publish.bind(town.sealed.cold.manifests);
  town.sealed.cold.manifests.publish = async (manifest) => {
    town.sealed.cold.manifests.publish = put;
    isSealed = true;
    await town.write(1);
    return put(manifest);
  };
  expect(await compactor.compact(town.led)).toBeUndefined();
  expect(isSealed).toBe(true);
  await town.check();
  expect(await compactor.compact(town.led)).toMatchObject({ segments: 5, manifest: 6 });
  await town.check();
});

test("what was merged is deleted after the grace, by name, and who reads by an old manifest reads on", async () => {
  const town = await new Town().write(6);
  town.forget();
  // Another node, which has read the manifest of before.
  const other = new SealedShard(town.sealed.bucket);
  await town.check(other);
  const [partition] = [...town.writer.written].sort((a, b) => b[1].length - a[1].length)[0] as [string, Uint8Array[]];
  const slow = new TieredSegmentStore(town.log, other.cold.tier).history(town.rangeOf(partition))[Symbol.asyncIterator]();
  const { compactor, garbage } = town.node();
  const old = town.keys().filter((key) => /\/(segment|index)\//.test(key));
  await compactor.compact(town.led);
  const ahead = `${cluster}/segment/s0000000001-${"0".repeat(15)}1-${String(1e9).padStart(16, "0")}-0123456789abcdef.parquet`;
  await town.sealed.cold.objects.put(ahead, new Uint8Array(5));
  expect(await garbage.collect(town.led)).toEqual([]);
  town.nowMs += graceMs - 1;
  expect(await garbage.collect(town.led)).toEqual([]);
  town.nowMs += 2;
  const manifests = [1, 2, 3, 4].map((number) => manifestKey(cluster, shard, number));
  expect((await garbage.collect(town.led)).sort()).toEqual([...old, ...manifests].sort());
  for (const key of old) expect(town.notes.some((line) => line.startsWith("garbage deleted") && line.includes(key))).toBe(true);
  expect(town.keys()).toContain(ahead);
  await town.check();
  await town.check(other);
  const rest: Uint8Array[] = [];
  for (let step = await slow.next(); step.done !== true; step = await slow.next()) rest.push(...step.value);
  expect(digest(Buffer.concat(rest))).toEqual(digest(Buffer.concat(town.writer.written.get(partition) ?? [])));
});

test("the newest manifest is found from one that is deleted", async () => {
  const town = await new Town().write(2);
  const known = await town.sealed.cold.manifests.newest(shard);
  await town.write(8);
  const { garbage } = town.node();
  await garbage.collect(town.led);
  town.nowMs += graceMs;
  expect(await garbage.collect(town.led)).toHaveLength(7);
  expect((await town.sealed.cold.manifests.newest(shard, known))?.manifest.number).toBe(10);
  expect((await new SealedShard(town.sealed.bucket).cold.manifests.newest(shard))?.manifest.number).toBe(10);
});

/** One history with its event of expiry at its end, among others. */
async function townWithExpired(): Promise<{ town: Town; partition: string; end: number }> {
  const town = new Town();
  const partition = "run/default:expired";
  for (let i = 0; i < 3; i++) {
    town.writer.record(...Array.from({ length: 40 }, () => event.signal(partition)));
    await town.write(1);
  }
  const end = town.writer.chains.get(partition)?.size ?? 0;
  town.writer.record({ partition, kind: EventKind.historyExpired, payload: new Uint8Array(0) });
  await town.writer.settle();
  return { town, partition, end };
}

test("what expired leaves the objects once the event that says so is sealed, and every other history stays as it was", async () => {
  const { town, partition, end } = await townWithExpired();
  const { compactor } = town.node();
  const look = () => compactor.look();
  town.expired.set(partition, end);
  compactor.expired(shard, town.writer.index);
  await look();
  // The event is in the log alone yet: who has only the objects would take what is missing for lost.
  await town.check();
  const rows = async () =>
    (await town.sealed.cold.manifests.newest(shard))?.manifest.segments.reduce((sum, { summary }) => sum + summary.rows, 0);
  const before = (await rows()) as number;
  await town.write(1);
  const added = (await rows()) as number;
  expect(added).toBeGreaterThan(before);
  town.forget();
  await look();
  await look();
  expect(await rows()).toBe(added - end);
  for (const name of town.writer.written.keys())
    if (name !== partition) expect((await town.read(name)).equals(Buffer.concat(town.writer.written.get(name) ?? []))).toBe(true);
  // From the event on it is read as ever, and what was before is not there, whoever asks.
  expect(await town.read(partition, end)).toEqual(town.writer.written.get(partition)?.[end] as never);
  await expect(town.read(partition)).rejects.toThrow(/does not have it/);
  // Nothing is left to do.
  const { number } = (await town.sealed.cold.manifests.newest(shard))?.manifest ?? {};
  await look();
  expect((await town.sealed.cold.manifests.newest(shard))?.manifest.number).toBe(number as number);
});

test("a little of a segment that expired waits for the grace", async () => {
  const town = await new Town().write(1);
  const partition = "run/default:brief";
  town.writer.record(event.signal(partition), { partition, kind: EventKind.historyExpired, payload: new Uint8Array(0) });
  for (let i = 0; i < 20; i++) town.writer.record(event.signal("run/default:long"), event.signal("run/default:long"));
  await town.write(1);
  town.expired.set(partition, 1);
  const { compactor } = town.node(town.sealed, { ...policy, segmentsMin: 99 });
  const numbers: (number | undefined)[] = [];
  const look = async () => {
    await compactor.look();
    numbers.push((await town.sealed.cold.manifests.newest(shard))?.manifest.number);
  };
  await look();
  town.nowMs += graceMs - 1;
  await look();
  town.nowMs += 1;
  await look();
  expect(numbers).toEqual([2, 2, 3]);
});
