/**
 * A run's history out of object storage alone: its last sealed events are found through manifests and
 * indexes, and the rest by going back from record to record, also into the logs of other shards.
 */
import { asSeq, HopError, type RunId, runPartition, toHex } from "#core/base";
import { decodeEvent, EventKind, fromBytes } from "#proto";
import { blobKey, eventSeq, ObjectTier, type SealedHistory, type SegmentEntry } from "#store";
import { AuditError, type HistorySource } from "../audit/history-audit.ts";
import { CommandError, exit } from "../failure.ts";
import { firstFound, inParallel } from "../parallel.ts";
import type { ColdPlace } from "./cold-place.ts";
import { newestFirst } from "./sealed-segments.ts";

export function coldSource(place: ColdPlace, run: RunId): HistorySource {
  return {
    partition: runPartition(run),
    events: () => eventsOf(place, run),
    blob: async (sha256) => {
      const bytes = await place.objects.get(blobKey(place.cluster, sha256), { sha256 });
      if (bytes !== undefined) return bytes;
      throw new HopError("BLOB_NOT_FOUND", `${place.objects.url} has no blob ${toHex(sha256)}`);
    },
    // Nobody is asked: what is there is all that there is.
    claimed: () => Promise.resolve(undefined),
  };
}

async function* eventsOf(place: ColdPlace, run: RunId): AsyncGenerator<Uint8Array[]> {
  const tier = new ObjectTier(place.objects, place.manifests);
  const pieces = [await lastPiece(place, tier, run)];
  for (let first = pieces[0] as SealedHistory; first.previous !== undefined; first = pieces[0] as SealedHistory) {
    const before = await pieceBefore(tier, run, first);
    if (before instanceof Error) {
      // Retention removes events once the one that says so is sealed.
      const begin = await lastExpiry(pieces);
      if (begin === undefined) throw before;
      yield* from(pieces, begin);
      return;
    }
    pieces.unshift(before);
  }
  for (const piece of pieces) yield* piece.events();
}

async function pieceBefore(tier: ObjectTier, run: RunId, { previous, firstSeq }: SealedHistory): Promise<SealedHistory | Error> {
  const place = previous as NonNullable<typeof previous>;
  try {
    const before = await tier.history({ partition: runPartition(run), place, firstSeq: asSeq(0), endSeq: firstSeq });
    return (
      before ??
      new AuditError(
        `Event ${firstSeq - 1} of ${runPartition(run)} is not sealed, though event ${firstSeq} is: no manifest has record ${place.index} of shard ${place.shard}`,
      )
    );
  } catch (error) {
    if (error instanceof HopError && error.reason === "HASH_MISMATCH") return error;
    throw error;
  }
}

/** Seq of the last event that says that those before it expired. */
async function lastExpiry(pieces: readonly SealedHistory[]): Promise<number | undefined> {
  for (const piece of pieces.toReversed()) {
    let found: number | undefined;
    for await (const events of piece.events())
      for (const event of events) if (fromBytes(decodeEvent, event).kind === EventKind.historyExpired) found = eventSeq(event);
    if (found !== undefined) return found;
  }
  return undefined;
}

async function* from(pieces: readonly SealedHistory[], begin: number): AsyncGenerator<Uint8Array[]> {
  for (const piece of pieces)
    for await (const events of piece.events()) {
      const wanted = events.filter((event) => eventSeq(event) >= begin);
      if (wanted.length > 0) yield wanted;
    }
}

/** Shards at one time, and segments of each. */
const shardsAtOnce = 4;
const segmentsAtOnce = 8;

/** What the newest segment with the run has of it. Shards that it has left have older events of it. */
async function lastPiece(place: ColdPlace, tier: ObjectTier, run: RunId): Promise<SealedHistory> {
  const partition = runPartition(run);
  const pieceIn = async (entry: SegmentEntry): Promise<SealedHistory | undefined> => {
    const reader = tier.reader(entry);
    return (await reader.mayHold(partition)) ? reader.history(partition) : undefined;
  };
  let last: SealedHistory | undefined;
  const stored = await place.newestStored();
  for (const each of stored) tier.note(each);
  const newest = await inParallel(stored, shardsAtOnce, ({ manifest }) =>
    firstFound(newestFirst(manifest, partition), segmentsAtOnce, pieceIn),
  );
  for (const found of newest) if (found !== undefined && found.endSeq > (last?.endSeq ?? 0)) last = found;
  if (last !== undefined) return last;
  throw new CommandError(exit.notFound, `Cannot audit ${run}: no segment at ${place.objects.url} holds an event of it`, {
    next: "what is not sealed yet is on the nodes: ask a server by leaving --object-store away",
  });
}
