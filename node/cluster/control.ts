/**
 * What people ask of a cluster, at any of its nodes: what it is, and what it is to become.
 *
 * A node that is still looking for a cluster answers for itself, and refuses the rest.
 */
import type { Key, NodeId, ShardId } from "#core/base";
import { HopError } from "#core/base";
import { shardOf } from "#core/placement";
import type {
  ClusterEntryInit,
  ClusterInitReplyInit,
  ClusterMemberInit,
  ClusterStatusInit,
  NodePhase,
  NodesInit,
  SeedAttemptInit,
  ShardInfoInit,
  VerifyReplyInit,
} from "#proto";
import { NodePhase as Phase } from "#proto";
import type { RestoreWanted } from "../restore/restoring.ts";
import type { Asker, ClusterControl, EntryChange, EntryClass, Page, PageRequest, ProgressStream } from "../service/cluster-control.ts";
import { allShards, memberOf, pageOf, type Shown, shardInfo, statusOf } from "./cluster-pages.ts";
import { diskUses } from "./disk-use.ts";
import { clusterFigures, isReachable } from "./figures.ts";
import type { MemberAddresses } from "./node-list.ts";
import type { Placement } from "./placement.ts";
import { ShardChanges } from "./shard-changes.ts";
import type { Verifier } from "./verify.ts";

/** How this node stands to the cluster, and its way into one. */
export interface Membership {
  phase(): NodePhase;
  /** Empty while it belongs to none. */
  clusterId(): string;
  /** 0 while it belongs to none. */
  node(): number;
  readonly version: string;
  /** Peer address that it advertises. */
  peer(): string;
  /** What was tried to find a cluster. */
  seeds(): readonly SeedAttemptInit[];
  /** Makes a cluster of this node. Rejects with ALREADY_MEMBER. */
  init(asker: Asker): Promise<ClusterInitReplyInit>;
  /** Makes a cluster of this node out of what another one had uploaded. Rejects with ALREADY_MEMBER. */
  restore(wanted: RestoreWanted, asker: Asker): ProgressStream;
  /** More addresses to look for a cluster at. Throws `HopError` BAD_REQUEST for what is none. */
  addSeeds(seeds: readonly string[]): void;
  /** Calls `listener` when something of the above has changed, until the returned function is called. */
  onChange(listener: () => void): () => void;
}

/** What there is once the node is a member. */
export interface MemberParts {
  readonly placement: Placement;
  readonly addresses: MemberAddresses;
  readonly verifier: Verifier;
  /** Why this node seals nothing any more; empty where it does, or has no object storage. */
  readonly unsealed: () => string;
}

export interface NodeControlParts {
  readonly membership: Membership;
  /** Undefined while the node belongs to no cluster. */
  readonly member: () => MemberParts | undefined;
}

const lookMs = 500;
/** What was decided is on its way to this node for no longer. */
const seenMsMax = 2_000;

export class NodeControl implements ClusterControl {
  private readonly parts: NodeControlParts;

  constructor(parts: NodeControlParts) {
    this.parts = parts;
  }

  nodes(): NodesInit {
    return this.parts.member()?.addresses.nodes() ?? { address: [], version: 0 };
  }

  onNodes(listener: (nodes: NodesInit) => void): () => void {
    // Nobody holds a stream to a node that is no member.
    return this.parts.member()?.addresses.onNodes(listener) ?? (() => {});
  }

  async status(): Promise<ClusterStatusInit> {
    const { membership, member } = this.parts;
    const own = {
      clusterId: membership.clusterId(),
      node: membership.node(),
      phase: membership.phase(),
      version: membership.version,
      peer: membership.peer(),
      seed: membership.phase() === Phase.joining ? [...membership.seeds()] : [],
    };
    const parts = member();
    return parts === undefined ? own : { ...statusOf(await this.shown(parts)), ...own, unsealed: parts.unsealed() };
  }

  init(asker: Asker): Promise<ClusterInitReplyInit> {
    return this.parts.membership.init(asker);
  }

  async *restore(wanted: RestoreWanted, asker: Asker): ProgressStream {
    yield* this.parts.membership.restore(wanted, asker);
  }

  async *join(seeds: readonly string[], asker: Asker): ProgressStream {
    const { membership } = this.parts;
    if (membership.clusterId() !== "")
      throw new HopError("ALREADY_MEMBER", `Cannot join a cluster: this node is node ${membership.node()} of ${membership.clusterId()}`);
    membership.addSeeds(seeds);
    let shown = "";
    while (membership.clusterId() === "") {
      const problems = membership.seeds().map(({ seed, problem }) => `${seed}: ${problem === "" ? "asking" : problem}`);
      const text = `Looking for a cluster: ${problems.join("; ")}`;
      if (text !== shown) yield { text };
      shown = text;
      if (asker.gone.aborted) return;
      await this.changeOf(membership, asker.gone);
    }
    yield { text: `This is node ${membership.node()} of ${membership.clusterId()}`, finished: true };
  }

