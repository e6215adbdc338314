/** A small cluster whose nodes can be asked as people do, over the real placement machine and real links. */
import { asNodeId, asShardId, asTerm, HopError } from "#core/base";
import { NodePhase } from "#proto";
import { set } from "../../core/placement/machine-fixture.ts";
import { until } from "../../tests/until.ts";
import { type Membership, NodeControl } from "./control.ts";
import { MemberAddresses } from "./node-list.ts";
import { type MemoryPlacement, type PlacementNode, type PlacementTown, placementTown } from "./placement-fixture.ts";
import { type ReplicaDigests, Verifier } from "./verify.ts";

const shard = asShardId;
const node = asNodeId;

export class Digests implements ReplicaDigests {
  index = 10;
  state = 1;
  log = 1;
  /** Of the log, the replica has what is behind this. */
  forgotten = 0;

  digest(_: unknown, index: number, behind: number) {
    if (index > this.index) return Promise.reject(new HopError("STORE_UNAVAILABLE", "not that far"));
    const isNow = index === 0 || index === this.index;
    const stateHash = isNow ? new Uint8Array(32).fill(this.state) : new Uint8Array(0);
    const from = Math.max(behind, this.forgotten);
    const logHash = new Uint8Array(32).fill(this.log + from);
    return Promise.resolve({ appliedIndex: index === 0 ? this.index : index, stateHash, logHash, behind: from });
  }
}

/** Three nodes that all hold shard 1, which node 1 leads. */
export class ControlTown implements Disposable {
  readonly town: PlacementTown;
  readonly group: MemoryPlacement;
  readonly digests: Digests[];
  readonly verifiers: Verifier[];
  readonly controls: NodeControl[];

  constructor(members = 3) {
    this.town = placementTown(members, 1);
    this.group = this.town.group;
    const all = this.town.nodes.map((_, i) => i + 1);
    if (members >= 3) {
      this.group.do({ kind: "want-replicas", shard: shard(1), nodes: all.slice(0, 3).map(node) });
      this.group.do({ kind: "replicas-changed", shard: shard(1), replicas: set([1, 2, 3], 5) });
    }
    this.group.do({ kind: "lease", shard: shard(1), node: node(1), term: asTerm(2) });
    this.digests = this.town.nodes.map(() => new Digests());
    this.verifiers = this.town.nodes.map(({ placement }, i) => new Verifier(placement, this.digests[i] as Digests));
    this.controls = this.town.nodes.map(({ placement }, i) => {
      const member = {
        placement,
        addresses: new MemberAddresses(placement),
        verifier: this.verifiers[i] as Verifier,
        unsealed: () => "",
      };
      return new NodeControl({ membership: membership(i + 1), member: () => member });
    });
    for (const { placement } of this.town.nodes) placement.start();
  }

  /** A control whose view and figures are there. */
  async at(id: number): Promise<NodeControl> {
    const placements = this.town.nodes.map(({ placement }) => placement);
    const version = () => this.group.machine.machine.view().version;
    await until(() => placements.every(({ view }) => view.version === version()), { what: "the view" });
    return this.controls[id - 1] as NodeControl;
  }

  async heard(): Promise<void> {
    const first = this.town.nodes[0] as PlacementNode;
    await until(() => first.placement.reports().size === this.town.nodes.length, { what: "all reports" });
  }

  [Symbol.dispose](): void {
    this.town[Symbol.dispose]();
  }
}

export function membership(id: number, more: Partial<Membership> = {}): Membership {
  return {
    phase: () => NodePhase.member,
    clusterId: () => "c1",
    node: () => id,
    version: "0.2.0",
    peer: () => `10.0.0.${id}:7072`,
    seeds: () => [],
    init: () => Promise.reject(new HopError("ALREADY_MEMBER", "is one")),
    restore: () => {
      throw new HopError("ALREADY_MEMBER", "is one");
    },
    addSeeds: () => {},
    onChange: () => () => {},
    ...more,
  };
}
