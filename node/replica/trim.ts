/**
 * What a replica may forget of its shard's log: what object storage has, as events and as states.
 *
 * Forgotten is only what nobody will ask this log for again: the replica itself begins behind its own
 * saved states, or behind the uploaded ones where it loses those; members that follow are sent
 * what they have not yet got; histories are read from sealed segments.
 */
import { asIndex, doIfAvailable, type Index, type NodeId, type ShardId } from "#core/base";
import { decodeHeader } from "#core/shard";
import type { CheckpointStore, LogStore } from "#store";
import type { Group } from "./group.ts";
import type { ReplicaSurroundings } from "./surroundings.ts";

export interface TrimPolicy {
  /** What is sealed stays until the shard's records in the log have so many bytes. */
  readonly keptBytes: number;
  /** Bytes of the shard's records in the log, about. */
  readonly bytesOf: (shard: ShardId) => number;
  /** Records through there were read by all others who read the node's log. */
  readonly readThrough: (shard: ShardId) => Index;
}

interface Trimmable {
  readonly shard: ShardId;
  /** Where the replica's saved states begin to be led on. */
  readonly savedThrough: number;
  /** The same of the states in object storage, as the saved header tells. */
  readonly storedThrough: number;
  /** Every member that is heard of has the log through here. */
  readonly heldThrough: number;
}

/** What was saved outlives a loss of power; false where that can't be had now. */
export const isSynced = (checkpoint: CheckpointStore): boolean => doIfAvailable(() => checkpoint.sync());

/** Looks again and again whether one replica's log may forget more. */
export class TrimRound {
  private readonly shard: ShardId;
  private readonly around: ReplicaSurroundings;
  /** As of the last checkpoint. */
  private saved = { savedThrough: 0, storedThrough: 0 };

  constructor(shard: ShardId, around: ReplicaSurroundings) {
    this.shard = shard;
    this.around = around;
  }

  /** Only trimming asks for it: without object storage no header is decoded. */
  noteSaved(savedThrough: number, header: Uint8Array | undefined): void {
    if (this.around.trimming === undefined) return;
    this.saved = { savedThrough, storedThrough: header === undefined ? 0 : decodeHeader(header).statesThrough };
  }

  /** What can't be forgotten yet is looked at again with everything else. */
  look(group: Group): void {
    const { trimming, log, self } = this.around;
    if (trimming === undefined || this.saved.storedThrough <= log.base(this.shard).index) return;
    trimLog(this.around, { shard: this.shard, ...this.saved, heldThrough: heldThrough(group, self) }, trimming);
  }
}

/** Who leads sends records to members that lack them, for as long as those are heard of. */
function heldThrough(group: Group, self: NodeId): number {
  const { progress, lastIndex } = group.status();
  if (!group.leads) return lastIndex;
  const active = [...progress].filter(([node, { recentActive }]) => node !== self && recentActive);
  return Math.min(lastIndex, ...active.map(([, { match }]) => match));
}

/** Forgets as much as may be. Cheap where there is nothing to forget. */
function trimLog(
  { log, checkpoint }: { readonly log: LogStore; readonly checkpoint: CheckpointStore },
  { shard, savedThrough, storedThrough, heldThrough }: Trimmable,
  { keptBytes, bytesOf, readThrough }: TrimPolicy,
): void {
  const base = log.base(shard).index;
  if (storedThrough <= base) return;
  if (keptBytes > 0 && bytesOf(shard) < keptBytes) return;
  const through = asIndex(Math.min(savedThrough, storedThrough, heldThrough, readThrough(shard)));
  if (through <= base) return;
  // The log may not begin behind states that a loss of power would take back.
  if (!isSynced(checkpoint)) return;
  log.compact(shard, through);
  log.release(shard, through);
}