  private async changeOf(membership: Membership, gone: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, lookMs);
    const stop = membership.onChange(() => resolve());
    gone.addEventListener("abort", () => resolve(), { once: true });
    await promise;
    clearTimeout(timer);
    stop();
  }

  async *leave(node: NodeId | undefined, asker: Asker): ProgressStream {
    yield* this.changes("leave the cluster").leave(node ?? (this.parts.membership.node() as NodeId), asker);
  }

  async members(page: PageRequest<number> & { readonly withRemoved: boolean }): Promise<Page<ClusterMemberInit>> {
    const parts = this.member("list members");
    const shown = await this.shown(parts);
    const nodes = [...shown.view.nodes.values()].filter(({ standing }) => page.withRemoved || standing !== "removed");
    const { items, isMore } = pageOf(nodes, (each) => each.node, page);
    const reachable = items.map((each) => each.node).filter((node) => isReachable(shown.figures, node, shown.self));
    const diskUse = await diskUses(parts.placement.parts.net, reachable);
    return { items: items.map((each) => ({ ...memberOf(shown, each), diskBytes: diskUse.get(each.node) ?? 0 })), isMore };
  }

  async shards(page: PageRequest<number>): Promise<Page<ShardInfoInit>> {
    const shown = await this.shown(this.member("list shards"));
    const { items, isMore } = pageOf(allShards(shown.view), (each) => each.shard, page);
    return { items: items.map((each) => shardInfo(shown, each)), isMore };
  }

  async shard(shard: ShardId): Promise<ShardInfoInit> {
    const shown = await this.shown(this.member("show a shard"));
    const entry = shardOf(shown.view, shard);
    if (entry !== undefined) return shardInfo(shown, entry);
    const into = shown.view.retired.get(shard)?.into;
    throw new HopError(
      "SHARD_NOT_FOUND",
      `Cannot show shard ${shard}: ${into === undefined ? "no shard has this number" : `shard ${into} has taken it in`}`,
    );
  }

  async *split(shard: ShardId, at: Key | undefined, asker: Asker): ProgressStream {
    yield* this.changes("split a shard").split(shard, at, asker);
  }

  async *compact(shard: ShardId, asker: Asker): ProgressStream {
    yield* this.changes("compact a shard").compact(shard, asker);
  }

  async *merge(left: ShardId, asker: Asker): ProgressStream {
    yield* this.changes("merge shards").merge(left, asker);
  }

  async *move(move: { readonly shard: ShardId; readonly from: NodeId; readonly to: NodeId }, asker: Asker): ProgressStream {
    yield* this.changes("move a replica").move(move, asker);
  }

  async *transfer(transfer: { readonly shard: ShardId; readonly to: NodeId }, asker: Asker): ProgressStream {
    yield* this.changes("transfer a shard's leadership").transfer(transfer, asker);
  }

  async *verify(shard: ShardId | undefined, asker: Asker): AsyncIterable<VerifyReplyInit> {
    yield* this.member("verify a shard").verifier.verify(shard, asker.gone);
  }

  async setReplication({ count, reason }: { readonly count: number; readonly reason: string }, asker: Asker) {
    const { placement } = this.member("set the replication factor");
    await placement.demand(asker.identity, { kind: "set-replication", count, reason });
    // Who asks here again finds it.
    await placement.until((view) => view.replicationWanted === count, seenMsMax, "the replication factor").catch(() => {});
    return placement.view.replicationSet;
  }

  async setEntry(change: EntryChange, asker: Asker): Promise<number> {
    const { placement } = this.member("set an entry");
    const { class: entryClass, name, value, expectedVersion } = change;
    const expected = expectedVersion === undefined ? {} : { expected: expectedVersion };
    const reply = await placement.demand(asker.identity, { kind: "set-entry", class: entryClass, name, value, ...expected });
    if (reply.kind !== "version") throw new HopError("INTERNAL", `Placement answered an entry with ${reply.kind}`);
    const { version } = reply;
    // Who asks here again finds it.
    const isSeen = () => (placement.view.entries.get(entryClass)?.get(name)?.version ?? 0) >= version;
    await placement.until(isSeen, seenMsMax, `entry ${name}`).catch(() => {});
    return version;
  }

  async entry({ class: entryClass, name }: { readonly class: EntryClass; readonly name: string }): Promise<ClusterEntryInit> {
    const { placement } = this.member("read an entry");
    await placement.refresh();
    const entry = placement.view.entries.get(entryClass)?.get(name);
    if (entry === undefined)
      throw new HopError("ENTRY_NOT_FOUND", `Cannot read ${entryClass} ${JSON.stringify(name)}: there is none of this name`);
    return entry;
  }

  async entries(page: PageRequest<string> & { readonly class: EntryClass }): Promise<Page<ClusterEntryInit>> {
    const { placement } = this.member("list entries");
    await placement.refresh();
    const all = [...(placement.view.entries.get(page.class)?.values() ?? [])].sort((a, b) => (a.name < b.name ? -1 : 1));
    return pageOf(all, (each) => each.name, page);
  }

  private member(doing: string): MemberParts {
    const parts = this.parts.member();
    if (parts !== undefined) return parts;
    throw new HopError("STORE_UNAVAILABLE", `Cannot ${doing}: this node belongs to no cluster yet; it is looking for one`, {
      retryAfterMs: 1_000,
    });
  }

  private changes(doing: string): ShardChanges {
    return new ShardChanges(this.member(doing).placement);
  }

  private async shown({ placement }: MemberParts): Promise<Shown> {
    const { self, timing } = placement.parts;
    return { figures: await clusterFigures(placement), view: placement.view, self, nowMs: timing.wallMs() };
  }
}
