/** Placement in memory: the real machine, led by whichever node a test says, behind real links. */
import { asNodeId, asRequestId, HopError, type NodeId, type ShardId } from "#core/base";
import type { ClusterView, PlacementCommand, PlacementReply, ShardLoadReport } from "#core/placement";
import type { Identity } from "#proto";
import { Placement as Machine } from "../../core/placement/machine-fixture.ts";
import { TestPeer } from "../peer/peer-fixture.ts";
import { realTiming } from "../timing.ts";
import { serveFigures } from "./figures.ts";
import { serveJoining } from "./joining.ts";
import type { LocalPlacement } from "./local-shards.ts";
import { Placement } from "./placement.ts";
import { servePlacement } from "./placement-service.ts";

/** The group: what is decided is committed at once. */
export class MemoryPlacement {
  leader = 1;
  readonly machine: Machine;
  readonly commands: { readonly identity: Identity; readonly command: PlacementCommand }[] = [];
  readonly voters = new Map<number, MemoryVoter>();

  constructor(machine: Machine) {
    this.machine = machine;
  }

  /** A change that came about without anybody's asking. */
  do(command: PlacementCommand): PlacementReply {
    const reply = this.machine.do(command);
    this.show();
    return reply;
  }

  show(): void {
    for (const voter of this.voters.values()) voter.onView(voter.view());
  }
}

export class MemoryVoter implements LocalPlacement {
  onView: (view: ClusterView) => void = () => {};
  private readonly node: number;
  private readonly group: MemoryPlacement;

  constructor(node: number, group: MemoryPlacement) {
    this.node = node;
    this.group = group;
    group.voters.set(node, this);
  }

  leads(): boolean {
    return this.group.leader === this.node;
  }

  leaderHint(): NodeId | undefined {
    return this.group.leader === 0 ? undefined : asNodeId(this.group.leader);
  }

  command(identity: Identity, command: PlacementCommand): Promise<PlacementReply> {
    if (!this.leads()) return Promise.reject(new HopError("NOT_LEADER", "Placement is not led by this node"));
    this.group.commands.push({ identity, command });
    const input = { nowMs: Date.now(), request: asRequestId(1), identity, command };
    const reply = this.group.machine.machine.step(input)[0]?.reply as PlacementReply;
    this.group.show();
    return Promise.resolve(reply);
  }

  view(): ClusterView {
    return this.group.machine.machine.view();
  }
}

export class PlacementNode implements Disposable {
  readonly peer: TestPeer;
  readonly placement: Placement;
  loads = new Map<ShardId, ShardLoadReport>();
  isFull = false;

  constructor(id: number, known: readonly number[], voter?: LocalPlacement) {
    this.peer = new TestPeer(id);
    this.placement = new Placement({
      self: asNodeId(id),
      net: this.peer.net,
      timing: realTiming,
      local: () => voter,
      known: () => known.map(asNodeId),
      loads: () => this.loads,
      isFull: () => this.isFull,
      note: () => {},
    });
    servePlacement(this.placement);
    serveFigures(this.placement);
    serveJoining(this.placement);
  }

  [Symbol.dispose](): void {
    this.placement.close();
    this.peer.net.close();
  }
}

export interface PlacementTown extends Disposable {
  readonly group: MemoryPlacement;
  readonly nodes: readonly PlacementNode[];
}

/** Nodes 1 … `members`, of which the first `voters` have a vote in placement, and as many members in the registry. */
export function placementTown(members: number, voters: number, options: { readonly shards?: number } = {}): PlacementTown {
  const group = new MemoryPlacement(Machine.of(members, options));
  const known = Array.from({ length: voters }, (_, i) => i + 1);
  const nodes = Array.from(
    { length: members },
    (_, i) => new PlacementNode(i + 1, known, i < voters ? new MemoryVoter(i + 1, group) : undefined),
  );
  for (const { peer } of nodes) peer.meet(...nodes.map((each) => each.peer).filter((each) => each !== peer));
  return {
    group,
    nodes,
    [Symbol.dispose]: () => {
      for (const node of nodes) node[Symbol.dispose]();
    },
  };
}

export const load = (fields: Partial<ShardLoadReport> = {}): ShardLoadReport => ({
  leads: true,
  bytes: 0,
  eventsPerSecond: 0,
  partitions: 0,
  lastIndex: 0,
  lag: new Map(),
  ...fields,
});
