/**
 * Deletes objects of a shard that no manifest needs any more, and names what it deletes.
 *
 * - An object goes when the newest manifest has not named it for the whole grace, as who leads the
 *   shard has seen it: whoever reads by an older manifest has read a newer one by then.
 * - What ends behind what is sealed stays: somebody may be about to name it.
 * - Old manifests go after the same grace, the lowest number first, and the newest ones stay: the chain
 *   is looked at from the one before the newest.
 *
 * A listing may be old: what it does not show yet goes later, and what it shows is asked for by name.
 */
import { bytesEqual, type ShardId } from "#core/base";
import { type Manifest, type ManifestLog, manifestNumber, manifestPrefix, type ObjectStore, rangeEnd, shardPrefixes } from "#store";
import { rebuiltElsewhere } from "../restore/claims.ts";
import type { Note } from "../shard/shard-host.ts";
import type { Timing } from "../timing.ts";
import type { SealableShard } from "./sealer.ts";

export interface GarbagePolicy {
  readonly graceMs: number;
  /** Between two looks at one shard: each lists its objects. */
  readonly everyMs: number;
  readonly manifestsKept: number;
}

export interface GarbageParts extends GarbagePolicy {
  readonly cluster: string;
  readonly restoreEpoch: number;
  readonly objects: ObjectStore;
  readonly manifests: ManifestLog;
  readonly timing: Timing;
  readonly note: Note;
}

/** Of what nobody set otherwise. */
export const garbageDefault: GarbagePolicy = { graceMs: 24 * 3600 * 1000, everyMs: 3600 * 1000, manifestsKept: 10 };

/** Named in one line of the node's log. */
const namedMax = 20;

interface Seen {
  atMs: number;
  /** Since when each key has been of no use. */
  readonly since: Map<string, number>;
}

export class Garbage {
  readonly graceMs: number;
  private readonly parts: GarbageParts;
  private readonly seen = new Map<ShardId, Seen>();

  constructor(parts: GarbageParts) {
    this.parts = parts;
    this.graceMs = parts.graceMs;
  }

  /** The shards that are led here: what was seen of others counts for nothing any more. */
  lookAfter(shards: readonly ShardId[]): void {
    for (const shard of this.seen.keys()) if (!shards.includes(shard)) this.seen.delete(shard);
  }

  /** Returns what it deleted. Cheap between two looks. */
  async collect(shard: SealableShard): Promise<string[]> {
    const { timing, everyMs, manifests, objects, cluster, restoreEpoch } = this.parts;
    const nowMs = timing.monotonicMs();
    const seen = this.seen.get(shard.shard) ?? { atMs: Number.NEGATIVE_INFINITY, since: new Map<string, number>() };
    if (nowMs - seen.atMs < everyMs) return [];
    this.seen.set(shard.shard, seen);
    seen.atMs = nowMs;
    const newest = await manifests.newest(shard.shard);
    const header = shard.header();
    // What the log does not tell of may be another one's.
    if (newest?.manifest.number !== header.manifest || !bytesEqual(newest.sha256, header.manifestSha256)) return [];
    const useless = await this.useless(newest.manifest);
    for (const key of seen.since.keys()) if (!useless.has(key)) seen.since.delete(key);
    for (const key of useless) if (!seen.since.has(key)) seen.since.set(key, nowMs);
    const due = [...seen.since].filter(([, sinceMs]) => nowMs - sinceMs >= this.graceMs).map(([key]) => key);
    // A cluster that was rebuilt from here goes by manifests of its own.
    if (due.length === 0 || (await rebuiltElsewhere(objects, cluster, restoreEpoch)) !== undefined) return [];
    const [old, others] = [due.filter((key) => manifestNumber(key) !== undefined), due.filter((key) => manifestNumber(key) === undefined)];
    if (others.length > 0) await objects.delete(others);
    for (const key of old.sort()) await objects.delete([key]);
    for (const key of due) seen.since.delete(key);
    this.tell(shard.shard, due);
    return due;
  }

  private async useless(newest: Manifest): Promise<Set<string>> {
    const { cluster, objects, manifestsKept } = this.parts;
    const { shard, number } = newest;
    const named = namedBy(newest);
    const useless = new Set<string>();
    for (const prefix of shardPrefixes(cluster, shard))
      for await (const { key } of objects.list(prefix)) if (!named.has(key) && isBehind(key, newest)) useless.add(key);
    for await (const { key } of objects.list(manifestPrefix(cluster, shard)))
      if ((manifestNumber(key) ?? number) <= number - manifestsKept) useless.add(key);
    return useless;
  }

  private tell(shard: ShardId, keys: readonly string[]): void {
    for (let from = 0; from < keys.length; from += namedMax)
      this.parts.note("info", "garbage deleted", { shard, keys: keys.slice(from, from + namedMax).join(" ") });
  }
}

function namedBy({ segments, checkpoint, records }: Manifest): Set<string> {
  const keys = segments.flatMap(({ segment, index }) => [segment, index]);
  return new Set([...keys, ...(checkpoint?.parts ?? []).map(({ key }) => key), ...records.map(({ key }) => key)]);
}

/** No manifest to come can name it: those go on behind what is sealed, and states only get newer. */
function isBehind(key: string, { through, checkpoint }: Manifest): boolean {
  const range = rangeEnd(key);
  if (range === undefined) return false;
  return range.kind === "checkpoint" ? range.last < (checkpoint?.appliedIndex ?? 0) : range.last <= through;
}
