/** What messages of other partitions ask of a run: to start it, to cancel it, to terminate it. */
import type { Partition, Reason } from "#core/base";
import { type Contender, type Envelope, type Message, MessageKind } from "#proto";
import { meantBy } from "./child.ts";
import { decideCancel, decideTerminate } from "./close.ts";
import type { RunEvent } from "./event.ts";
import { decideStartCancelled } from "./queue.ts";
import { type Contention, contentions, type StartRequest } from "./start.ts";
import type { Run } from "./state.ts";

/** Whether the message is for `decideEnd`, or a start. */
export const isOrder = (kind: number): boolean =>
  kind === MessageKind.start || kind === MessageKind.cancel || kind === MessageKind.terminate;

/** Whether the message starts a run on the code that is newest where it arrives. */
export const lacksBundle = ({ kind, start }: Message): boolean => kind === MessageKind.start && start?.bundle.length === 0;

/** The envelope with a bundle in every start whose type has one: whoever carries it knows what is deployed, Core does not. */
export function withBundles(envelope: Envelope, newest: (type: string) => Uint8Array | undefined): Envelope {
  if (!envelope.message.some(lacksBundle)) return envelope;
  return { ...envelope, message: envelope.message.map((one) => withBundle(one, newest)) };
}

/** Of one message, see `withBundles`. */
export function withBundle(message: Message, newest: (type: string) => Uint8Array | undefined): Message {
  const { start } = message;
  const bundle = start !== undefined && lacksBundle(message) ? newest(start.type) : undefined;
  return bundle === undefined || start === undefined ? message : { ...message, start: { ...start, bundle } };
}

/** A start as a client would ask for it; or why it can't be one. */
export function startOf(from: Partition, { start, payload, op, generation, number }: Message): StartRequest | Reason {
  if (start === undefined) return "BAD_REQUEST";
  const { type, bundle, deadlineMs, idempotencyKey, budgetMs, overrideReason } = start;
  // Whoever carried the message here would have chosen one.
  if (bundle.length === 0) return "WORKFLOW_NOT_DEPLOYED";
  const contention: Contention = contentions.find((one) => one === start.contention) ?? "attach";
  const startedBy = { partition: from, generation, op, number };
  return { type, bundle, input: payload, contention, idempotencyKey, deadlineMs, budgetMs, overrideReason, startedBy };
}

/** What a cancellation or a termination comes to: an event of the run, or of a start that waits (`leaves`), or nothing. */
export type End = { readonly event: RunEvent; readonly leaves: Contender | undefined } | { readonly refusal: Reason | undefined };

export function decideEnd(run: Run, from: Partition, message: Message): End {
  const { reason, number, kind } = message;
  const asker = { from, number };
  const meant = meantBy(run, from, message);
  if (meant === undefined) return { refusal: "RUN_CLOSED" };
  if (meant !== "newest") return { event: decideStartCancelled(meant, reason, asker), leaves: meant };
  const decision = kind === MessageKind.cancel ? decideCancel(run, reason, asker) : decideTerminate(run, reason, asker);
  if (decision === "already") return { refusal: undefined };
  return "reject" in decision ? { refusal: decision.reject } : { event: decision, leaves: undefined };
}
