/**
 * Code of the runs that messages start: a start that names none runs on what is newest where it
 * arrives, as a client's start would, so Core finds the choice made.
 */
import { namespaceOf, type Partition, runOf } from "#core/base";
import { lacksBundle, withBundles } from "#core/run";
import type { Envelope } from "#proto";
import type { Deployments } from "../service/calls.ts";

export type NewestBundles = Pick<Deployments, "newest" | "refresh">;

/**
 * The envelope with a bundle in every start. A type that is not deployed keeps none, and is refused for
 * it. A promise where what other nodes deployed has to be asked for: rejects with `HopError` where that can't be known.
 */
export function withNewest(envelope: Envelope, bundles: NewestBundles): Envelope | Promise<Envelope> {
  const fill = () => withBundles(envelope, (type) => bundles.newest(namespaceOf(runOf(envelope.to as Partition)), type));
  const filled = fill();
  return filled.message.some(lacksBundle) ? bundles.refresh().then(fill) : filled;
}
