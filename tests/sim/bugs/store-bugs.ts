/** Bugs of what goes to object storage, and of what is forgotten then. */
import { bug, type PlantedBug } from "./planted-bug.ts";

export const storeBugs: readonly PlantedBug[] = [
  bug(
    "manifest-without-a-condition",
    "A manifest is put over the one of another leader",
    "store/manifest/manifest-log.ts",
    "bytes, { ifAbsent: true, sha256 }",
    "bytes, { sha256 }",
    ["sealedIsCommitted", "endsInTime", "InvariantError"],
  ),
  bug(
    "not-read-back",
    "What was uploaded counts as stored before it has been read back",
    "node/seal/object-put.ts",
    "const size = await objects.download(key, () => {}, { sha256 });",
    "const size: number | undefined = bytes.length;",
    ["sealedIsCommitted", "endsInTime", "InvariantError"],
  ),
  bug(
    "sealed-before-it-is-committed",
    "What a leader has appended is sealed before it is committed",
    "node/seal/sealing.ts",
    "asIndex(Math.min(replica.replica.appliedIndex, log.durableIndex(shard)))",
    "log.lastIndex(shard)",
    ["sealedIsCommitted", "InvariantError"],
  ),
  bug(
    "forgotten-before-it-is-sealed",
    "A replica forgets what object storage does not have",
    "node/replica/trim.ts",
    "Math.min(savedThrough, storedThrough, heldThrough, readThrough(shard))",
    "Math.min(savedThrough, heldThrough, readThrough(shard))",
    ["endsInTime", "sealedIsCommitted", "InvariantError", "Error", "ReleasedError"],
  ),
  bug(
    "parent-forgotten-before-its-child-is-sealed",
    "A lone node that loses its states can't give birth to a child again",
    "node/seal/forgettable.ts",
    "if ((await parts.tier.newest(relative.shard))?.manifest.checkpoint === undefined) return before;",
    "",
    ["endsInTime", "changesEnd", "comesUp", "replicasAreEqual", "InvariantError"],
  ),
];
