/**
 * Whether this cluster may still put objects: not where it was rebuilt from them elsewhere.
 *
 * The claims are looked at before anything is sealed, and then from time to time; the manifests, which
 * are looked at each time, tell it for certain.
 */
import type { ObjectStore } from "#store";
import type { Note } from "../shard/shard-host.ts";
import type { Timing } from "../timing.ts";
import { rebuiltElsewhere } from "./claims.ts";

export interface ClaimWatchParts {
  readonly objects: ObjectStore;
  readonly cluster: string;
  readonly restoreEpoch: number;
  readonly timing: Timing;
  readonly note: Note;
  /** Object storage has proven itself. */
  readonly isReady: () => boolean;
  readonly lookMs?: number;
}

const lookMsDefault = 30_000;
const firstLookMs = 100;

export class ClaimWatch {
  private readonly parts: ClaimWatchParts;
  private known: "unknown" | "own" | "elsewhere" = "unknown";
  private said = "";
  private stopTimer = () => {};
  private isStopped = false;

  constructor(parts: ClaimWatchParts) {
    this.parts = parts;
  }

  start(): void {
    this.arm(firstLookMs);
  }

  stop(): void {
    this.isStopped = true;
    this.stopTimer();
  }

  mayWrite(): boolean {
    return this.known === "own";
  }

  /** Why nothing is sealed any more; empty where it is, or that is not known yet. */
  get why(): string {
    return this.said;
  }

  private arm(ms: number): void {
    this.stopTimer = this.parts.timing.after(ms, () => {
      void this.look().finally(() => {
        if (!this.isStopped) this.arm(this.known === "unknown" ? firstLookMs : (this.parts.lookMs ?? lookMsDefault));
      });
    });
  }

  private async look(): Promise<void> {
    const { objects, cluster, restoreEpoch, note, isReady } = this.parts;
    if (!isReady()) return;
    try {
      const why = await rebuiltElsewhere(objects, cluster, restoreEpoch);
      if (why !== undefined && this.said !== why) note("error", "nothing is sealed any more", { reason: why });
      this.said = why ?? "";
      this.known = why === undefined ? "own" : "elsewhere";
    } catch (error) {
      // Object storage that can't be asked takes nothing either.
      note("info", "claims could not be looked at", { reason: error instanceof Error ? error.message : String(error) });
    }
  }
}
