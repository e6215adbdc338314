/**
 * Measures one history out of a large store in object storage: found, read and proven.
 *
 *     bun scripts/bench-store.ts --folder DIR [--events 10000000] [--segment-bytes 67108864] [--url URL]
 *
 * The store is built in DIR/objects by what seals logs, unless it is there already, which takes
 * minutes; DIR/runs.json says what is in it. `--url` reads the same objects through a server.
 *
 * Three readers, each in processes of its own. `cold`: a node that has just started and knows where
 * a run's last record is, from its states. `warm`: the same node, other histories. `bucket`: who has
 * nothing but the bucket, as `hop audit --object-store` has. Times are from the first request to the
 * proof; the start of the process is not among them. Bytes are those of all answers, manifests included.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { asIndex, asSeq, asShardId, bytesEqual, fromHex, keyMax, type Partition, type RunId, toHex } from "#core/base";
import { HistoryVerifier, inclusionProof, NodeList, verifyInclusion } from "#core/merkle";
import {
  type Manifest,
  ManifestLog,
  type ObjectStore,
  ObjectTier,
  openObjectStore,
  type RecordToSeal,
  type SegmentEntry,
  sealInPlace,
  sealSegment,
} from "#store";
import { coldSource } from "../cmd/cold/cold-history.ts";
import { ColdPlace } from "../cmd/cold/cold-place.ts";
import { hasher } from "../node/hasher.ts";
import { BlobUploads } from "../node/seal/blob-uploads.ts";
import { sealPolicyDefault } from "../node/seal/seal-policy.ts";
import { ShardUploads } from "../node/seal/shard-uploads.ts";
import { realTiming } from "../node/timing.ts";
import { busyShard, RecordMaker } from "../store/segment/sealed/records-fixture.ts";
import { bun } from "./command.ts";

const cluster = "hop_00000000000be9c4";
const shard = asShardId(1);
const runEvents = 36;
const samples = 200;
const coldProcesses = 9;
const warmReads = 60;

/** A run of the store, as a node's states know it. */
interface Run {
  readonly partition: string;
  readonly lastIndex: number;
  readonly size: number;
  readonly root: string;
}

interface Store {
  readonly events: number;
  readonly segments: number;
  readonly bytes: number;
  readonly runs: readonly Run[];
}

interface Figures {
  readonly wallMs: number;
  readonly cpuMs: number;
  readonly bytes: number;
  readonly requests: number;
}

async function build(folder: string, { events, segmentBytes }: { readonly events: number; readonly segmentBytes: number }): Promise<Store> {
  const objects = openObjectStore(`file://${join(folder, "objects")}`);
  const blobs = new BlobUploads({ cluster, objects, blob: () => Promise.reject(new Error("no event names a blob")) });
  const uploads = new ShardUploads({ cluster, objects, work: sealInPlace, timing: realTiming, blobs });
  const maker = new RecordMaker();
  const segments: SegmentEntry[] = [];
  const begunMs = performance.now();
  let records: RecordToSeal[] = [];
  let bytes = 0;
  const seal = async () => {
    const [first, last] = [records[0], records.at(-1)] as [RecordToSeal, RecordToSeal];
    const sealed = await sealSegment(records, { shard, firstIndex: first.index, lastIndex: last.index });
    segments.push(await uploads.segment(sealed));
    records = [];
    bytes = 0;
    const done = segments.reduce((sum, { summary }) => sum + summary.rows, 0);
    console.error(`${done} events in ${segments.length} segments, ${Math.round((performance.now() - begunMs) / 1000)} s`);
  };
  for (const record of busyShard(events, maker)) {
    records.push(record);
    bytes += record.body.length;
    if (bytes >= segmentBytes) await seal();
  }
  if (records.length > 0) await seal();
  await publish(new ManifestLog(objects, cluster, hasher), segments);
  await objects.close();
  const whole = [...maker.chains.values()].filter(({ size }) => size === runEvents);
  const runs = Array.from({ length: samples }, (_, i) => {
    const chain = whole[Math.floor((i * whole.length) / samples)] as (typeof whole)[number];
    return { partition: chain.partition, lastIndex: chain.lastIndex, size: chain.size, root: toHex(chain.root(hasher)) };
  });
  const sum = (of: (entry: SegmentEntry) => number) => segments.reduce((total, entry) => total + of(entry), 0);
  const store = {
    events: sum(({ summary }) => summary.rows),
    segments: segments.length,
    bytes: sum(({ summary }) => summary.segmentBytes + summary.indexBytes),
    runs,
  };
  writeFileSync(join(folder, "runs.json"), JSON.stringify(store));
  return store;
}

