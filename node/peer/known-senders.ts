/**
 * Whose Raft messages are taken: of members of the group, and of nodes that placement knows.
 *
 * A hello says a number, and nothing proves it: one that placement never gave out could else make
 * itself heard in any group, placement's own among them.
 */
import type { NodeId, ShardId } from "#core/base";
import type { ClusterView } from "#core/placement";
import { type ConfState, type Message, membersOf } from "#core/raft";
import type { Note } from "../shard/shard-host.ts";

export interface KnownSendersParts {
  readonly view: () => ClusterView;
  /** Membership of a group that has a member here, as far as it is known here. */
  readonly conf: (shard: ShardId) => ConfState | undefined;
  /** Nodes that this one was told of before its first view. */
  readonly known: () => readonly NodeId[];
  readonly note: Note;
}

/** Numbers that were logged: any more would be the same news. */
const saidMax = 100;

export class KnownSenders {
  private readonly parts: KnownSendersParts;
  private readonly said = new Set<NodeId>();

  constructor(parts: KnownSendersParts) {
    this.parts = parts;
  }

  /** Whether a message that came over `node`'s link is taken. One that is not is named in the log, once for each node. */
  takes(node: NodeId, shard: ShardId, { from }: Pick<Message, "from">): boolean {
    const why = from === node ? this.problemOf(node, shard) : `it says that node ${from} sent it`;
    if (why === undefined) return true;
    if (!this.said.has(node) && this.said.size < saidMax) {
      this.said.add(node);
      this.parts.note("warn", "messages of a peer are dropped", { node, shard, why });
    }
    return false;
  }

  private problemOf(node: NodeId, shard: ShardId): string | undefined {
    const conf = this.parts.conf(shard);
    if (conf !== undefined && membersOf(conf).includes(node)) return undefined;
    const { nodes } = this.parts.view();
    const entry = nodes.get(node);
    if (entry !== undefined && entry.standing !== "removed") return undefined;
    if (nodes.size === 0 && this.parts.known().includes(node)) return undefined;
    return "neither the group nor placement knows this node";
  }
}
