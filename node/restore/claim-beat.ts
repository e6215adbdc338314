/** Signs of life of a restore: its claim's beat is put again and again, with other bytes each time. */
import { claimBeatKey, type ObjectStore } from "#store";
import type { Timing } from "../timing.ts";
import type { Claim } from "./claims.ts";

export interface ClaimBeatParts {
  readonly objects: ObjectStore;
  readonly cluster: string;
  readonly claim: Claim;
  readonly timing: Timing;
}

/** A small part of the time after which a claim without sign of life is void. */
export const beatMs = 5000;

export class ClaimBeat {
  private readonly parts: ClaimBeatParts;
  private count = 0;
  private isStopped = false;
  private stopTimer = () => {};
  private putting: Promise<unknown> = Promise.resolve();

  constructor(parts: ClaimBeatParts) {
    this.parts = parts;
  }

  start(): void {
    const { objects, cluster, claim, timing } = this.parts;
    const bytes = new TextEncoder().encode(`${claim.clusterId} ${++this.count}\n`);
    // One that fails is as one that was not due yet; the next one follows.
    this.putting = objects
      .put(claimBeatKey(cluster, claim.epoch), bytes)
      .catch(() => {})
      .finally(() => {
        if (!this.isStopped) this.stopTimer = timing.after(beatMs, () => this.start());
      });
  }

  /** Resolves when none is on its way and the last one is deleted. */
  async stop(): Promise<void> {
    this.isStopped = true;
    this.stopTimer();
    await this.putting;
    const { objects, cluster, claim } = this.parts;
    await objects.delete([claimBeatKey(cluster, claim.epoch)]).catch(() => {});
  }
}
