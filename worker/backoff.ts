/**
 * Waits between attempts: from 20 ms to 2 s, each drawn from its upper half so that workers do not
 * come in step. They grow by a quarter, so a wait is about a fifth of the outage before it: a
 * server that comes back at once is met at once.
 */
const firstMs = 20;
const lastMs = 2_000;
const growth = 1.25;

export class Backoff {
  private readonly random: () => number;
  private failures = 0;

  constructor(random: () => number) {
    this.random = random;
  }

  /** How long to wait now, in milliseconds. */
  next(): number {
    const full = Math.min(lastMs, firstMs * growth ** this.failures);
    this.failures++;
    return full * (0.5 + this.random() / 2);
  }

  reset(): void {
    this.failures = 0;
  }
}
