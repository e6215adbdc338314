/** The durable steps of what is measured. The first line of each takes the time. */
import { mark } from "./marks.ts";

export function step({ id, payload }: { id: string; payload: string }): string {
  mark(`step:${id}`);
  return payload;
}

export const echo = (payload: string): string => payload;

export function note({ k, id }: { k: string; id?: string }): void {
  mark(k, id);
}
