/** A cluster that exists in memory alone, behind the real service on a real port. */
import { Server, ServerCredentials } from "@grpc/grpc-js";
import { HopError, rangeText, wholeRange } from "#core/base";
import type {
  ClusterEntryInit,
  ClusterMemberInit,
  ClusterStatusInit,
  ProgressInit,
  ReplicationSettingInit,
  ShardInfoInit,
  VerifyReplyInit,
} from "#proto";
import { MemberState, NodePhase } from "#proto";
import type { Asker, ClusterControl, EntryChange, EntryClass, Page, PageRequest, ProgressStream } from "./cluster-control.ts";
import { ClusterService } from "./cluster-service.ts";
import { localIdentity } from "./identity.ts";

const page = <Item, Position extends string | number>(
  all: readonly Item[],
  position: (item: Item) => Position,
  { after, limit }: PageRequest<Position>,
): Page<Item> => {
  const rest = after === undefined ? all : all.filter((item) => position(item) > after);
  return { items: rest.slice(0, limit), isMore: rest.length > limit };
};

export class MemoryCluster implements ClusterControl {
  /** What was asked, as `verb argument …`. */
  readonly asked: string[] = [];
  clusterId = "";
  membersTotal = 3;
  shardsTotal = 2;
  /** Ends each change before it is finished. */
  breaksOff = false;
  /** It becomes whole after it was asked so often how it stands. */
  statusesUntilWhole = Number.POSITIVE_INFINITY;
  readonly entriesByName = new Map<string, ClusterEntryInit>();
  verified: VerifyReplyInit[] = [];
  replication: ReplicationSettingInit | undefined;
  /** When leaders told of their shards last; 0 = never. */
  reportedMs = 1_770_000_000_000;

  async status(): Promise<ClusterStatusInit> {
    if (this.clusterId === "")
      return {
        phase: NodePhase.joining,
        version: "1.2.3",
        peer: "10.0.0.2:7072",
        seed: [
          { seed: "node-1", address: ["10.0.0.1:7072"], problem: "connection refused", triedMs: Date.now() - 2000 },
          { seed: "node-9:7072" },
        ],
      };
    const isWhole = this.statusesUntilWhole-- <= 0;
    return {
      clusterId: this.clusterId,
      node: 1,
      phase: NodePhase.member,
      version: "1.2.3",
      peer: "10.0.0.1:7072",
      placementLeader: 1,
      placementVoter: [1, 2, 3],
      epoch: 17,
      nodesLive: isWhole ? 3 : 2,
      nodesTotal: 3,
      shardsTotal: 2,
      shardsUnderReplicated: isWhole ? 0 : 1,
      replicationFactor: 3,
      replicationWanted: this.replication?.count ?? 3,
      replication: this.replication,
      versions: [
        { version: "1.2.3", nodes: 2 },
        { version: "1.3.0", nodes: 1 },
      ],
      underWay: isWhole ? [] : ["shard 2: replica from node 3 to node 4"],
    };
  }

  async *restore(
    { objectStore, cluster }: { readonly objectStore: string; readonly cluster: string },
    { identity }: Asker,
  ): ProgressStream {
    this.asked.push(`restore ${cluster} ${objectStore} by ${identity.subject}`);
    yield { text: "Checking sealed segments, bytes", done: 3, total: 4 };
    yield { text: "Shard 1: through record 12, of 2026-02-02T02:40:00.000Z, 7 events" };
    if (this.breaksOff) return;
    this.clusterId = "hop_00000000000000b2";
    yield { text: "This is node 4 of hop_00000000000000b2", finished: true };
  }

  async init({ identity }: Asker) {
    this.asked.push(`init by ${identity.subject}`);
    if (this.clusterId !== "") throw new HopError("ALREADY_MEMBER", `Cannot make a cluster: this node is a member of ${this.clusterId}`);
    this.clusterId = "hop_0123456789abcdef";
    return { clusterId: this.clusterId, node: 1 };
  }

  join = (seeds: readonly string[]) => this.change(`join ${seeds.join(" ")}`);
  leave = (node: number | undefined) => this.change(`leave ${node ?? "self"}`);
  split = (shard: number, at: number | undefined) => this.change(`split ${shard} at ${at ?? "the middle"}`);
  merge = (left: number) => this.change(`merge ${left}`);
  compact = (shard: number) => this.change(`compact ${shard}`);
  move = (move: { shard: number; from: number; to: number }) => this.change(`move ${move.shard} from ${move.from} to ${move.to}`);
  transfer = (to: { shard: number; to: number }) => this.change(`transfer ${to.shard} to ${to.to}`);

