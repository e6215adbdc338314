/**
 * Whether this cluster may still put objects: not where it was rebuilt from them elsewhere, or is being.
 *
 * The claims are looked at before anything is sealed, and then from time to time; the manifests, which
 * are looked at each time, tell it for certain. A restore that was killed shows no sign of life: where nothing has
 * changed over a number of looks, its claim is declared void and this cluster goes on.
 */
import { errorText } from "#core/base";
import { claimBeatKey, type ObjectStore } from "#store";
import type { Note } from "../shard/shard-host.ts";
import type { Timing } from "../timing.ts";
import { beatMs } from "./claim-beat.ts";
import { claimsAbove, declareVoid, whyNot } from "./claims.ts";

export interface ClaimWatchParts {
  readonly objects: ObjectStore;
  readonly cluster: string;
  readonly restoreEpoch: number;
  readonly timing: Timing;
  readonly note: Note;
  /** Object storage has proven itself. */
  readonly isReady: () => boolean;
  readonly lookMs?: number;
  /** While a restore is under way. */
  readonly followMs?: number;
}

const lookMsDefault = 30_000;
const firstLookMs = 100;
/** Looks at the same sign of life, each a beat apart, that make a claim void. */
const silentLooksMax = 6;

interface Followed {
  readonly beat: string;
  readonly looks: number;
}

export class ClaimWatch {
  private readonly parts: ClaimWatchParts;
  private known: "unknown" | "own" | "elsewhere" = "unknown";
  private said = "";
  /** Claims that are not decided, and what was seen of each. */
  private followed = new Map<number, Followed>();
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

  /** Why nothing is sealed; empty where it is, or that is not known yet. */
  get why(): string {
    return this.said;
  }

  private arm(ms: number): void {
    this.stopTimer = this.parts.timing.after(ms, () => {
      void this.look().finally(() => {
        if (!this.isStopped) this.arm(this.pauseMs());
      });
    });
  }

  private pauseMs(): number {
    const { lookMs = lookMsDefault, followMs = beatMs } = this.parts;
    if (this.known === "unknown") return firstLookMs;
    return this.followed.size > 0 ? followMs : lookMs;
  }

  private async look(): Promise<void> {
    const { objects, cluster, restoreEpoch, note, isReady } = this.parts;
    if (!isReady()) return;
    try {
      const above = await claimsAbove(objects, cluster, restoreEpoch);
      const why = whyNot(above, { url: objects.url, epoch: restoreEpoch });
      if (why !== undefined && this.said !== why) note("error", "nothing is sealed", { reason: why });
      this.said = why ?? "";
      this.known = why === undefined ? "own" : "elsewhere";
      await this.follow(above.filter(({ state }) => state === "open").map(({ epoch }) => epoch));
    } catch (error) {
      // Object storage that can't be asked takes nothing either.
      note("info", "claims could not be looked at", { reason: errorText(error) });
    }
  }

  private async follow(open: readonly number[]): Promise<void> {
    const { objects, cluster, note } = this.parts;
    const before = this.followed;
    const now = new Map<number, Followed>();
    for (const epoch of open) {
      const bytes = await objects.get(claimBeatKey(cluster, epoch));
      const beat = bytes === undefined ? "" : new TextDecoder().decode(bytes);
      const seen = before.get(epoch);
      const looks = seen?.beat === beat ? seen.looks + 1 : 0;
      now.set(epoch, { beat, looks });
      if (looks < silentLooksMax) continue;
      await declareVoid(objects, cluster, epoch);
      note("warn", "a restore shows no sign of life any more, and its claim is void", { restoreEpoch: epoch });
    }
    this.followed = now;
  }
}
