/**
 * How a worker's room is divided between the nodes that give it work. Each node fills what it was
 * given without asking the others, so the shares must not exceed the whole.
 */

/** Activities executed at a time, and runs kept in memory. */
export interface Room {
  readonly activitySlots: number;
  readonly runSlots: number;
}

/**
 * Parts of `total` by node: what each uses now and an equal part of what is free. They sum up to
 * `total`, or exceed it by less than one a node where it is too small for all: a node with no
 * room at all could never bring a run forward.
 */
export function shares(total: number, used: readonly number[]): number[] {
  const free = Math.max(0, total - used.reduce((sum, each) => sum + each, 0));
  const each = Math.floor(free / used.length);
  const rest = free - each * used.length;
  return used.map((own, at) => Math.max(1, own + each + (at < rest ? 1 : 0)));
}

/** One node has no room left while another has: dividing anew would help. */
export function isUneven(given: readonly number[], used: readonly number[]): boolean {
  const isFull = (share: number, at: number) => (used[at] as number) >= share;
  // A share of one can't be halved.
  const isLoose = (share: number, at: number) => share - (used[at] as number) >= 2;
  return given.some(isFull) && given.some(isLoose);
}
