/**
 * Run → key → shard → its leader, here or at another node, under a versioned shard map.
 *
 * Whoever asks never has to know where a shard is: a command that was refused because it came to
 * the wrong place, or because there was no leader yet, was decided nowhere, so it is routed anew
 * until the caller's budget is over. One whose fate is not known is never sent again from here.
 */
import type { NodeId, Partition, Reply, Seq, ShardId } from "#core/base";
import { asSeq, HopError } from "#core/base";
import { type Command, partitionOfCommand } from "#core/shard";
import type { DescribeReply, Identity } from "#proto";
import type { PeerNet } from "../peer/peer-net.ts";
import { asHopError } from "../service/status.ts";
import type { ShardPort } from "../shard/shard-port.ts";
import type { Timing } from "../timing.ts";
import { Arrivals } from "./arrivals.ts";
import { Gate } from "./gate.ts";
import type { LocalShards } from "./local-shards.ts";
import { budgetMsDefault, isUndecided, longWaitMs, mayAskAgain, Pursuit } from "./pursuit.ts";
import { changedRemote, commandRemote, describeRemote, historyRemote, type Known, type RemoteShardParts } from "./remote-shard.ts";
import { keyOf, type ShardMap, type ShardPlace } from "./shard-map.ts";

/** Who asks, the shard-map epoch that it routed by (0: it keeps no map), and how long a leader is waited for. */
export interface Asking {
  readonly identity: Identity;
  readonly epoch: number;
  /** Milliseconds; left out: 2 s. */
  readonly budgetMs?: number;
}

export interface RouterParts {
  readonly self: NodeId;
  readonly shards: Pick<LocalShards, "led">;
  readonly net: PeerNet;
  readonly timing: Timing;
}

/** Whom a command goes to, as far as is known at one moment. */
export interface Lead {
  readonly shard: ShardId;
  readonly isHere: boolean;
  readonly leaseEpoch: number;
}

const readRetryMs = 20;
/** A leader that was succeeded and is still there gets this long to answer what it was asked before. */
const deposedGraceMs = 100;

/** What was asked of one node while it led a shard. */
interface Era {
  readonly node: NodeId;
  readonly over: AbortController;
}

export class Router {
  /** Requests of other nodes that wait for what is on its way here. */
  readonly arrivals: Arrivals;
  private readonly parts: RouterParts;
  private readonly gates = new Map<ShardId, Gate>();
  /** Leaders that refusals told of, newer than the map's. */
  private readonly hints = new Map<ShardId, { readonly node: NodeId; readonly leaseEpoch: number }>();
  private readonly eras = new Map<ShardId, Era>();
  private map: ShardMap | undefined;
  private isClosed = false;

  constructor(parts: RouterParts) {
    this.parts = parts;
    this.arrivals = new Arrivals(parts.timing);
  }

  /** Of the map; 0 before the first one. */
  get epoch(): number {
    return this.map?.epoch ?? 0;
  }

  /** Takes the map that placement has now. Whoever waits for a leader tries again at once. */
  install(map: ShardMap): void {
    this.map = map;
    for (const [shard, hint] of this.hints) if ((map.place(shard)?.leaseEpoch ?? Infinity) >= hint.leaseEpoch) this.hints.delete(shard);
    for (const [shard, era] of this.eras) {
      const leader = map.place(shard)?.leader;
      if (leader !== undefined && leader !== era.node) this.endEra(shard, era);
    }
    for (const [shard, gate] of this.gates) {
      gate.open();
      if (gate.size === 0 && map.place(shard) === undefined) this.gates.delete(shard);
    }
    this.arrivals.look();
  }

  /** The shard opened here, or took in its neighbour's keys: its callers try again at once. */
  opened(shard: ShardId): void {
    this.gates.get(shard)?.open();
    this.arrivals.look();
  }

  /**
   * The partition's keys are not served here, and placement has given them to the shard and the shard to this node; or
   * whoever asks goes by a map of `epoch` that has not come here yet.
   */
  isComing(shard: ShardId, partition: Partition, epoch = 0): boolean {
    if (this.isClosed || this.parts.shards.led(shard)?.owns(partition) === true) return false;
    if (epoch > this.epoch) return true;
    const place = this.map?.find(keyOf(partition));
    return place?.shard === shard && place.leader === this.parts.self;
  }

  /** Refuses everything from now on, what waits included. */
  close(): void {
    this.isClosed = true;
    for (const gate of this.gates.values()) gate.close();
    this.arrivals.close();
  }

  /** The place of a partition. Throws `HopError` STORE_UNAVAILABLE before the first map, STALE_EPOCH for another epoch than the map's. */
  place(partition: Partition, epoch = 0): ShardPlace {
    const { map } = this;
    if (map === undefined) throw this.noMap(partition);
    if (epoch !== 0 && epoch !== map.epoch) {
      throw new HopError("STALE_EPOCH", `Cannot route ${partition}: the request carries epoch ${epoch}, want ${map.epoch}`, {
        epoch: map.epoch,
      });
    }
    return map.find(keyOf(partition));
  }

