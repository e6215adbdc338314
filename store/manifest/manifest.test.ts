import { expect, test } from "bun:test";
import { asIndex, asShardId, asTerm, type Partition, Prng, wholeRange } from "#core/base";
import { bunHasher, digest } from "../../tests/hashers.ts";
import { MemoryBucket, MemoryObjectStore, type ObjectSchedule } from "../objects/memory-object-store.ts";
import type { ObjectFaults } from "../objects/object-fault.ts";
import { decodeManifest, encodeManifest, type Manifest, type SegmentEntry } from "./manifest.ts";
import { ManifestLog } from "./manifest-log.ts";
import { manifestKey } from "./object-names.ts";

const cluster = "hop_0123456789abcdef";
const shard = asShardId(7);
const hashOf = (text: string) => digest(new TextEncoder().encode(text));

function segment(first: number, last: number): SegmentEntry {
  const name = `${first}-${last}`;
  return {
    segment: `${cluster}/segment/${name}.parquet`,
    index: `${cluster}/index/${name}.idx`,
    summary: {
      format: 1,
      shard,
      firstIndex: asIndex(first),
      lastIndex: asIndex(last),
      terms: [{ first: asIndex(first), term: asTerm(3) }],
      rows: 12,
      segmentBytes: 4096,
      segmentSha256: hashOf(`segment ${name}`),
      indexBytes: 512,
      indexSha256: hashOf(`index ${name}`),
      directoryAt: 300,
      directorySha256: hashOf(`directory ${name}`),
      digest: hashOf(`digest ${name}`),
      extent: {
        firstPartition: "run/default:ä" as Partition,
        lastPartition: "run/default:€" as Partition,
        firstKey: 1,
        lastKey: 2 ** 48 - 1,
        firstTimeMs: 1_800_000_000_000,
        lastTimeMs: 1_800_000_000_900,
      },
    },
  };
}

function manifest(number: number, previous: Uint8Array | undefined, more: Partial<Manifest> = {}): Manifest {
  const segments = Array.from({ length: number }, (_, i) => segment(i * 10 + 1, i * 10 + 10));
  return {
    cluster,
    restoreEpoch: 1,
    shard,
    number,
    previous,
    writer: { node: 2, epoch: 5 },
    range: wholeRange,
    ancestors: [asShardId(1)],
    through: asIndex(number * 10),
    clockMs: 1_800_000_000_900,
    segments,
    checkpoint: { appliedIndex: asIndex(4), range: wholeRange, parts: [{ key: "c", bytes: 9, sha256: hashOf("c") }] },
    records: [{ key: "r", bytes: 9, sha256: hashOf("r"), first: asIndex(5), last: asIndex(number * 10) }],
    ...more,
  };
}

/** Waits are over soon. */
const schedule: ObjectSchedule = {
  after(ms, run) {
    const timer = setTimeout(run, ms / 400);
    return () => clearTimeout(timer);
  },
  fraction: () => 0.5,
  nowMs: () => 1_000_000,
  latencyMs: () => 0,
};

const logOf = (bucket: MemoryBucket, faults: ObjectFaults = () => undefined) =>
  new ManifestLog(new MemoryObjectStore(bucket, { faults, schedule }), cluster, bunHasher);

test("a manifest is read back as it was written", () => {
  for (const each of [manifest(1, undefined), manifest(3, hashOf("p")), manifest(2, hashOf("p"), { checkpoint: undefined, records: [] })])
    expect(decodeManifest(encodeManifest(each), "m")).toEqual(each);
});

