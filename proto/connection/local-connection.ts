/** Two connections that are each other's peer, in one process: frames are handed over as they are. */
import type { Closing, Connection, FrameBounds, ItemCodec, Open } from "./connection.ts";
import { type Link, StreamConnection } from "./stream-connection.ts";

/** With more than this kept for a paused peer, the link reports that it is full. */
const keptBytesSoft = 1 << 20;

/** What a link reports to: the connection of its own side. */
interface Side {
  frame(bytes: Uint8Array): void;
  peerEnded(): void;
  drained(): void;
  gone(closing: Closing): void;
}

/** One direction of sending; `peer` is the other side's link. */
class LocalLink implements Link {
  readonly headroom = 0;
  bufferedBytes = 0;
  private readonly isServer: boolean;
  private readonly own: Side;
  private readonly kept: Uint8Array[] = [];
  private isPaused = false;
  private isFull = false;
  private isEnded = false;
  private isEndHandedOver = false;
  private isOver = false;
  peer!: LocalLink;

  constructor(own: Side, isServer: boolean) {
    this.own = own;
    this.isServer = isServer;
  }

  write(frame: Uint8Array): boolean {
    if (!this.peer.isPaused && this.kept.length === 0) {
      if (!this.peer.isOver) this.peer.own.frame(frame);
      return true;
    }
    this.kept.push(frame);
    this.bufferedBytes += frame.length;
    this.isFull = this.bufferedBytes > keptBytesSoft;
    return !this.isFull;
  }

  end(): void {
    this.isEnded = true;
    this.deliver();
  }

  destroy(closing: Closing): void {
    this.isOver = true;
    queueMicrotask(() => this.peer.vanish({ kind: "lost", message: `The peer closed the stream: ${closing.message}` }));
  }

  pause(): void {
    this.isPaused = true;
  }

  resume(): void {
    this.isPaused = false;
    this.peer.deliver();
  }

  /** Hands over what was kept, then the end if this side ended. */
  private deliver(): void {
    while (this.kept.length > 0 && !this.peer.isPaused && !this.peer.isOver) {
      const frame = this.kept.shift() as Uint8Array;
      this.bufferedBytes -= frame.length;
      this.peer.own.frame(frame);
    }
    if (this.peer.isPaused || this.isOver) return;
    if (this.isFull) {
      this.isFull = false;
      this.own.drained();
    }
    if (this.isEnded && this.kept.length === 0) this.handOverEnd();
  }

  private handOverEnd(): void {
    if (this.isEndHandedOver) return;
    this.isEndHandedOver = true;
    if (!this.peer.isOver) this.peer.own.peerEnded();
    if (!this.isServer) return;
    const closing: Closing = { kind: "finished", message: "The stream was ended" };
    this.vanish(closing);
    this.peer.vanish(closing);
  }

  private vanish(closing: Closing): void {
    if (this.isOver) return;
    this.isOver = true;
    this.own.gone(closing);
  }
}

export interface LocalSide<Out, In> {
  readonly codec: ItemCodec<Out, In>;
  readonly open: Open<Out, In>;
}

/** Makes a connected pair. The server's side is opened first. */
export function localPair<A, B, C, D>(
  server: LocalSide<A, B>,
  client: LocalSide<C, D>,
  bounds: FrameBounds,
): { readonly server: Connection<A>; readonly client: Connection<C> } {
  const serverEnd = new StreamConnection(server.codec, bounds, server.open);
  const clientEnd = new StreamConnection(client.codec, bounds, client.open);
  const serverLink = new LocalLink(serverEnd, true);
  const clientLink = new LocalLink(clientEnd, false);
  serverLink.peer = clientLink;
  clientLink.peer = serverLink;
  serverEnd.attach(serverLink);
  clientEnd.attach(clientLink);
  return { server: serverEnd, client: clientEnd };
}
