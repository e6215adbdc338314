/**
 * One shard's states as object storage has them: those of its uploaded checkpoint, led on by the
 * records that were uploaded behind it.
 *
 * The records are folded in here and not put into the new log: memberships in them are of nodes
 * that are gone, and what splits in them gave birth to may be uploaded by itself.
 */
import { asIndex, asTerm, type Hasher, HopError, type Index, type ShardId, type Term, toHex, wholeRange } from "#core/base";
import { noConf } from "#core/raft";
import { ShardMachine } from "#core/shard";
import { encodeConfState, encodeRecord, type ShardHeader, toBytes } from "#proto";
import { type Manifest, type ObjectStore, type RecordsEntry, type StoredManifest, segmentReader, unpackRecords } from "#store";
import { unpackChunks } from "../seal/chunk-objects.ts";
import { takeStoredStates } from "../seal/stored-states.ts";
import type { Storage } from "../storage.ts";

export interface ShardStatesParts {
  readonly objects: ObjectStore;
  readonly storage: Pick<Storage, "log" | "checkpoint" | "projector">;
  readonly hasher: Hasher;
  readonly signal: AbortSignal;
}

/** A shard whose states are in the storage. */
export interface ReplayedShard {
  readonly stored: StoredManifest;
  readonly header: ShardHeader;
  readonly clockMs: number;
  readonly through: Index;
  /** Of its last record. */
  readonly term: Term;
}

/** States that wait in memory to be saved. */
const dirtyMax = 2048;
const rowsMax = 512;

/** Puts the states of the manifest's shard in place of what the storage has of its keys. Rejects with `HopError`. */
export async function restoreStates(parts: ShardStatesParts, stored: StoredManifest): Promise<ReplayedShard> {
  const { objects, storage, hasher } = parts;
  const { manifest } = stored;
  const { shard, through } = manifest;
  const stores = { log: storage.log, checkpoint: storage.checkpoint, projector: storage.projector, hasher };
  const received = await takeStoredStates({ objects, stores, manifests: { newest: async () => stored } }, shard);
  if (received === undefined)
    throw new HopError("HASH_MISMATCH", `Cannot restore shard ${shard}: manifest ${manifest.number} names no states of it`);
  const replay = new Replay(parts, shard);
  await projectGap(parts, manifest, storage.projector.appliedIndex(shard));
  for (const entry of manifest.records) {
    parts.signal.throwIfAborted();
    replay.take(await recordsOf(objects, entry));
  }
  storage.projector.begin(shard, through);
  const { header, clockMs } = replay.finish(through);
  return { stored, header, clockMs: Math.max(clockMs, manifest.clockMs), through, term: lastTerm(manifest) };
}

const lastTerm = ({ segments }: Manifest): Term => segments.at(-1)?.summary.terms.at(-1)?.term ?? asTerm(1);

/** The bytes of records as the log had them. */
async function recordsOf(objects: ObjectStore, { key, sha256 }: RecordsEntry): Promise<Uint8Array[]> {
  const bytes = await objects.get(key, { sha256 });
  if (bytes === undefined)
    throw new HopError(
      "HASH_MISMATCH",
      `Cannot read ${key}: a manifest names it with hash ${toHex(sha256)}, and ${objects.url} does not have it`,
    );
  return [...unpackChunks(bytes, key)];
}

class Replay {
  private readonly parts: ShardStatesParts;
  private readonly shard: ShardId;
  private readonly machine: ShardMachine;
  private next: number;

  constructor(parts: ShardStatesParts, shard: ShardId) {
    this.parts = parts;
    this.shard = shard;
    const { log, checkpoint } = parts.storage;
    const meta = checkpoint.meta(shard);
    if (meta === undefined) throw new HopError("INTERNAL", `The states of shard ${shard} were taken in, and have no place`);
    const { appliedIndex, header, headerIndex, clockMs } = meta;
    this.next = appliedIndex + 1;
    this.machine = new ShardMachine({
      shard,
      log,
      hasher: parts.hasher,
      states: checkpoint.reader(),
      birth: { range: wholeRange, ancestors: [], clockMs: 0 },
      saved: { appliedIndex, header, headerIndex: headerIndex ?? appliedIndex, clockMs },
      idleMs: 0,
    });
  }

  take(batches: readonly Uint8Array[]): void {
    const { projector } = this.parts.storage;
    for (const { index, term, kind, body } of unpackRecords(batches)) {
      projector.apply({ shard: this.shard, index, term, kind, body });
      if (index < this.next) continue;
      this.next = index + 1;
      if (kind === "config" || body.length === 0) this.machine.skip(index);
      else this.machine.recover(index, body);
      this.noteChanges();
      if (this.machine.figures().dirtyRuns >= dirtyMax) this.save();
    }
  }

  finish(through: Index): { readonly header: ShardHeader; readonly clockMs: number } {
    if (this.next <= through)
      throw new HopError("HASH_MISMATCH", `Cannot restore shard ${this.shard}: its records lead to ${this.next - 1}, want ${through}`);
    this.save();
    return { header: this.machine.header(), clockMs: this.machine.clockMs };
  }

  /** The states of a neighbour that was taken in are uploaded with the shard's next checkpoint. */
  private noteChanges(): void {
    for (const { change, index } of this.machine.takeChanges())
      if (change.kind === "absorbed")
        throw new HopError(
          "HASH_MISMATCH",
          `Cannot restore shard ${this.shard}: record ${index} takes shard ${change.value.shard} in, and no states of behind that were uploaded`,
        );
  }

  private save(): void {
    const { machine, shard } = this;
    const { checkpoint } = this.parts.storage;
    const conf = toBytes(encodeConfState, noConf);
    do {
      const { rows, appliedIndex, header, headerIndex } = machine.capture(rowsMax);
      checkpoint.save(rows, { shard, appliedIndex: asIndex(appliedIndex), clockMs: machine.clockMs, conf, header, headerIndex });
      machine.saved();
    } while (machine.figures().dirtyRuns > 0);
    machine.evictIdle(machine.clockMs);
  }
}

/**
 * The index of runs travels with the states and may be behind them: what the uploaded records do not
 * have of what it lacks is in the segments.
 */
async function projectGap(
  { objects, storage }: ShardStatesParts,
  { shard, records, segments, through }: Manifest,
  indexed: number,
): Promise<void> {
  const end = records[0]?.first ?? through + 1;
  const gap = segments.filter(({ summary }) => summary.lastIndex > indexed && summary.firstIndex < end);
  for (const entry of indexed + 1 < end ? gap : []) {
    const events = new Map<number, Uint8Array[]>();
    for await (const rows of segmentReader(objects, entry).rows())
      for (const { index, event } of rows)
        if (index > indexed && index < end) events.set(index, [...(events.get(index) ?? []), event.slice()]);
    for (const [index, event] of [...events].sort(([a], [b]) => a - b))
      storage.projector.apply({ shard, index: asIndex(index), term: asTerm(1), kind: "data", body: toBytes(encodeRecord, { event }) });
  }
}