/** The last two: whoever looks for the newest one reads the one before it as well. */
async function publish(manifests: ManifestLog, segments: readonly SegmentEntry[]): Promise<void> {
  let previous: Uint8Array | undefined;
  for (const [i, end] of [segments.length - 1, segments.length].entries()) {
    const some = segments.slice(0, Math.max(1, end));
    const manifest: Manifest = {
      cluster,
      restoreEpoch: 1,
      shard,
      number: i + 1,
      previous,
      writer: { node: 1, epoch: 1 },
      range: { first: 0, last: keyMax },
      ancestors: [],
      through: asIndex((some.at(-1) as SegmentEntry).summary.lastIndex),
      clockMs: 1,
      segments: some,
      checkpoint: undefined,
      records: [],
    };
    const published = await manifests.publish(manifest);
    if (published.kind === "lost") throw new Error("the folder holds other manifests: give an empty one");
    previous = published.sha256;
  }
}

/** Follows the history, holds it against the root, and proves its first event. Throws where anything is wrong. */
async function prove(run: Run, events: AsyncIterable<readonly Uint8Array[]>): Promise<void> {
  const verifier = new HistoryVerifier(hasher, { partition: run.partition });
  const nodes = new NodeList(hasher);
  for await (const chunk of events)
    for (const event of chunk) {
      const fault = verifier.add(event);
      if (fault !== undefined) throw new Error(JSON.stringify(fault));
      nodes.append(verifier.lastHash);
    }
  const root = fromHex(run.root) as Uint8Array;
  const verdict = verifier.finish({ size: run.size, root });
  if (!verdict.ok) throw new Error(JSON.stringify(verdict.fault));
  const proof = inclusionProof(nodes, { seq: 0, size: run.size });
  if ("reject" in proof || !verifyInclusion(hasher, { leaf: nodes.node(0), proof, root }))
    throw new Error(`${run.partition} is not proven`);
  if (!bytesEqual(verdict.head.root, root)) throw new Error(`${run.partition} has another root`);
}

/** What is got through the store from now on. */
function counted(objects: ObjectStore): { bytes: number; requests: number } {
  const seen = { bytes: 0, requests: 0 };
  const { get, head } = { get: objects.get.bind(objects), head: objects.head.bind(objects) };
  objects.get = async (key, options) => {
    seen.requests++;
    const bytes = await get(key, options);
    seen.bytes += bytes?.length ?? 0;
    return bytes;
  };
  objects.head = (key, options) => {
    seen.requests++;
    return head(key, options);
  };
  return seen;
}

async function measured(seen: { bytes: number; requests: number }, work: () => Promise<void>): Promise<Figures> {
  const [bytes, requests] = [seen.bytes, seen.requests];
  const used = process.cpuUsage();
  const begunMs = performance.now();
  await work();
  const wallMs = performance.now() - begunMs;
  const { user, system } = process.cpuUsage(used);
  return { wallMs, cpuMs: (user + system) / 1000, bytes: seen.bytes - bytes, requests: seen.requests - requests };
}

/** In a process of its own: the first figures are of one that has read nothing before. */
async function read(url: string, runs: readonly Run[], reader: string): Promise<Figures[]> {
  const figures: Figures[] = [];
  if (reader === "bucket") {
    await using place = await ColdPlace.open({ objectStore: url, cluster }, process.env);
    const seen = counted(place.objects);
    for (const run of runs)
      figures.push(await measured(seen, () => prove(run, coldSource(place, run.partition.slice("run/".length) as RunId).events())));
    return figures;
  }
  const objects = openObjectStore(url, { forReading: true });
  const seen = counted(objects);
  const tier = new ObjectTier(objects, new ManifestLog(objects, cluster, hasher));
  for (const run of runs) figures.push(await measured(seen, () => prove(run, eventsOf(tier, run))));
  await objects.close();
  return figures;
}

