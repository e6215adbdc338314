/**
 * The shell of placement: runs the machine on the node's log and holds back its answers until
 * what they rest on is durable.
 */
import type { Hasher, Index, RequestId } from "#core/base";
import { asIndex, asRequestId, asTerm, HopError } from "#core/base";
import type { Deploy, DeployedType } from "#core/placement";
import { PlacementMachine } from "#core/placement";
import type { Identity } from "#proto";
import type { LogStore } from "#store";
import { placementShard } from "./router.ts";
import type { Deployments } from "./service/calls.ts";

interface Waiting {
  readonly index: Index;
  readonly resolve: (version: number) => void;
  readonly reject: (error: HopError) => void;
  readonly version: number;
}

export class PlacementHost implements Deployments {
  private readonly log: LogStore;
  private readonly machine: PlacementMachine;
  /** In log order. */
  private waiting: Waiting[] = [];
  private lastRequest: RequestId = asRequestId(0);
  private poisoned: Error | undefined;

  private constructor(log: LogStore, hasher: Hasher) {
    this.log = log;
    this.machine = new PlacementMachine({ shard: placementShard, term: asTerm(1), log, hasher });
  }

  /** Rebuilds the registry from the log. Rejects with `HopError` HASH_MISMATCH when its chain is broken. */
  static async open(log: LogStore, hasher: Hasher): Promise<PlacementHost> {
    const host = new PlacementHost(log, hasher);
    for await (const record of log.scan(placementShard, asIndex(1))) {
      const refused = host.machine.recover(record);
      if (refused !== undefined) throw HopError.from(refused);
    }
    return host;
  }

  newest(namespace: string, type: string): Uint8Array | undefined {
    return this.machine.newest(namespace, type);
  }

  types(namespace: string): string[] {
    return this.machine.deployments(namespace).map((each) => each.type);
  }

  deployments(namespace: string): DeployedType[] {
    return this.machine.deployments(namespace);
  }

  /** Resolves with the deployment's version when it is durable. Rejects with `HopError`. */
  deploy(identity: Identity, namespace: string, deploy: Deploy): Promise<number> {
    if (this.poisoned !== undefined) return Promise.reject(stopped(this.poisoned));
    if (!this.log.hasRoom()) {
      return Promise.reject(
        new HopError("NO_SPACE", "Cannot deploy: the log's disk is full; free space, then deploy again", { retryAfterMs: 1000 }),
      );
    }
    this.lastRequest = asRequestId(this.lastRequest + 1);
    const [effect] = this.machine.step({ kind: "deploy", nowMs: Date.now(), request: this.lastRequest, identity, namespace, deploy });
    if (effect === undefined) return Promise.reject(new HopError("INTERNAL", "A deployment was not answered"));
    const index = effect.after.until === "now" ? asIndex(0) : effect.after.index;
    if (index <= this.log.durableIndex(placementShard)) return Promise.resolve(effect.version);
    this.log.kick(true);
    return new Promise((resolve, reject) => this.waiting.push({ index, version: effect.version, resolve, reject }));
  }

  /** To be called after each group commit. */
  onDurable(): void {
    if (this.waiting.length === 0) return;
    const durable = this.log.durableIndex(placementShard);
    const released = this.waiting.filter((each) => each.index <= durable);
    this.waiting = this.waiting.filter((each) => each.index > durable);
    for (const each of released) each.resolve(each.version);
  }

  /** To be called when the log can take no more. */
  onPoison(cause: Error): void {
    this.poisoned = cause;
    for (const each of this.waiting) each.reject(stopped(cause));
    this.waiting = [];
  }
}

function stopped(cause: Error): HopError {
  return new HopError("STORE_UNAVAILABLE", "Cannot deploy: this node's log takes no more writes; its own log says why", { cause });
}
