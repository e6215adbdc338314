/**
 * Code of the runs that messages start: a start that names none runs on what is newest where it
 * arrives, as a client's start would, so Core finds the choice made.
 */
import { namespaceOf, type Partition, runOf } from "#core/base";
import { lacksBundle, withBundles } from "#core/run";
import type { Envelope } from "#proto";
import type { Deployments } from "../service/calls.ts";

export type NewestBundles = Pick<Deployments, "bundle" | "refresh">;

/**
 * The envelope with a bundle in every start. A type that is not deployed keeps none, and is refused for
 * it. A promise where what other nodes deployed has to be asked for: rejects with `HopError` where that can't be known.
 */
export function withNewest(envelope: Envelope, bundles: NewestBundles): Envelope | Promise<Envelope> {
  const run = runOf(envelope.to as Partition);
  const fill = () => withBundles(envelope, (type) => bundles.bundle(namespaceOf(run), { type, run }));
  const filled = fill();
  return filled.message.some(lacksBundle) ? bundles.refresh().then(fill) : filled;
}