  /** Every shard of data. Throws `HopError` STORE_UNAVAILABLE before the first map. */
  places(): readonly ShardPlace[] {
    if (this.map === undefined) throw this.noMap("the request");
    return this.map.places;
  }

  /** The shard's port, where it is led here. */
  local(shard: ShardId): ShardPort | undefined {
    return this.parts.shards.led(shard);
  }

  /** Node that leads the shard, as far as is known here. */
  leaderOf(place: ShardPlace): NodeId | undefined {
    if (this.parts.shards.led(place.shard) !== undefined) return this.parts.self;
    const hint = this.hints.get(place.shard);
    return hint !== undefined && hint.leaseEpoch > place.leaseEpoch ? hint.node : place.leader;
  }

  /** Whom a command for the partition goes to now. Throws `HopError` STORE_UNAVAILABLE before the first map. */
  lead(partition: Partition): Lead {
    const { shard, leaseEpoch } = this.place(partition);
    return {
      shard,
      isHere: this.parts.shards.led(shard) !== undefined,
      leaseEpoch: Math.max(leaseEpoch, this.hints.get(shard)?.leaseEpoch ?? 0),
    };
  }

  /** What this node knows of a shard's leader, for others that look for it. */
  leaseOf(shard: ShardId): { readonly leader: number; readonly leaseEpoch: number } {
    const place = this.map?.place(shard);
    return { leader: place?.leader ?? 0, leaseEpoch: place?.leaseEpoch ?? 0 };
  }

  /**
   * Hands the command to its shard's leader. `done` is called exactly once, perhaps before this
   * returns, unless the returned function is called first: then the caller no longer waits.
   * Throws as `place`.
   */
  command(asking: Asking, command: Command, done: (reply: Reply) => void): () => void {
    const place = this.place(partitionOfCommand(command), asking.epoch);
    const port = this.isClosed ? undefined : this.parts.shards.led(place.shard);
    if (port === undefined) return new Pursuit(this, { asking, command, done }).begin();
    let pursuit: Pursuit | undefined;
    const request = port.command(asking.identity, command, (reply) => {
      if (reply.kind !== "rejected" || !mayAskAgain(command, reply, {})) done(reply);
      else {
        pursuit = new Pursuit(this, { asking, command, done });
        pursuit.resume(place, reply);
      }
    });
    return () => (pursuit === undefined ? port.forget(request) : pursuit.forget());
  }

  /** Durable state of a run; undefined where there is no such run. Rejects with `HopError`. */
  describe(partition: Partition, asking: Pick<Asking, "epoch" | "budgetMs"> = { epoch: 0 }): Promise<DescribeReply | undefined> {
    return this.read(partition, asking, async (place, port) => {
      if (port === undefined) return describeRemote(this.remote(place), partition);
      const state = port.describe(partition);
      // What is told must not be lost with the node: wait for what the state rests on.
      if (state !== undefined) await port.settled(partition);
      return state;
    });
  }

  /** Resolves when the run has a durable event at `seq`, has ended, or `signal` aborts. Rejects with `HopError`. */
  async changed(partition: Partition, seq: Seq, signal: AbortSignal): Promise<void> {
    await this.read(partition, { epoch: 0 }, (place, port) => {
      if (signal.aborted) return Promise.resolve();
      return port === undefined ? changedRemote(this.remote(place), partition, seq, signal) : port.changed(partition, seq, signal);
    });
  }

  /** Events of a partition from `fromSeq` on, durable ones, also where its leader changes half-way. Fails with `HopError`. */
  async *history(partition: Partition, fromSeq: Seq): AsyncIterable<Uint8Array[]> {
    let seq: number = fromSeq;
    let failedMs: number | undefined;
    for (;;) {
      const place = this.place(partition);
      const port = this.parts.shards.led(place.shard);
      const before = seq;
      try {
        const chunks = port === undefined ? historyRemote(this.remote(place), partition, asSeq(seq)) : port.history(partition, asSeq(seq));
        for await (const chunk of chunks) {
          seq += chunk.length;
          yield chunk;
        }
        return;
      } catch (error) {
        const { nowMs } = this;
        if (failedMs === undefined || seq > before) failedMs = nowMs;
        if (!this.mayReadAgain(error) || nowMs - failedMs >= budgetMsDefault) throw error;
        await this.untilAgain(place.shard, error, failedMs + budgetMsDefault);
      }
    }
  }

