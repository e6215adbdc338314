/**
 * One stream's items in the order they came, also where one of them has to wait for storage.
 *
 * Invariant: while an item waits, all later ones of the stream wait behind it.
 */
export class OrderedIntake {
  private readonly queue: { readonly ready: Promise<unknown>; readonly take: () => void; readonly refuse: (error: unknown) => void }[] = [];
  private readonly onWaiting: (isWaiting: boolean) => void;
  private isDraining = false;
  private isClosed = false;

  /** `onWaiting` is told when items begin to wait and when none does any more: stop reading between. */
  constructor(onWaiting: (isWaiting: boolean) => void = () => {}) {
    this.onWaiting = onWaiting;
  }

  /** Items that wait now. */
  get waiting(): number {
    return this.queue.length;
  }

  /**
   * Calls `take` when `ready` has resolved (undefined: it is ready now) and all earlier items were
   * taken; calls `refuse` in its turn when `ready` rejects. Neither may throw.
   */
  add(ready: Promise<unknown> | undefined, take: () => void, refuse: (error: unknown) => void): void {
    if (this.isClosed) return;
    if (ready === undefined && this.queue.length === 0) {
      take();
      return;
    }
    this.queue.push({ ready: ready ?? Promise.resolve(), take, refuse });
    // Its turn may come later than its rejection: that is not an unhandled one.
    ready?.catch(() => {});
    if (this.isDraining) return;
    this.onWaiting(true);
    void this.drain();
  }

  /** Forgets what waits: the stream is gone. */
  close(): void {
    this.isClosed = true;
    this.queue.length = 0;
  }

  private async drain(): Promise<void> {
    this.isDraining = true;
    for (let next = this.queue[0]; next !== undefined; next = this.queue[0]) {
      const { ready, take, refuse } = next;
      const error = await ready.then(
        () => undefined,
        (cause: unknown) => ({ cause }),
      );
      if (this.isClosed) break;
      if (error === undefined) take();
      else refuse(error.cause);
      this.queue.shift();
    }
    this.isDraining = false;
    if (!this.isClosed) this.onWaiting(false);
  }
}
