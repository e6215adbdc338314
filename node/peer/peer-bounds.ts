/** What a link between nodes may hold, and how long it waits. Sizes in bytes, times in milliseconds. */
import { limits } from "#core/base";
import type { FrameBounds, SocketGate } from "#proto/connection";

const MiB = 1 << 20;

export const peerBounds = {
  /** Raft messages that wait to be sent to one peer; above it they are dropped, and Raft sends again. */
  raftBytesMax: 8 * MiB,
  /** Bodies of calls and answers that wait for one peer; above it calls fail. */
  askBytesMax: 64 * MiB,
  /** Calls and streams that one link carries at a time, each way. */
  asksMax: 16_384,
  /** A stream's chunks that are under way unread, where its reader does not say. */
  windowBytes: 2 * MiB,
  windowBytesMax: 64 * MiB,
  chunkBytesMax: 16 * MiB,
  /** What a chunk costs beside its bytes, so that empty ones are bounded too. */
  chunkCost: 64,
  callMs: 10_000,
  /** From the first packet to the welcome. */
  helloMs: 5_000,
  /**
   * Nothing heard for this long: the link is given up. Not much longer than an election takes: what was
   * forwarded to a leader that is gone without a word waits for it.
   */
  silenceMs: 1_500,
  /** Links that others dialed. */
  acceptedMax: 4096,
  tickMs: 100,
  /** A link on which a node has nothing to say still shows this often that the node lives. */
  idleBeatMs: 500,
  backoffMinMs: 50,
  backoffMaxMs: 2_000,
  /** A link that was made for a call to an address is closed when nothing was asked for this long. */
  placeIdleMs: 10_000,
  /** Links to addresses that are open at a time. */
  placesMax: 256,
} as const;

export const frameBounds: FrameBounds = {
  frameBytesSoft: limits.frameBytesSoft,
  frameBytesMax: limits.frameBytesMax,
  // The bounds above are kept by those who send; this one only catches what they missed.
  bufferedBytesMax: peerBounds.raftBytesMax + peerBounds.askBytesMax + limits.frameBytesMax,
};

/** Who connects gets to say hello, and no more. */
export const peerGate: SocketGate = { frameBytesMax: 4096, timeoutMs: peerBounds.helloMs, strangersMax: 256 };
