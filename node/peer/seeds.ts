/**
 * How a node finds its cluster: it asks its seeds who they are, for ever, until it is a member.
 *
 * It never makes a cluster, and joins none while its seeds disagree about which one they are of.
 * Names are resolved again in each round, and all their addresses are asked.
 */
import { bytesEqual, errorText, HopError } from "#core/base";
import {
  CodecError,
  decodeSeedAnswer,
  encodeSeedAnswer,
  encodeSeedQuestion,
  fromBytes,
  type NodePlace,
  type SeedAnswer,
  toBytes,
} from "#proto";
import { addressOf, hostAndPort, peerPortDefault } from "../config.ts";
import { type Resolve, resolveHost } from "./addresses.ts";
import { neverSent, type PeerNet } from "./peer-net.ts";

/** Name of the call that seeds answer to anybody. */
export const whoAreYou = "seed.who";

/** What a node says of itself as a seed. */
export interface SeedSelf {
  /** Empty while joining. */
  readonly clusterId: string;
  readonly node: number;
  readonly life: Uint8Array;
  readonly version: string;
  /** Who decides for the cluster, as far as it knows. */
  readonly voters: readonly NodePlace[];
}

/** Answers those who look for a cluster. */
export function answerSeekers(net: PeerNet, self: () => SeedSelf): void {
  const answer = () => {
    const { clusterId, node, life, version, voters } = self();
    return toBytes(encodeSeedAnswer, { clusterId, node, life, version, voter: voters });
  };
  net.serve(whoAreYou, answer, { forStrangers: true });
}

export interface Seed {
  /** As it was given. */
  readonly text: string;
  readonly host: string;
  readonly port: number;
}

/** Reads `host:port,…` lists. Throws `HopError` BAD_REQUEST. */
export function parseSeeds(texts: readonly string[]): Seed[] {
  const seeds = new Map<string, Seed>();
  for (const text of texts.flatMap((each) => each.split(",")).map((each) => each.trim())) {
    if (text === "") continue;
    const { host, port = peerPortDefault } = hostAndPort(text, "a seed");
    if (port === 0) throw new HopError("BAD_REQUEST", `Cannot use seed ${text}: its port is 0, want 1–65535`);
    seeds.set(addressOf(host, port), { text, host, port });
  }
  return [...seeds.values()];
}

export type SeedOutcome =
  | { readonly kind: "itself" }
  /** Belongs to no cluster yet either. */
  | { readonly kind: "joining" }
  | { readonly kind: "member"; readonly answer: SeedAnswer }
  | { readonly kind: "failed"; readonly problem: string };

export interface SeedState {
  readonly seed: string;
  /** What its name stood for last, and what each address said. */
  readonly asked: readonly { readonly address: string; readonly outcome: SeedOutcome }[];
  /** Why it did not lead to a cluster; empty = it was not asked yet. */
  readonly problem: string;
  /** Wall clock in milliseconds; 0 = never. */
  readonly triedMs: number;
}

/** A cluster that all seeds which are of one agree on. */
export interface FoundCluster {
  readonly clusterId: string;
  /** Addresses of seeds that are members. */
  readonly members: readonly string[];
  /** Who decides, by what the members said; each once. */
  readonly voters: readonly NodePlace[];
}

export interface SeedSearchOptions {
  readonly seeds: readonly Seed[];
  readonly net: Pick<PeerNet, "callAt">;
  readonly life: Uint8Array;
  /** host:port of this node. */
  readonly advertised: string;
  /** The cluster this node is of; empty = it takes the one it finds. */
  readonly clusterId: string;
  /** Resolves when this node is a member. What it rejects with is shown, and tried again. */
  readonly join: (found: FoundCluster, signal: AbortSignal) => Promise<void>;
  /** Called when something about the seeds has changed. */
  readonly onState?: (states: readonly SeedState[], problem: string) => void;
  readonly resolve?: Resolve;
  readonly random?: () => number;
}

