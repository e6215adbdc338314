/**
 * A run's history out of object storage alone: its last sealed events are found through manifests and
 * indexes, and the rest by going back from record to record, also into the logs of other shards.
 */
import { asSeq, HopError, type RunId, runPartition, toHex } from "#core/base";
import { blobKey, ObjectTier, type SealedHistory, segmentReader } from "#store";
import { AuditError, type HistorySource } from "../audit/history-audit.ts";
import { CommandError, exit } from "../failure.ts";
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
  const pieces = [await lastPiece(place, run)];
  const tier = new ObjectTier(place.objects, place.manifests);
  for (let first = pieces[0] as SealedHistory; first.previous !== undefined; first = pieces[0] as SealedHistory) {
    const before = await tier.history({ partition: runPartition(run), place: first.previous, firstSeq: asSeq(0), endSeq: first.firstSeq });
    if (before === undefined)
      throw new AuditError(
        `Event ${first.firstSeq - 1} of ${runPartition(run)} is not sealed, though event ${first.firstSeq} is: no manifest has record ${first.previous.index} of shard ${first.previous.shard}`,
      );
    pieces.unshift(before);
  }
  for (const piece of pieces) yield* piece.events();
}

/** What the newest segment with the run has of it. Shards that it has left have older events of it. */
async function lastPiece(place: ColdPlace, run: RunId): Promise<SealedHistory> {
  const partition = runPartition(run);
  let last: SealedHistory | undefined;
  for (const manifest of await place.newestManifests()) {
    for (const entry of newestFirst(manifest, partition)) {
      const reader = segmentReader(place.objects, entry);
      const found = (await reader.mayHold(partition)) ? await reader.history(partition) : undefined;
      if (found === undefined) continue;
      if (last === undefined || found.endSeq > last.endSeq) last = found;
      break;
    }
  }
  if (last !== undefined) return last;
  throw new CommandError(exit.notFound, `Cannot audit ${run}: no segment at ${place.objects.url} holds an event of it`, {
    next: "what is not sealed yet is on the nodes: ask a server by leaving --object-store away",
  });
}
