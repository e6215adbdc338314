/**
 * ClusterAdmin: what those who run a cluster call. Each method checks and translates; the node's
 * `ClusterControl` acts.
 *
 * A page token is the position of a page's last item, so lists stay right while items come and
 * go between two pages.
 */
import type { Server } from "@grpc/grpc-js";
import type { Key, NodeId, ShardId } from "#core/base";
import { asNodeId, asShardId, HopError, keyMax, limits, nameProblem } from "#core/base";
import { retentionOf } from "#core/policy";
import type { ListEntriesRequest, ListMembersRequest, ListShardsRequest, SetEntryRequest } from "#proto";
import { clusterMethods } from "#proto/descriptors";
import type { ClusterControl, EntryChange, EntryClass, PageRequest } from "./cluster-control.ts";
import { addServerStream, addUnary, type Edge } from "./unary.ts";

const pageDefault = 100;
const pageMax = 1000;
const seedsMax = 64;
const seedBytesMax = 300;
const entryBytesMax = 256 * 1024;
const idMax = 0xffff_ffff;
const classes: readonly EntryClass[] = ["namespace", "policy"];

function bad(doing: string, field: string, rule: string): HopError {
  return new HopError("BAD_REQUEST", `Cannot ${doing}: field "${field}" ${rule}`);
}

export class ClusterService {
  private readonly control: ClusterControl;
  private readonly edge: Edge;

  constructor(control: ClusterControl, edge: Edge) {
    this.control = control;
    this.edge = edge;
  }

  addTo(server: Server): void {
    this.addMembership(server);
    this.addShards(server);
    this.addSettings(server);
  }

  private addMembership(server: Server): void {
    const { control, edge } = this;
    const m = clusterMethods;
    // A node that belongs to no cluster yet answers these, and nothing else.
    const early: Edge = { ...edge, whyNotOpen: () => undefined };
    addUnary(server, early, m.init, (_, call) => control.init(call));
    addUnary(server, early, m.status, () => control.status());
    addServerStream(server, early, m.restore, (request, call) => control.restore(request, call));
    addServerStream(server, early, m.join, (request, call) => control.join(checkSeeds(request.seed), call));
    addServerStream(server, edge, m.leave, ({ node }, call) => control.leave(node === 0 ? undefined : checkNode("leave", node), call));
    addUnary(server, edge, m.listMembers, async (request) => {
      const { items, isMore } = await control.members({ ...checkPage("list members", request), withRemoved: request.removed });
      return { member: items, nextPageToken: isMore ? String(items.at(-1)?.node ?? "") : "" };
    });
  }

  private addShards(server: Server): void {
    const { control, edge } = this;
    const m = clusterMethods;
    addUnary(server, edge, m.listShards, async (request) => {
      const { items, isMore } = await control.shards(checkPage("list shards", request));
      return { shard: items, nextPageToken: isMore ? String(items.at(-1)?.shard ?? "") : "" };
    });
    addUnary(server, edge, m.showShard, ({ shard }) => control.shard(checkShard("show a shard", "shard", shard, "any")));
    addServerStream(server, edge, m.splitShard, ({ shard, at }, call) =>
      control.split(checkShard("split a shard", "shard", shard), checkKey("split a shard", at), call),
    );
    addServerStream(server, edge, m.mergeShard, ({ left }, call) => control.merge(checkShard("merge shards", "left", left), call));
    addServerStream(server, edge, m.compactShard, ({ shard }, call) =>
      control.compact(checkShard("compact a shard", "shard", shard), call),
    );
    addServerStream(server, edge, m.moveShard, (request, call) => {
      const doing = "move a replica";
      const move = {
        shard: checkShard(doing, "shard", request.shard, "any"),
        from: checkNode(doing, request.from, "from"),
        to: checkNode(doing, request.to, "to"),
      };
      if (move.from === move.to) throw bad(doing, "to", `is node ${move.to}, as is "from"; want another one`);
      return control.move(move, call);
    });
    addServerStream(server, edge, m.transferShard, ({ shard, to }, call) => {
      const doing = "transfer a shard's leadership";
      return control.transfer({ shard: checkShard(doing, "shard", shard, "any"), to: checkNode(doing, to, "to") }, call);
    });
    addServerStream(server, edge, m.verifyShard, ({ shard, all }, call) => {
      if (all && shard !== 0) throw bad("verify a shard", "all", `is set beside "shard" ${shard}; want one of them`);
      return control.verify(all ? undefined : checkShard("verify a shard", "shard", shard, "any"), call);
    });
  }

  private addSettings(server: Server): void {
    const { control, edge } = this;
    const m = clusterMethods;
    addUnary(server, edge, m.setReplication, async ({ count, reason }, call) => ({
      replication: await control.setReplication({ count, reason: checkReason("set the replication factor", reason) }, call),
    }));
    addUnary(server, edge, m.setEntry, async (request, call) => ({ version: await control.setEntry(checkChange(request), call) }));
    addUnary(server, edge, m.getEntry, (request) => control.entry(checkEntryName("read an entry", request)));
    addUnary(server, edge, m.listEntries, async (request) => {
      const { items, isMore } = await control.entries(checkEntryPage(request));
      return { entry: items, nextPageToken: isMore ? (items.at(-1)?.name ?? "") : "" };
    });
  }
}

