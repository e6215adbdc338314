/** Who caused an event, where it was no person and no worker. */
import { type Partition, runOf } from "#core/base";
import type { IdentityInit } from "#proto";

/** Whoever is behind the sending run is in that run's history. */
export function senderIdentity(from: Partition): IdentityInit {
  return { issuer: "run", subject: runOf(from), verified: true };
}
