/** What a run remembers of another partition that sends it messages. */
import type { Partition } from "#core/base";
import type { MessageRefusal } from "#proto";
import type { Asker } from "./close.ts";
import type { Run } from "./state.ts";

export interface Sender {
  /** Highest number taken. */
  taken: number;
  /** In order; those that the sender has recorded may still be here. */
  refused: MessageRefusal[];
}

/** Takes the message of another partition that the event came of; number 0 = none did. */
export function markAsker(run: Run, { from, number }: Asker): void {
  if (number > 0) markTaken(run, from as Partition, number);
}

/** The message answers an operation, which is over by that. */
export function closeOperation(run: Run, answer: Asker & { readonly op: number }): void {
  run.pending.delete(answer.op);
  markAsker(run, answer);
}

/** The number is taken: the sender counts as the latest that was heard of. */
export function markTaken(run: Run, from: Partition, number: number): Sender {
  const known = run.inbox.get(from) ?? { taken: 0, refused: [] };
  known.taken = Math.max(known.taken, number);
  run.inbox.delete(from);
  run.inbox.set(from, known);
  return known;
}
