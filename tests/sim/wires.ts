/**
 * The wires between nodes, each direction for itself: packets that may be lost, doubled, late or
 * out of order, and links that keep order and either bring everything or break.
 */
import type { NodeId, Prng } from "#core/base";
import { type Delays, exponential } from "./network.ts";
import type { Schedule } from "./schedule.ts";

export interface WireFaults extends Delays {
  readonly loss: number;
  readonly duplication: number;
  /** Packets that a clogged direction holds; those above it are lost. */
  readonly capacity: number;
}

interface Wire {
  cloggedUntilMs: number;
  /** Packets under way while it is clogged. */
  held: number;
  /** What a link carries arrives in order. */
  lastMs: number;
  /** What a cut keeps a link from bringing. */
  stuck: Carried[];
}

interface Carried {
  readonly deliver: () => void;
  readonly broken: () => void;
  /** The link breaks where it is cut for so long. */
  readonly untilMs: number;
}

/** What is lost of a link is sent again, for so long; then the link is broken. */
const resendMs = 200;
const patienceMs = 3000;

export class Wires {
  faults: WireFaults;
  /** Directions that bring nothing. */
  private readonly cuts = new Set<number>();
  private readonly wires = new Map<number, Wire>();
  private readonly schedule: Schedule;
  private readonly prng: Prng;
  /** How often things happened. */
  readonly counts = { lost: 0, doubled: 0, clogged: 0 };

  constructor(schedule: Schedule, prng: Prng, faults: WireFaults) {
    this.schedule = schedule;
    this.prng = prng;
    this.faults = faults;
  }

  cut(from: NodeId, to: NodeId): void {
    this.cuts.add(keyOf(from, to));
  }

  heal(): void {
    this.cuts.clear();
  }

  isCut(from: NodeId, to: NodeId): boolean {
    return this.cuts.size > 0 && this.cuts.has(keyOf(from, to));
  }

  /** May be lost, doubled, late, or out of order. */
  packet(from: NodeId, to: NodeId, deliver: () => void): void {
    const { loss, duplication, capacity } = this.faults;
    if (this.isCut(from, to)) return;
    if (loss > 0 && this.prng.chance(loss)) return void this.counts.lost++;
    const wire = this.wire(from, to);
    const waitMs = wire.cloggedUntilMs - this.schedule.nowMs;
    if (waitMs > 0 && wire.held >= capacity) return void this.counts.lost++;
    if (waitMs > 0) wire.held++;
    const arrive = (): void => {
      if (waitMs > 0) wire.held--;
      if (!this.isCut(from, to)) deliver();
    };
    const ms = Math.max(waitMs, 0) + this.delay(wire);
    this.schedule.after(ms, arrive);
    if (duplication === 0 || !this.prng.chance(duplication)) return;
    this.counts.doubled++;
    this.schedule.after(ms + this.delay(wire), () => {
      if (!this.isCut(from, to)) deliver();
    });
  }

  /** In order with what was carried before in this direction; `broken` is called where it is cut for too long. */
  carry(from: NodeId, to: NodeId, deliver: () => void, broken: () => void): void {
    const wire = this.wire(from, to);
    const { loss } = this.faults;
    let ms = Math.max(wire.cloggedUntilMs - this.schedule.nowMs, 0) + this.delay(wire);
    if (loss > 0 && this.prng.chance(loss)) ms += resendMs;
    wire.lastMs = Math.max(wire.lastMs, this.schedule.nowMs + ms);
    const carried = { deliver, broken, untilMs: wire.lastMs + patienceMs };
    this.schedule.at(wire.lastMs, () => {
      if (wire.stuck.length === 0 && !this.isCut(from, to)) return deliver();
      wire.stuck.push(carried);
      if (wire.stuck.length === 1) this.resend(from, to, wire);
    });
  }

  /** What is stuck is sent again, all of it in its order, until it arrives or the link breaks. */
  private resend(from: NodeId, to: NodeId, wire: Wire): void {
    this.schedule.after(resendMs, () => {
      const { stuck } = wire;
      const isCut = this.isCut(from, to);
      const { nowMs } = this.schedule;
      wire.stuck = isCut ? stuck.filter(({ untilMs }) => nowMs < untilMs) : [];
      if (wire.stuck.length > 0) this.resend(from, to, wire);
      for (const { deliver, broken, untilMs } of stuck) {
        if (!isCut) deliver();
        else if (nowMs >= untilMs) broken();
      }
    });
  }

  private wire(from: NodeId, to: NodeId): Wire {
    const key = keyOf(from, to);
    const found = this.wires.get(key);
    if (found !== undefined) return found;
    const made: Wire = { cloggedUntilMs: 0, held: 0, lastMs: 0, stuck: [] };
    this.wires.set(key, made);
    return made;
  }

  private delay(wire: Wire): number {
    const { minMs, meanMs, clogged, clogMs } = this.faults;
    if (clogged > 0 && wire.cloggedUntilMs <= this.schedule.nowMs && this.prng.chance(clogged)) {
      this.counts.clogged++;
      wire.cloggedUntilMs = this.schedule.nowMs + exponential(this.prng, clogMs);
    }
    return minMs + exponential(this.prng, meanMs);
  }
}

const keyOf = (from: number, to: number) => from * 4096 + to;