  /** Reads at the shard's leader; a leader that is not there yet, or went away, is asked again until the budget is over. */
  private async read<T>(
    partition: Partition,
    asking: Pick<Asking, "epoch" | "budgetMs">,
    at: (place: ShardPlace, port: ShardPort | undefined) => Promise<T>,
  ): Promise<T> {
    const budgetMs = asking.budgetMs ?? budgetMsDefault;
    let failedMs: number | undefined;
    for (;;) {
      const place = this.place(partition, asking.epoch);
      const startedMs = this.nowMs;
      try {
        return await at(place, this.parts.shards.led(place.shard));
      } catch (error) {
        const { nowMs } = this;
        if (failedMs === undefined || nowMs - startedMs > longWaitMs) failedMs = nowMs;
        if (!this.mayReadAgain(error) || nowMs - failedMs >= budgetMs) throw error;
        await this.untilAgain(place.shard, error, failedMs + budgetMs);
      }
    }
  }

  /**
   * Until a read that failed is worth another try. What found no leader waits with the commands that
   * wait for one, so that a shard without a leader is not asked more often the more readers it has.
   */
  private untilAgain(shard: ShardId, error: unknown, deadlineMs: number): Promise<void> {
    return new Promise((resolve) => {
      // One whose time is over tries once more, and fails with what is so then.
      if (isUndecided(asHopError(error).reason)) this.gateOf(shard).add({ deadlineMs, retry: resolve, expire: resolve });
      else this.parts.timing.after(readRetryMs, resolve);
    });
  }

  private mayReadAgain(error: unknown): boolean {
    const { reason } = asHopError(error);
    return !this.isClosed && (isUndecided(reason) || reason === "STORE_UNAVAILABLE");
  }

  /** Throws `HopError` NOT_LEADER where nobody else is known to lead the shard. */
  private remote(place: ShardPlace): RemoteShardParts {
    const node = this.leaderOf(place);
    if (this.isClosed) throw stopping();
    if (node === undefined || node === this.parts.self) {
      throw new HopError("NOT_LEADER", `Cannot reach shard ${place.shard}: it has no leader now`, { retryAfterMs: 100 });
    }
    return this.remoteAt(place.shard, node);
  }

  private remoteAt(shard: ShardId, node: NodeId): RemoteShardParts {
    let era = this.eras.get(shard);
    if (era?.node !== node) {
      if (era !== undefined) this.endEra(shard, era);
      era = { node, over: new AbortController() };
      this.eras.set(shard, era);
    }
    return { net: this.parts.net, node, shard, epoch: this.epoch, deposed: era.over.signal };
  }

  private endEra(shard: ShardId, { node, over }: Era): void {
    this.eras.delete(shard);
    const message = `Node ${node} does not lead shard ${shard} any more, and did not answer`;
    this.parts.timing.after(deposedGraceMs, () => over.abort(new HopError("STORE_UNAVAILABLE", message, { retryAfterMs: 20 })));
  }

  /** For a pursuit: asks whoever leads now. Returns what makes it forget, or undefined where nobody leads. */
  tryOnce(command: Command, asking: Asking, answered: (place: ShardPlace, reply: Reply, known: Known) => void): (() => void) | ShardPlace {
    const place = this.place(partitionOfCommand(command));
    const port = this.isClosed ? undefined : this.parts.shards.led(place.shard);
    if (port !== undefined) {
      const request = port.command(asking.identity, command, (reply) => answered(place, reply, {}));
      return () => port.forget(request);
    }
    const node = this.leaderOf(place);
    if (node === undefined || node === this.parts.self || this.isClosed) return place;
    return commandRemote(this.remoteAt(place.shard, node), asking.identity, command, (reply, known) => answered(place, reply, known));
  }

  noteHint(place: ShardPlace, known: Known): void {
    const { hint } = known;
    if (hint === undefined || hint.leader === 0 || hint.leaseEpoch <= place.leaseEpoch) return;
    const before = this.hints.get(place.shard);
    if (before === undefined || before.leaseEpoch < hint.leaseEpoch)
      this.hints.set(place.shard, { node: hint.leader as NodeId, leaseEpoch: hint.leaseEpoch });
  }

  gateOf(shard: ShardId): Gate {
    const found = this.gates.get(shard);
    if (found !== undefined) return found;
    const made = new Gate(this.parts.timing);
    this.gates.set(shard, made);
    return made;
  }

  get nowMs(): number {
    return this.parts.timing.monotonicMs();
  }

  get isStopping(): boolean {
    return this.isClosed;
  }

  private noMap(what: string): HopError {
    return new HopError("STORE_UNAVAILABLE", `Cannot route ${what}: this node has no shard map yet, since it is still joining a cluster`, {
      retryAfterMs: 500,
    });
  }
}

const stopping = () =>
  new HopError("STORE_UNAVAILABLE", "Cannot take the request: this node is shutting down; try again on another one", { retryAfterMs: 100 });
