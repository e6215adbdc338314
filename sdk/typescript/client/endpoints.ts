/**
 * The nodes that a client may ask, and which of them it asks now.
 *
 * It begins with the addresses that it was given and learns the others from the cluster. It stays
 * with one node as long as that works. After a failure it goes to the one that failed longest
 * ago, those that were given before those that were learned; failures are forgotten after a while.
 */
import type { Client } from "@grpc/grpc-js";
import { type FrameBounds, grpcClient } from "#proto/connection";

export interface Endpoint {
  readonly address: string;
  readonly client: Client;
}

interface Failed {
  readonly atMs: number;
  readonly problem: string;
}

export const bounds: FrameBounds = { frameBytesSoft: 1 << 20, frameBytesMax: 64 << 20, bufferedBytesMax: 256 << 20 };
/** A node that failed so long ago counts as any other. */
const failedMsMax = 30_000;
const learnedMax = 1000;
const shownMax = 5;
/** A connection that is silent for the sum of these is given up, whether or not a call waits for it (`pulse.ts` is quicker where one does). */
const keepalive = { timeMs: 3_000, timeoutMs: 5_000 } as const;

/** Addresses of a list as people write it: "a:7070, b:7070". Throws `TypeError` for an empty one. */
export function addressList(address: string | readonly string[]): string[] {
  const all = (typeof address === "string" ? [address] : address).flatMap((each) => each.split(","));
  const list = [...new Set(all.map((each) => each.trim()).filter((each) => each !== ""))];
  if (list.length === 0) throw new TypeError("Cannot connect: no address was given, want host:port");
  return list;
}

export class Endpoints {
  private readonly given: readonly string[];
  private readonly nowMs: () => number;
  private learned: readonly string[] = [];
  private readonly failures = new Map<string, Failed>();
  private readonly clients = new Map<string, Client>();
  private chosen: string;

  constructor(given: readonly string[], nowMs: () => number = () => performance.now()) {
    this.given = given;
    this.nowMs = nowMs;
    this.chosen = given[0] as string;
  }

  /** How many nodes there are to try. */
  get count(): number {
    return this.candidates().length;
  }

  /** The node to ask. */
  current(): Endpoint {
    const address = this.chosen;
    let client = this.clients.get(address);
    if (client === undefined) {
      client = grpcClient(address, bounds, undefined, keepalive);
      this.clients.set(address, client);
    }
    return { address, client };
  }

  /** It did not work there: from now on another one is asked, where there is one. */
  failed(address: string, problem: string): void {
    this.failures.delete(address);
    this.failures.set(address, { atMs: this.nowMs(), problem });
    if (address === this.chosen) this.chosen = this.best();
    this.letGo(address);
  }

  /** It works there. */
  worked(address: string): void {
    this.failures.delete(address);
  }

  /** Its connection is of no use any more: the next one to that address is a new one. */
  drop({ address, client }: Endpoint): void {
    client.close();
    if (this.clients.get(address) === client) this.clients.delete(address);
  }

  /** Takes the members that a node told of. */
  learn(addresses: readonly string[]): void {
    if (addresses.length === 0) return;
    this.learned = addresses.slice(0, learnedMax);
  }

  /** What was tried and why it did not work, newest first: "10.0.0.1:7070 (refused), 10.0.0.2:7070 (…)". */
  tried(): string {
    const all = [...this.failures].reverse().map(([address, { problem }]) => `${address} (${problem})`);
    if (all.length === 0) return this.chosen;
    return all.length > shownMax ? `${all.slice(0, shownMax).join(", ")} and ${all.length - shownMax} more` : all.join(", ");
  }

  close(): void {
    for (const client of this.clients.values()) client.close();
    this.clients.clear();
  }

  private candidates(): string[] {
    return [...new Set([...this.given, ...this.learned])];
  }

  private best(): string {
    const overMs = this.nowMs() - failedMsMax;
    const sinceOf = (address: string) => Math.max(overMs, this.failures.get(address)?.atMs ?? overMs);
    let best = this.chosen;
    let since = Number.POSITIVE_INFINITY;
    for (const address of this.candidates()) {
      if (sinceOf(address) >= since) continue;
      best = address;
      since = sinceOf(address);
    }
    return best;
  }

  /** A node that is no member any more is not kept in mind, and its connection ends. */
  private letGo(address: string): void {
    if (address === this.chosen || this.candidates().includes(address)) return;
    this.failures.delete(address);
    this.clients.get(address)?.close();
    this.clients.delete(address);
  }
}
