/** A network that loses, doubles, delays and reorders messages, and is cut in two ways. */
import type { NodeId, Prng } from "#core/base";
import type { Message } from "#core/raft";

export interface NetworkFaults {
  loss: number;
  duplication: number;
  readonly delayMinMs: number;
  readonly delayMeanMs: number;
}

export class Network {
  /** Pairs that can't be crossed, one way: `from>to`. */
  readonly cuts = new Set<string>();
  faults: NetworkFaults;
  private readonly prng: Prng;
  private readonly deliver: (afterMs: number, message: Message) => void;
  private readonly lost: (message: Message) => void;

  constructor(parts: {
    prng: Prng;
    faults: NetworkFaults;
    deliver: (afterMs: number, message: Message) => void;
    lost: (message: Message) => void;
  }) {
    this.prng = parts.prng;
    this.faults = parts.faults;
    this.deliver = parts.deliver;
    this.lost = parts.lost;
  }

  send(message: Message): void {
    const { prng, faults } = this;
    if (this.cuts.has(`${message.from}>${message.to}`) || prng.chance(faults.loss)) return this.lost(message);
    this.deliver(this.delayMs(), message);
    if (prng.chance(faults.duplication)) this.deliver(this.delayMs(), message);
  }

  private delayMs(): number {
    const { delayMinMs, delayMeanMs } = this.faults;
    return delayMinMs - Math.log(1 - this.prng.fraction()) * (delayMeanMs - delayMinMs);
  }

  /** Cuts the members into two sides, or only the way from one to the other. */
  split(members: readonly NodeId[], isOneWay: boolean): void {
    const side = new Set(members.filter(() => this.prng.chance(0.5)));
    for (const from of members)
      for (const to of members) if (side.has(from) !== side.has(to) && (!isOneWay || side.has(from))) this.cuts.add(`${from}>${to}`);
  }

  /** Cuts two members off from each other. */
  part(one: NodeId, other: NodeId): void {
    this.cuts.add(`${one}>${other}`);
    this.cuts.add(`${other}>${one}`);
  }

  heal(): void {
    this.cuts.clear();
  }
}
