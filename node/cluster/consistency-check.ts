/**
 * Compares all replicas of each shard now and then, on the node that leads placement: replicas that
 * differ are a bug or a broken disk, and are told at once rather than at the next failover.
 */
import { Prng } from "#core/base";
import { asHopError } from "../service/status.ts";
import type { Placement } from "./placement.ts";
import type { Verifier } from "./verify.ts";

/** Between two rounds over all shards. */
const roundMs = 10 * 60_000;

export interface ConsistencyCheckParts {
  readonly placement: Placement;
  readonly verifier: Pick<Verifier, "verify">;
  readonly onDifference: (shard: number, verdict: string) => void;
  /** Left out: ten minutes. */
  readonly roundMs?: number;
}

export class ConsistencyCheck {
  private readonly parts: ConsistencyCheckParts;
  private readonly gone = new AbortController();
  private stopTimer = () => {};

  constructor(parts: ConsistencyCheckParts) {
    this.parts = parts;
  }

  start(): void {
    const { placement } = this.parts;
    // Nodes that were started together do not check together.
    const spread = new Prng(placement.parts.self).fraction();
    this.arm((this.parts.roundMs ?? roundMs) * (0.5 + spread / 2));
  }

  close(): void {
    this.stopTimer();
    this.gone.abort();
  }

  private arm(ms: number): void {
    this.stopTimer = this.parts.placement.parts.timing.after(ms, () => {
      void this.round().finally(() => {
        if (!this.gone.signal.aborted) this.arm(this.parts.roundMs ?? roundMs);
      });
    });
  }

  /** A replica that does not answer, or has not caught up, is no difference: it is seen elsewhere. */
  private async round(): Promise<void> {
    const { placement, verifier, onDifference } = this.parts;
    if (!placement.leads || placement.view.nodes.size < 2) return;
    try {
      for await (const { shard = 0, isDifferent, verdict = "" } of verifier.verify(undefined, this.gone.signal))
        if (isDifferent) onDifference(shard, verdict);
    } catch (error) {
      placement.parts.note("info", "the replicas were not compared, and are next time", { reason: asHopError(error).message });
    }
  }
}
