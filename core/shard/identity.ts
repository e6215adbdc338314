/** Who caused an event, where it was no person and no worker. */
import { isSchedule, type Partition, runOf } from "#core/base";
import type { IdentityInit } from "#proto";

/** Whoever is behind the sending run, or schedule, is in its history. */
export function senderIdentity(from: Partition): IdentityInit {
  return { issuer: isSchedule(from) ? "schedule" : "run", subject: runOf(from), verified: true };
}