const askMs = 3_000;
const roundMsMin = 200;
const roundMsMax = 2_000;
/** Addresses of one name that are asked. */
const addressesMax = 32;
/** Addresses that are asked at a time. */
const atATime = 32;

export class SeedSearch {
  /** Why there is no cluster yet; empty = no round is over. */
  problem = "";
  private readonly options: SeedSearchOptions;
  private readonly stopped = new AbortController();
  private states: readonly SeedState[];
  private shown = "";
  private wake = () => {};

  constructor(options: SeedSearchOptions) {
    this.options = options;
    this.states = options.seeds.map(({ text }) => ({ seed: text, asked: [], problem: "", triedMs: 0 }));
  }

  get state(): readonly SeedState[] {
    return this.states;
  }

  /** Looks until this node is a member (true) or the search is stopped (false). Never gives up by itself. */
  async run(): Promise<boolean> {
    const { signal } = this.stopped;
    for (let round = 0; !signal.aborted; round++) {
      const found = await this.round();
      if (signal.aborted) break;
      if (found !== undefined && (await this.tryJoin(found))) return true;
      await this.rest(Math.min(roundMsMin * 2 ** Math.min(round, 16), roundMsMax));
    }
    return false;
  }

  /** Clusters that the seeds are of now, each with a seed that said so. */
  async clusters(): Promise<readonly { readonly clusterId: string; readonly address: string }[]> {
    await this.round();
    const found = new Map(this.members().map(({ address, answer }) => [answer.clusterId, address]));
    return [...found].map(([clusterId, address]) => ({ clusterId, address }));
  }

  stop(): void {
    this.stopped.abort();
    this.wake();
  }

  private async tryJoin(found: FoundCluster): Promise<boolean> {
    try {
      await this.options.join(found, this.stopped.signal);
      return true;
    } catch (error) {
      this.show(`cluster ${found.clusterId} did not take this node: ${errorText(error)}`);
      return false;
    }
  }

  private async rest(ms: number): Promise<void> {
    if (this.stopped.signal.aborted) return;
    const { random = Math.random } = this.options;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms * (0.5 + random() / 2));
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** Asks all seeds once. */
  private async round(): Promise<FoundCluster | undefined> {
    const { seeds } = this.options;
    const resolved = await Promise.all(seeds.map((seed) => this.addressesOf(seed)));
    const targets = resolved.flatMap((found, seed) => (typeof found === "string" ? [] : found.map((address) => ({ seed, address }))));
    const outcomes = await pooled(targets, ({ seed, address }) => this.ask(address, (seeds[seed] as Seed).host));
    if (this.stopped.signal.aborted) return undefined;
    const triedMs = Date.now();
    this.states = seeds.map(({ text }, seed) => {
      const found = resolved[seed];
      if (typeof found === "string") return { seed: text, asked: [], problem: found, triedMs };
      const asked = targets.flatMap(({ seed: of, address }, i) => (of === seed ? [{ address, outcome: outcomes[i] as SeedOutcome }] : []));
      return { seed: text, asked, problem: problemOf(asked), triedMs };
    });
    return this.agree();
  }