function checkLimit(doing: string, limit: number): number {
  if (limit > pageMax) throw bad(doing, "limit", `is ${limit}, want at most ${pageMax}`);
  return limit === 0 ? pageDefault : limit;
}

/** The token is the number of the last item of the page before. */
function checkPage(doing: string, request: ListMembersRequest | ListShardsRequest): PageRequest<number> {
  const limit = checkLimit(doing, request.limit);
  if (request.pageToken === "") return { limit };
  const after = Number(request.pageToken);
  if (/^\d+$/.test(request.pageToken) && after <= idMax) return { limit, after };
  throw bad(doing, "page_token", `is ${JSON.stringify(request.pageToken.slice(0, 64))}, which no page ended with`);
}

function checkEntryPage(request: ListEntriesRequest): PageRequest<string> & { readonly class: EntryClass } {
  const doing = "list entries";
  const page = { limit: checkLimit(doing, request.limit), class: checkClass(doing, request.class) };
  return request.pageToken === "" ? page : { ...page, after: checkName(doing, "page_token", request.pageToken) };
}

/** Placement is a group too, but it has no keys to split or merge: `any` admits it. */
function checkShard(doing: string, field: string, shard: number, kind: "data" | "any" = "data"): ShardId {
  if (kind === "any" || shard !== 0) return asShardId(shard);
  throw bad(doing, field, "is 0, which is placement; want a shard of data, from 1");
}

function checkNode(doing: string, node: number, field = "node"): NodeId {
  if (node === 0) throw bad(doing, field, "is 0; want the number of a node, as `hop cluster members` lists them");
  return asNodeId(node);
}

function checkKey(doing: string, at: number): Key | undefined {
  if (at > keyMax) throw bad(doing, "at", `is ${at}, want a key of 48 bits`);
  return at === 0 ? undefined : at;
}

/** `host`, or `host:port` with an IPv6 host in brackets. */
const seedForm = /^(?:\[[0-9a-fA-F:.]+\]|[^\s:/[\]]+)(?::(\d{1,5}))?$/;

function checkSeeds(seeds: readonly string[]): readonly string[] {
  const doing = "join a cluster";
  if (seeds.length === 0) throw bad(doing, "seed", "is empty; want the address of at least one peer");
  if (seeds.length > seedsMax) throw bad(doing, "seed", `has ${seeds.length} entries, want at most ${seedsMax}`);
  for (const seed of seeds) {
    const match = seed.length > seedBytesMax ? null : seedForm.exec(seed);
    if (match === null || Number(match[1] ?? 1) > 65_535 || match[1] === "0")
      throw bad(doing, "seed", `holds ${JSON.stringify(seed.slice(0, 64))}; want host:port, such as 10.0.0.1:7072`);
  }
  return seeds;
}

function checkClass(doing: string, value: string): EntryClass {
  const found = classes.find((each) => each === value);
  if (found === undefined) throw bad(doing, "class", `is ${JSON.stringify(value.slice(0, 64))}, want one of ${classes.join(", ")}`);
  return found;
}

function checkName(doing: string, field: string, value: string): string {
  const problem = nameProblem(value);
  if (problem === undefined) return value;
  throw bad(doing, field, `is ${JSON.stringify(value.slice(0, 64))}, which ${problem}; want 1–${limits.nameBytesMax} bytes of text`);
}

function checkEntryName(doing: string, request: { readonly class: string; readonly name: string }) {
  return { class: checkClass(doing, request.class), name: checkName(doing, "name", request.name) };
}

function checkReason(doing: string, reason: string): string {
  const bytes = Buffer.byteLength(reason);
  if (bytes > limits.textBytesMax) throw bad(doing, "reason", `has ${bytes} bytes, want at most ${limits.textBytesMax}`);
  if (!reason.isWellFormed()) throw bad(doing, "reason", "is not well-formed Unicode");
  return reason;
}

function checkChange(request: SetEntryRequest): EntryChange {
  const doing = "set an entry";
  if (request.value.length > entryBytesMax) throw bad(doing, "value", `has ${request.value.length} bytes, want at most ${entryBytesMax}`);
  if (!request.checked && request.expectedVersion !== 0)
    throw bad(doing, "expected_version", `is ${request.expectedVersion} without "checked"; want both or neither`);
  const change = { ...checkEntryName(doing, request), value: request.value };
  if (change.class === "namespace") {
    const policy = retentionOf(request.value, (bytes) => new TextDecoder().decode(bytes));
    if ("problem" in policy) throw bad(doing, "value", `says of retention what can't be: ${policy.problem}`);
  }
  return request.checked ? { ...change, expectedVersion: request.expectedVersion } : change;
}