/** As a node reads it: from the record of its last event back, a segment at a time. */
async function* eventsOf(tier: ObjectTier, { partition, lastIndex, size }: Run): AsyncGenerator<Uint8Array[]> {
  const pieces: (() => AsyncGenerator<Uint8Array[]>)[] = [];
  let place: { shard: typeof shard; index: ReturnType<typeof asIndex> } | undefined = { shard, index: asIndex(lastIndex) };
  for (let end = asSeq(size); place !== undefined; ) {
    const found = await tier.history({ partition: partition as Partition, place, firstSeq: asSeq(0), endSeq: end });
    if (found === undefined) throw new Error(`record ${place.index} is not sealed`);
    pieces.unshift(() => found.events());
    place = found.previous as typeof place;
    end = found.firstSeq;
  }
  for (const events of pieces) yield* events();
}

const median = (values: number[]) => values.sort((a, b) => a - b)[values.length >> 1] as number;

function told(name: string, figures: readonly Figures[]): void {
  const of = (pick: (each: Figures) => number, digits: number) =>
    `${median(figures.map(pick)).toFixed(digits)} (at most ${Math.max(...figures.map(pick)).toFixed(digits)})`;
  console.log(
    `${name}: ${of((each) => each.wallMs, 1)} ms, ${of((each) => each.cpuMs, 1)} ms of CPU, ${of((each) => each.bytes / 1000, 0)} KB, ` +
      `${of((each) => each.requests, 0)} requests; ${figures.length} histories`,
  );
}

async function inProcess(folder: string, url: string, reader: string, runs: readonly number[]): Promise<Figures[]> {
  const child = Bun.spawn([bun, import.meta.path, "--folder", folder, "--url", url, "--reader", reader, "--runs", runs.join()], {
    stdout: "pipe",
    stderr: "inherit",
    env: process.env,
  });
  const out = await new Response(child.stdout).text();
  if ((await child.exited) !== 0) throw new Error(`reading as ${reader} failed`);
  return JSON.parse(out) as Figures[];
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      folder: { type: "string" },
      events: { type: "string", default: "10000000" },
      "segment-bytes": { type: "string", default: String(sealPolicyDefault.bytesMax) },
      url: { type: "string" },
      reader: { type: "string" },
      runs: { type: "string" },
    },
  });
  const { folder, reader } = values;
  if (folder === undefined) throw new Error("Cannot measure without a folder: give --folder DIR, where the store is or is to be built");
  const url = values.url ?? `file://${join(folder, "objects")}`;
  const known = join(folder, "runs.json");
  if (reader !== undefined) {
    const { runs } = JSON.parse(readFileSync(known, "utf8")) as Store;
    const wanted = (values.runs ?? "").split(",").map((at) => runs[Number(at)] as Run);
    console.log(JSON.stringify(await read(url, wanted, reader)));
    return;
  }
  mkdirSync(folder, { recursive: true });
  const store = existsSync(known)
    ? (JSON.parse(readFileSync(known, "utf8")) as Store)
    : await build(folder, { events: Number(values.events), segmentBytes: Number(values["segment-bytes"]) });
  console.log(`${store.events} events in ${store.segments} segments, ${Math.round(store.bytes / 1e6)} MB, at ${url}`);
  const at = (i: number) => (i * 7919) % store.runs.length;
  const cold: Figures[] = [];
  const bucket: Figures[] = [];
  for (let i = 0; i < coldProcesses; i++) {
    cold.push(...(await inProcess(folder, url, "node", [at(i)])));
    bucket.push(...(await inProcess(folder, url, "bucket", [at(i)])));
  }
  const warm = await inProcess(
    folder,
    url,
    "node",
    Array.from({ length: warmReads }, (_, i) => at(i)),
  );
  told("cold", cold);
  told("warm", warm.slice(warmReads / 2));
  told("bucket", bucket);
}

await main();