  /** host:port of each address that the seed's name stands for, or why it stands for none. */
  private async addressesOf({ host, port }: Seed): Promise<string[] | string> {
    const { resolve = resolveHost } = this.options;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`its name was not resolved within ${askMs} ms`)), askMs);
    });
    try {
      const found = await Promise.race([resolve(host), late]);
      return found.length === 0 ? `${host} has no address` : found.slice(0, addressesMax).map((address) => addressOf(address, port));
    } catch (error) {
      return `its name can't be resolved: ${errorText(error)}`;
    } finally {
      clearTimeout(timer);
    }
  }

  private async ask(address: string, serverName: string): Promise<SeedOutcome> {
    const { net, life, advertised, clusterId } = this.options;
    try {
      const question = toBytes(encodeSeedQuestion, { life, advertised });
      const bytes = await net.callAt({ address, serverName }, whoAreYou, question, { timeoutMs: askMs, signal: this.stopped.signal });
      const answer = fromBytes(decodeSeedAnswer, bytes);
      if (bytesEqual(answer.life, life)) return { kind: "itself" };
      if (answer.clusterId === "") return { kind: "joining" };
      if (clusterId === "" || answer.clusterId === clusterId) return { kind: "member", answer };
      return { kind: "failed", problem: `it is of cluster ${JSON.stringify(answer.clusterId.slice(0, 64))}, this node is of ${clusterId}` };
    } catch (error) {
      // A node that dialed itself is turned away by itself.
      if (neverSent(error) && error.rule === "ITSELF") return { kind: "itself" };
      const problem = error instanceof CodecError ? `its answer can't be read: ${error.message}` : errorText(error);
      return { kind: "failed", problem };
    }
  }

  /** The one cluster that the seeds are of; undefined where there is none, or more than one. */
  private agree(): FoundCluster | undefined {
    const asked = this.states.flatMap((state) => state.asked);
    const members = this.members();
    const clusters = [...new Set(members.map(({ answer }) => answer.clusterId))];
    if (clusters.length > 1) {
      const who = clusters.map((id) => `${id} (${members.find(({ answer }) => answer.clusterId === id)?.address})`);
      this.show(`the seeds are of different clusters: ${who.join(", ")}; name seeds of one`);
      return undefined;
    }
    const [clusterId] = clusters;
    if (clusterId === undefined) {
      this.show(noneFound(asked.map(({ outcome }) => outcome.kind)));
      return undefined;
    }
    this.show(`joining cluster ${clusterId}`);
    const voters = new Map(members.flatMap(({ answer }) => answer.voter).map((voter) => [voter.node, voter]));
    return { clusterId, members: members.map(({ address }) => address), voters: [...voters.values()] };
  }

  /** Seeds that are of a cluster, by the last round. */
  private members(): { readonly address: string; readonly answer: SeedAnswer }[] {
    const asked = this.states.flatMap((state) => state.asked);
    return asked.flatMap(({ address, outcome }) => (outcome.kind === "member" ? [{ address, answer: outcome.answer }] : []));
  }

  private show(problem: string): void {
    this.problem = problem;
    const { states } = this;
    const shown = JSON.stringify([
      problem,
      states.map(({ seed, asked, problem: own }) => [seed, asked.map(({ address }) => address), own]),
    ]);
    if (shown === this.shown) return;
    this.shown = shown;
    this.options.onState?.(states, problem);
  }
}

function noneFound(kinds: readonly SeedOutcome["kind"][]): string {
  if (kinds.length > 0 && kinds.every((kind) => kind === "itself"))
    return "every seed is this node itself; name other nodes too, or run hop cluster init here";
  if (kinds.includes("joining")) return "no seed is of a cluster yet; run hop cluster init on one node";
  return "no seed could be asked";
}

function problemOf(asked: SeedState["asked"]): string {
  const words = asked.map(({ address, outcome }) => {
    if (outcome.kind === "member") return "";
    if (outcome.kind === "failed") return outcome.problem.includes(address) ? outcome.problem : `${address}: ${outcome.problem}`;
    return outcome.kind === "itself" ? `${address} is this node itself` : `${address} is joining too`;
  });
  return words.includes("") ? "" : words.join("; ");
}

/** Runs `work` for each, a bounded number at a time; results in order. */
async function pooled<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = new Array(items.length);
  let next = 0;
  const worker = async () => {
    while (next < items.length) {
      const i = next++;
      results[i] = await work(items[i] as T);
    }
  };
  await Promise.all(Array.from({ length: Math.min(atATime, items.length) }, worker));
  return results;
}
