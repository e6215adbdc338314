/** Messages between partitions as scenarios tell them. */
import type { Envelope, EnvelopeReply, Record as LogBody, Message } from "#proto";
import { MessageKind } from "#proto";

const short = (partition: string) => partition.replace(/^run\//, "");

function messageText({ number, kind, name, op, failure, reason }: Message): string {
  switch (kind) {
    case MessageKind.signal:
      return `${number} signal ${name}`;
    case MessageKind.wait:
      return `${number} wait for op ${op}`;
    case MessageKind.waitCancelled:
      return `${number} wait cancelled for op ${op}`;
    case MessageKind.result:
      return `${number} result ${failure === undefined ? "done" : failure.type} for op ${op}`;
    case MessageKind.claim:
      return `${number} claim for op ${op}`;
    case MessageKind.granted:
      return `${number} granted to op ${op}`;
    case MessageKind.keyDone:
      return `${number} op ${op} done`;
    case MessageKind.keyReleased:
      return `${number} op ${op} releases: ${reason}`;
    default:
      return `${number} kind ${kind}`;
  }
}

export function envelopeText({ from, to, settled, message }: Envelope): string {
  const messages = message.length === 0 ? "nothing" : message.map(messageText).join(", ");
  return `send ${short(from)} -> ${short(to)} settled ${settled}: ${messages}`;
}

export function answerText({ taken, refusal, settled, stale, retryAfterMs }: EnvelopeReply): string {
  const refused = refusal.map(({ number, reason }) => `, ${number} refused ${reason}`).join("");
  return `taken ${taken}${refused}, settled ${settled}${stale ? ", stale" : ""}${retryAfterMs > 0 ? `, again in ${retryAfterMs}` : ""}`;
}

export function factLines(index: number, record: LogBody): string[] {
  const append = `append ${index}`;
  return [
    ...record.taken.map(
      (fact) => `${append} ${fact.partition} took ${fact.number} of ${short(fact.sender)}${fact.refusal && `: ${fact.refusal}`}`,
    ),
    ...record.settled.map((fact) => `${append} ${fact.partition} settled with ${short(fact.receiver)} through ${fact.through}`),
    ...record.forgotten.map((fact) => `${append} ${fact.partition} forgot ${short(fact.sender)}`),
  ];
}
