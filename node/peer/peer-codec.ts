/** Items of a link between nodes, as each side writes and reads them. Raft messages are encoded in place. */
import type { ShardId } from "#core/base";
import {
  decodePeerItem,
  encodePeerItem,
  encodeRaftMessage,
  type PeerItem,
  type PeerItemInit,
  type RaftMessageInit,
  type Writer,
} from "#proto";
import type { ItemCodec } from "#proto/connection";

export type OutItem = PeerItemInit | { readonly kind: "raftOf"; readonly shard: ShardId; readonly message: RaftMessageInit };

// Field numbers and wire types of peer.proto; a test holds them against the generated codec.
const itemRaft = 34;
const raftShard = 8;
const raftMessage = 18;

function encodeOut(writer: Writer, item: OutItem): void {
  if (item.kind !== "raftOf") {
    encodePeerItem(writer, item);
    return;
  }
  const raft = writer.begin(itemRaft);
  if (item.shard !== 0) {
    writer.varint(raftShard);
    writer.varint(item.shard);
  }
  const message = writer.begin(raftMessage);
  encodeRaftMessage(writer, item.message);
  writer.close(message);
  writer.close(raft);
}

export const peerCodec: ItemCodec<OutItem, PeerItem> = { encodeOut, decodeIn: decodePeerItem };
