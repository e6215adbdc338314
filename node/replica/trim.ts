/**
 * What a replica may forget of its shard's log: what object storage has, as events and as states.
 *
 * Forgotten is only what nobody will ask this log for again: the replica itself begins behind its own
 * saved states, or behind the uploaded ones where it loses those; members that follow are sent
 * what they have not yet got; histories are read from sealed segments.
 */
import { asIndex, type Index, type NodeId, type ShardId } from "#core/base";
import { decodeHeader } from "#core/shard";
import type { LogStore } from "#store";
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

/** Looks again and again whether one replica's log may forget more. */
export class TrimRound {
  private readonly shard: ShardId;
  private readonly around: ReplicaSurroundings;
  /** As of the last checkpoint. */
  private saved = { savedThrough: 0, storedThrough: 0 };
  private readonly gone: AbortSignal;
  private isSyncing = false;

  /** `gone`: the replica is over. */
  constructor(shard: ShardId, around: ReplicaSurroundings, gone: AbortSignal) {
    this.shard = shard;
    this.around = around;
    this.gone = gone;
  }

  /** Only trimming asks for it: without object storage no header is decoded. */
  noteSaved(savedThrough: number, header: Uint8Array | undefined): void {
    if (this.around.trimming === undefined) return;
    this.saved = { savedThrough, storedThrough: header === undefined ? 0 : decodeHeader(header).statesThrough };
  }

  /** What can't be forgotten yet is looked at again with everything else. */
  look(group: Group): void {
    const { trimming, log, checkpoint, self } = this.around;
    if (this.isSyncing || trimming === undefined || this.saved.storedThrough <= log.base(this.shard).index) return;
    const wanted = { shard: this.shard, ...this.saved, heldThrough: heldThrough(group, self) };
    const through = forgettable(log, wanted, trimming);
    if (through === undefined) return;
    this.isSyncing = true;
    // The log may not begin behind states that a loss of power would take back.
    checkpoint.syncAside((isSynced) => {
      this.isSyncing = false;
      if (!isSynced || this.gone.aborted || through <= log.base(this.shard).index) return;
      log.compact(this.shard, through);
      log.release(this.shard, through);
    });
  }
}

/** Who leads sends records to members that lack them, for as long as those are heard of. */
function heldThrough(group: Group, self: NodeId): number {
  const { progress, lastIndex } = group.status();
  if (!group.leads) return lastIndex;
  const active = [...progress].filter(([node, { recentActive }]) => node !== self && recentActive);
  return Math.min(lastIndex, ...active.map(([, { match }]) => match));
}

/** As much as may be forgotten; undefined where there is nothing. Cheap then. */
function forgettable(
  log: LogStore,
  { shard, savedThrough, storedThrough, heldThrough }: Trimmable,
  { keptBytes, bytesOf, readThrough }: TrimPolicy,
): Index | undefined {
  const base = log.base(shard).index;
  if (storedThrough <= base) return undefined;
  if (keptBytes > 0 && bytesOf(shard) < keptBytes) return undefined;
  const through = asIndex(Math.min(savedThrough, storedThrough, heldThrough, readThrough(shard)));
  return through <= base ? undefined : through;
}
