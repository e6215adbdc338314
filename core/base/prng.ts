/** Seeded random numbers (mulberry32): equal seeds give equal sequences on every machine. */
export class Prng {
  private state: number;

  constructor(seed: number) {
    this.state = seed;
  }

  /** An integer in 0 … 2^32−1. */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  }

  /** A number in [0, 1). */
  fraction(): number {
    return this.next() / 4294967296;
  }

  /** An integer in [0, bound). */
  below(bound: number): number {
    return Math.floor(this.fraction() * bound);
  }

  chance(probability: number): boolean {
    return this.fraction() < probability;
  }
}

/** FNV-1a over UTF-16 code units: a seed from a name. */
export function seedOf(name: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}