  async members(request: PageRequest<number> & { readonly withRemoved: boolean }): Promise<Page<ClusterMemberInit>> {
    const all = Array.from({ length: this.membersTotal }, (_, at): ClusterMemberInit => {
      const node = at + 1;
      const host = `10.0.${node >> 8}.${node & 255}`;
      return {
        node,
        peer: `${host}:7072`,
        grpc: `${host}:7070`,
        version: "1.2.3",
        zone: "a",
        replicas: 2,
        ...(node === 3
          ? { state: MemberState.unreachable, unreachableSinceMs: Date.now() - 90_000 }
          : { state: MemberState.live, diskBytes: 3 << 20 }),
      };
    });
    return page(all, ({ node }) => node as number, request);
  }

  async shards(request: PageRequest<number>): Promise<Page<ShardInfoInit>> {
    const all = Array.from({ length: this.shardsTotal }, (_, at) => this.info(at + 1));
    return page(all, ({ shard }) => shard as number, request);
  }

  async shard(shard: number): Promise<ShardInfoInit> {
    if (shard > this.shardsTotal) throw new HopError("SHARD_NOT_FOUND", `Cannot show shard ${shard}: there is no such shard`);
    return this.info(shard);
  }

  async *verify(): AsyncIterable<VerifyReplyInit> {
    yield* this.verified;
  }

  async setReplication({ count, reason }: { readonly count: number; readonly reason: string }, { identity }: Asker) {
    this.asked.push(`replication ${count} because ${reason}`);
    this.replication = { count, version: 2, changedMs: 1_770_000_000_000, identity, reason };
    return this.replication;
  }

  async setEntry(change: EntryChange, { identity }: Asker): Promise<number> {
    const key = `${change.class}/${change.name}`;
    const version = this.entriesByName.get(key)?.version ?? 0;
    if (change.expectedVersion !== undefined && change.expectedVersion !== version)
      throw new HopError("VERSION_CONFLICT", `Cannot set ${key}: it has version ${version}, want ${change.expectedVersion}`);
    const entry = {
      class: change.class,
      name: change.name,
      value: change.value.slice(),
      version: version + 1,
      changedMs: 1_770_000_000_000,
      identity,
    };
    this.entriesByName.set(key, entry);
    return entry.version;
  }

  async entry(named: { readonly class: EntryClass; readonly name: string }): Promise<ClusterEntryInit> {
    const entry = this.entriesByName.get(`${named.class}/${named.name}`);
    if (entry === undefined) throw new HopError("ENTRY_NOT_FOUND", `Cannot read ${named.class} ${named.name}: there is no such entry`);
    return entry;
  }

  async entries(request: PageRequest<string> & { readonly class: EntryClass }): Promise<Page<ClusterEntryInit>> {
    const all = [...this.entriesByName.values()].filter((entry) => entry.class === request.class);
    return page(
      all.sort((a, b) => ((a.name as string) < (b.name as string) ? -1 : 1)),
      ({ name }) => name as string,
      request,
    );
  }

  nodes = () => ({ address: [], version: 1 });
  onNodes = () => () => {};

  private async *change(asked: string): ProgressStream {
    this.asked.push(asked);
    const steps: ProgressInit[] = [{ text: "catching up", done: 1, total: 2 }, { text: "changing the members" }];
    yield* steps;
    if (!this.breaksOff) yield { text: `${asked}: done`, finished: true };
  }

  private info(shard: number): ShardInfoInit {
    return {
      shard,
      ...wholeRange,
      range: rangeText(wholeRange),
      leader: shard === 1 ? 1 : 0,
      epoch: 4,
      term: 9,
      lastIndex: 1200,
      bytes: 5 << 20,
      rateMilli: 12_500,
      change: shard === 1 ? "" : "moving from node 3 to node 4",
      reportedMs: this.reportedMs,
      replica: [
        { node: 1, matchIndex: 1200, progress: "leader", live: true },
        { node: 3, matchIndex: 1100, lag: 100, progress: "probe" },
        { node: 4, learner: true, matchIndex: 800, lag: 400, progress: "snapshot", live: true },
      ],
    };
  }
}

export interface ServedCluster {
  readonly address: string;
  stop(): void;
}

/** `closed`: why calls are not taken yet, as while a node is joining. */
export async function serveCluster(control: ClusterControl, closed?: () => string | undefined, atPort = 0): Promise<ServedCluster> {
  const server = new Server();
  const edge = {
    identify: localIdentity,
    isDraining: () => false,
    observe() {},
    fault(_: string, error: unknown) {
      throw error;
    },
    ...(closed === undefined ? {} : { whyNotOpen: closed }),
  };
  new ClusterService(control, edge).addTo(server);
  const port = await new Promise<number>((done, fail) => {
    server.bindAsync(`127.0.0.1:${atPort}`, ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? done(bound) : fail(error),
    );
  });
  return { address: `127.0.0.1:${port}`, stop: () => server.forceShutdown() };
}
