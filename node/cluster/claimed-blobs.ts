/** Blobs that are known to be on enough nodes and not to be collected for a while: asking again costs nothing. */
import type { Timing } from "../timing.ts";

const countMax = 10_000;

export class ClaimedBlobs {
  private readonly timing: Pick<Timing, "monotonicMs">;
  private readonly keptMs: number;
  private readonly known = new Map<string, { readonly size: number; readonly untilMs: number }>();

  /** A claim is good for `keptMs`: what the cluster grants must be longer by what an admitted command may take. */
  constructor(timing: Pick<Timing, "monotonicMs">, keptMs: number) {
    this.timing = timing;
    this.keptMs = keptMs;
  }

  sizeOf(name: string): number | undefined {
    const claim = this.known.get(name);
    return claim !== undefined && this.timing.monotonicMs() < claim.untilMs ? claim.size : undefined;
  }

  /** `askedMs`: before the blob was made new. */
  note(name: string, size: number, askedMs: number): void {
    this.known.delete(name);
    this.known.set(name, { size, untilMs: askedMs + this.keptMs });
    if (this.known.size > countMax) this.known.delete(this.known.keys().next().value as string);
  }
}
