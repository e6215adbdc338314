/**
 * What happens to a packet between two machines: one direction of one pair.
 *
 * Packets keep their order whatever the jitter, as on a real path, unless reordering is asked for.
 */

export interface Weather {
  readonly delayMs: number;
  /** Added to the delay, drawn evenly from 0 to this. */
  readonly jitterMs: number;
  /** Share of packets that is lost, 0–1. */
  readonly loss: number;
  /** Share of packets that arrives twice, 0–1. */
  readonly duplication: number;
  /** Share of packets that overtakes those on their way, 0–1. */
  readonly reorder: number;
  /** Nothing arrives. */
  readonly isCut: boolean;
}

export const fair: Weather = { delayMs: 0, jitterMs: 0, loss: 0, duplication: 0, reorder: 0, isCut: false };

export class Link {
  weather: Weather = fair;
  private lastMs = 0;

  /** When a packet that is sent at `nowMs` arrives: never, once or twice. `draw` gives numbers in [0, 1). */
  arrivals(nowMs: number, draw: () => number): number[] {
    const { delayMs, jitterMs, loss, duplication, reorder, isCut } = this.weather;
    if (isCut || draw() < loss) return [];
    const overtakes = draw() < reorder;
    const atMs = overtakes ? nowMs : Math.max(nowMs + delayMs + jitterMs * draw(), this.lastMs);
    if (!overtakes) this.lastMs = atMs;
    return draw() < duplication ? [atMs, atMs + jitterMs * draw()] : [atMs];
  }
}

export interface InFlight {
  readonly atMs: number;
  readonly to: number;
  readonly bytes: Buffer;
}

/** Packets on their way, soonest first; of two of the same time the one that was put first. */
export class Air {
  private readonly packets: InFlight[] = [];

  put(packet: InFlight): void {
    let at = this.packets.length;
    while (at > 0 && (this.packets[at - 1] as InFlight).atMs > packet.atMs) at--;
    this.packets.splice(at, 0, packet);
  }

  /** Takes the next packet that has arrived by `nowMs`. */
  take(nowMs: number): InFlight | undefined {
    const next = this.packets[0];
    return next === undefined || next.atMs > nowMs ? undefined : this.packets.shift();
  }

  /** When the next packet arrives; undefined = none is on its way. */
  nextMs(): number | undefined {
    return this.packets[0]?.atMs;
  }
}
