/** What a command leads to: events of one record, and the answer that waits for them. */
import type { Partition, Reason } from "#core/base";
import type { PlacementReply } from "./command.ts";
import type { MapEvent, PlacementEvent } from "./event.ts";
import { mapPartition } from "./placement-state.ts";

export interface Decided {
  readonly partition: Partition;
  readonly event: PlacementEvent;
}

export interface Decision {
  readonly events: readonly Decided[];
  readonly reply: PlacementReply;
}

export const done: PlacementReply = { kind: "done" };

export const onMap = (event: MapEvent): Decided => ({ partition: mapPartition, event });

export const decided = (reply: PlacementReply, ...events: Decided[]): Decision => ({ events, reply });

export function refused(reject: Reason, message: string, more: { readonly retryAfterMs?: number; readonly epoch?: number } = {}): Decision {
  return { events: [], reply: { kind: "rejected", rejection: { reject, message, ...more } } };
}