test("a changed byte of a manifest is found, or changes a value that its hash covers", () => {
  const good = manifest(2, hashOf("p"));
  const text = encodeManifest(good);
  let refused = 0;
  for (let at = 0; at < text.length; at++) {
    const other = text[at] === "1" ? "2" : "1";
    const changed = text.slice(0, at) + other + text.slice(at + 1);
    try {
      expect(decodeManifest(changed, "m")).not.toEqual(good);
    } catch (error) {
      expect(error).toMatchObject({ reason: "HASH_MISMATCH" });
      refused++;
    }
  }
  expect(refused).toBeGreaterThan(text.length / 3);
  for (const wrong of [
    text.slice(0, -2),
    `${text} `,
    text.replace('"range"', '"reach"'),
    text.replace('{\n "format"', '{\n "more": 1,\n "format"'),
  ])
    expect(() => decodeManifest(wrong, "m")).toThrow("Cannot read the manifest m");
});

test("a manifest of a newer format is refused by name", () => {
  const newer = encodeManifest(manifest(1, undefined)).replace('"format": 1', '"format": 2');
  expect(() => decodeManifest(newer, "m")).toThrow("its format is 2, and this version reads 1: use a newer one");
});

test("a manifest whose parts do not follow each other is refused", () => {
  const gap = { segments: [segment(1, 10), segment(12, 20)] };
  const cases: [Partial<Manifest>, string][] = [
    [gap, "begins at 12, behind one that ends at 10"],
    [{ through: asIndex(19) }, "its segments end at 20, and it is through 19"],
    [{ records: [] }, "its records lead to 4, and it is through 20"],
    [{ previous: undefined }, "its number does not fit"],
  ];
  for (const [wrong, problem] of cases) expect(() => decodeManifest(encodeManifest(manifest(2, hashOf("p"), wrong)), "m")).toThrow(problem);
});

test("of two writers of one number one wins, and the other one is given what is there", async () => {
  const bucket = new MemoryBucket();
  const [a, b] = [manifest(1, undefined), manifest(1, undefined, { writer: { node: 3, epoch: 6 } })];
  const [first, second] = await Promise.all([logOf(bucket).publish(a), logOf(bucket).publish(b)]);
  expect([first.kind, second.kind].sort()).toEqual(["lost", "published"]);
  const lost = first.kind === "lost" ? first : second;
  const newest = await logOf(bucket).newest(shard);
  expect(lost.kind === "lost" && lost.to).toEqual(newest as never);
  expect(newest?.manifest).toEqual(first.kind === "published" ? a : b);
});

test("the newest manifest is found behind an old listing, and an answer that was lost is no lost race", async () => {
  const prng = new Prng(5);
  for (let round = 0; round < 8; round++) {
    const bucket = new MemoryBucket();
    const isHurt = prng.chance(0.5);
    // Listings show nothing of the last minute; every other write is carried out and not answered.
    const faults: ObjectFaults = ({ verb }) => {
      if (verb === "list") return { kind: "stale", ms: 60_000 };
      return verb === "put" && isHurt && prng.chance(0.3) ? { kind: "lost-answer" } : undefined;
    };
    const log = logOf(bucket, faults);
    let previous: Uint8Array | undefined;
    for (let number = 1; number <= 4; number++) {
      const put = await log.publish(manifest(number, previous));
      if (put.kind !== "published") throw new Error(`manifest ${number} was lost`);
      previous = put.sha256;
    }
    expect((await logOf(bucket, faults).newest(shard))?.manifest.number).toBe(4);
    expect(await logOf(bucket, faults).newest(asShardId(8))).toBeUndefined();
  }
});

test("a manifest that does not follow the one before it, or is not where it belongs, is found", async () => {
  const bucket = new MemoryBucket();
  const log = logOf(bucket);
  await log.publish(manifest(1, undefined));
  await log.publish(manifest(2, hashOf("another")));
  await expect(log.newest(shard)).rejects.toThrow("number 2 does not follow the one before it");
  const objects = new MemoryObjectStore(bucket);
  await objects.put(manifestKey(cluster, asShardId(9), 1), new TextEncoder().encode(encodeManifest(manifest(1, undefined))));
  await expect(log.newest(asShardId(9))).rejects.toThrow("it is manifest 1 of shard 7");
});
