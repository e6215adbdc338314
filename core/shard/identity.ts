/** Who caused an event, where it was no person and no worker. */
import { isKey, isSchedule, type Partition, runOf } from "#core/base";
import type { IdentityInit } from "#proto";

/** Whoever is behind the sending run, schedule or key, is in its history. */
export function senderIdentity(from: Partition): IdentityInit {
  return { issuer: isSchedule(from) ? "schedule" : isKey(from) ? "key" : "run", subject: runOf(from), verified: true };
}
