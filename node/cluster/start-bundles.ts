/**
 * Code of the runs that messages start: a start that names none runs on what is newest where it
 * arrives, as a client's start would, so Core finds the choice made.
 */
import { namespaceOf, type Partition, runOf } from "#core/base";
import { type Envelope, type Message, MessageKind } from "#proto";
import type { Deployments } from "../service/calls.ts";

export type NewestBundles = Pick<Deployments, "newest" | "refresh">;

const isOpen = ({ kind, start }: Message) => kind === MessageKind.start && start?.bundle.length === 0;

/**
 * The envelope with a bundle in every start. A type that is not deployed keeps none, and is refused for
 * it. A promise where what other nodes deployed has to be asked for: rejects with `HopError` where that can't be known.
 */
export function withBundles(envelope: Envelope, bundles: NewestBundles): Envelope | Promise<Envelope> {
  if (!envelope.message.some(isOpen)) return envelope;
  const filled = fill(envelope, bundles);
  return filled.message.some(isOpen) ? bundles.refresh().then(() => fill(envelope, bundles)) : filled;
}

function fill(envelope: Envelope, bundles: NewestBundles): Envelope {
  const namespace = namespaceOf(runOf(envelope.to as Partition));
  const message = envelope.message.map((one) => {
    const bundle = one.start !== undefined && isOpen(one) ? bundles.newest(namespace, one.start.type) : undefined;
    return bundle === undefined || one.start === undefined ? one : { ...one, start: { ...one.start, bundle } };
  });
  return { ...envelope, message };
}
