/**
 * Ordered streams between a peer and the server.
 *
 * Items arrive in order after a drawn delay. A stream never loses something in its middle: it
 * breaks, what was under way is gone, and each end hears of it in its own time.
 */
import type { Prng } from "#core/base";
import type { Schedule } from "./schedule.ts";

export interface Delays {
  readonly minMs: number;
  readonly meanMs: number;
  /** Share of items that a clogged path holds up, and for how long on average. */
  readonly clogged: number;
  readonly clogMs: number;
}

export interface StreamEnds<ToServer, ToPeer> {
  onServer(item: ToServer): void;
  onPeer(item: ToPeer): void;
  onServerClosed(): void;
  onPeerClosed(): void;
}

export class SimulatedStream<ToServer, ToPeer> {
  isBroken = false;
  private readonly schedule: Schedule;
  private readonly prng: Prng;
  private readonly delays: () => Delays;
  private readonly ends: StreamEnds<ToServer, ToPeer>;
  private serverAtMs = 0;
  private peerAtMs = 0;

  constructor(parts: { schedule: Schedule; prng: Prng; delays: () => Delays }, ends: StreamEnds<ToServer, ToPeer>) {
    this.schedule = parts.schedule;
    this.prng = parts.prng;
    this.delays = parts.delays;
    this.ends = ends;
  }

  toServer(item: ToServer): void {
    if (this.isBroken) return;
    this.serverAtMs = Math.max(this.serverAtMs, this.schedule.nowMs + this.delay());
    this.schedule.at(this.serverAtMs, () => {
      if (!this.isBroken) this.ends.onServer(item);
    });
  }

  toPeer(item: ToPeer): void {
    if (this.isBroken) return;
    this.peerAtMs = Math.max(this.peerAtMs, this.schedule.nowMs + this.delay());
    this.schedule.at(this.peerAtMs, () => {
      if (!this.isBroken) this.ends.onPeer(item);
    });
  }

  /** Ends the stream. The server may hear of it long after the peer does: a half-open stream. */
  break(serverMs: number, peerMs: number): void {
    if (this.isBroken) return;
    this.isBroken = true;
    this.schedule.after(serverMs, () => this.ends.onServerClosed());
    this.schedule.after(peerMs, () => this.ends.onPeerClosed());
  }

  private delay(): number {
    const { minMs, meanMs, clogged, clogMs } = this.delays();
    const extra = clogged > 0 && this.prng.chance(clogged) ? exponential(this.prng, clogMs) : 0;
    return minMs + exponential(this.prng, meanMs) + extra;
  }
}

/** A draw with this mean, at most ten times of it. */
export function exponential(prng: Prng, mean: number): number {
  return mean === 0 ? 0 : Math.min(-Math.log(1 - prng.fraction()), 10) * mean;
}
