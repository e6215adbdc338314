/**
 * The placement group's state machine: today the deployment registry.
 *
 * Like a shard it logs events, not requests, chained per partition (`deploy/<namespace>`), in
 * shard 0 of the node's log. What it answers waits for the commit of what it rests on.
 */
import {
  asIndex,
  assert,
  type Barrier,
  type Hasher,
  HlcClock,
  type Index,
  type LogWriter,
  now,
  type Rejection,
  type RequestId,
  type ShardId,
  type Term,
} from "#core/base";
import { appendEvent, followEvent } from "#core/merkle";
import {
  type BundleDeployed,
  decodeBundleDeployed,
  decodeEvent,
  decodeRecord,
  EventKind,
  encodeBundleDeployed,
  fromBytes,
  type Identity,
} from "#proto";
import {
  applyDeploy,
  type Deploy,
  type DeployedType,
  decideDeploy,
  deployedVersion,
  emptyNamespace,
  type NamespaceDeployments,
  namespaceOfDeploy,
} from "./registry.ts";

const schemaId = 1;

export type PlacementInput = { readonly nowMs: number; readonly request: RequestId; readonly identity: Identity } & {
  readonly kind: "deploy";
  readonly namespace: string;
  readonly deploy: Deploy;
};

/** Answers a request once its barrier is reached. */
export interface PlacementEffect {
  readonly kind: "deployed";
  readonly request: RequestId;
  readonly version: number;
  readonly after: Barrier;
}

export interface PlacementOptions {
  readonly shard: ShardId;
  readonly term: Term;
  readonly log: LogWriter;
  readonly hasher: Hasher;
}

export class PlacementMachine {
  private readonly options: PlacementOptions;
  private readonly clock = new HlcClock();
  private readonly namespaces = new Map<string, NamespaceDeployments>();
  private lastIndex: Index = asIndex(0);

  constructor(options: PlacementOptions) {
    this.options = options;
  }

  step(input: PlacementInput): PlacementEffect[] {
    const state = this.namespaces.get(input.namespace) ?? emptyNamespace(input.namespace);
    const event = decideDeploy(state, input.deploy);
    if (event !== undefined) {
      this.append(state, event, input);
      this.namespaces.set(input.namespace, state);
    }
    const version = event?.version ?? deployedVersion(state, input.deploy);
    return [{ kind: "deployed", request: input.request, version, after: this.committed(state) }];
  }

  /**
   * Takes in a record of an earlier life, in log order. Refuses with HASH_MISMATCH a record that
   * does not continue what came before.
   */
  recover(record: { readonly index: Index; readonly body: Uint8Array }): Rejection | undefined {
    assert(record.index > this.lastIndex, `placement records come in order: got ${record.index} after ${this.lastIndex}`);
    this.lastIndex = record.index;
    for (const bytes of fromBytes(decodeRecord, record.body).event) {
      const event = fromBytes(decodeEvent, bytes);
      const namespace = namespaceOfDeploy(event.partition);
      assert(namespace !== undefined, `partition ${event.partition} is one of placement`);
      const state = this.namespaces.get(namespace) ?? emptyNamespace(namespace);
      const refused = followEvent(state.chain, { bytes, event, index: record.index }, this.options.hasher);
      if (refused !== undefined) return refused;
      this.clock.witness(event);
      this.namespaces.set(namespace, state);
      if (event.kind === EventKind.bundleDeployed) applyDeploy(state, fromBytes(decodeBundleDeployed, event.payload), event);
    }
    return undefined;
  }

  /** Bundle that a new run of the type is pinned to. */
  newest(namespace: string, type: string): Uint8Array | undefined {
    return this.namespaces.get(namespace)?.types.get(type)?.bundle;
  }

  /** Newest deployment of each type, by type. */
  deployments(namespace: string): DeployedType[] {
    const types = [...(this.namespaces.get(namespace)?.types.values() ?? [])];
    return types.sort((a, b) => (a.type < b.type ? -1 : 1));
  }

  private committed(state: NamespaceDeployments): Barrier {
    return state.chain.lastIndex === 0 ? now : { until: "committed", index: asIndex(state.chain.lastIndex) };
  }

  private append(state: NamespaceDeployments, event: BundleDeployed, input: PlacementInput): void {
    const { shard, term, log, hasher } = this.options;
    this.clock.tick(input.nowMs);
    this.lastIndex = asIndex(this.lastIndex + 1);
    const { timeMs, logical } = this.clock;
    const kind = EventKind.bundleDeployed;
    const { identity } = input;
    const writer = log.begin(shard, this.lastIndex, term);
    const encode = encodeBundleDeployed;
    appendEvent({ writer, index: this.lastIndex, hasher }, state.chain, {
      timeMs,
      logical,
      kind,
      schemaId,
      identity,
      encode,
      payload: event,
    });
    log.end();
    applyDeploy(state, event, { timeMs, identity });
  }
}
