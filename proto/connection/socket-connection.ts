/**
 * Connections over a unix or TCP socket, each frame behind its length.
 *
 * An empty frame is the end of one side: a socket that closes without it was lost. Nothing here
 * authenticates: unix sockets belong in a private folder, TCP on a loopback address.
 */
import { CodecError } from "../codec/reader.ts";
import type { Closing, Connection, FrameBounds, ItemCodec, Open } from "./connection.ts";
import { FrameReader, sealFrame } from "./frame-reader.ts";
import { type Link, StreamConnection } from "./stream-connection.ts";

export type SocketAddress = { readonly unix: string } | { readonly hostname: string; readonly port: number };

const keepaliveMs = 10_000;

class SocketLink<Out, In> implements Link {
  readonly headroom = 4;
  bufferedBytes = 0;
  private readonly isServer: boolean;
  private readonly connection: StreamConnection<Out, In>;
  private readonly reader: FrameReader;
  private readonly queue: Uint8Array[] = [];
  private socket: Bun.Socket<unknown> | undefined;
  private isBlocked = false;
  private isPaused = false;
  private isEnded = false;
  private isPeerEnded = false;
  private isOver = false;

  constructor(connection: StreamConnection<Out, In>, bounds: FrameBounds, isServer: boolean) {
    this.connection = connection;
    this.isServer = isServer;
    this.reader = new FrameReader(bounds.frameBytesMax, (frame) => this.take(frame));
  }

  /** What was written before the socket was open leaves now. */
  opened(socket: Bun.Socket<unknown>): void {
    if (this.isOver) {
      socket.terminate();
      return;
    }
    this.socket = socket;
    socket.setNoDelay?.(true);
    socket.setKeepAlive?.(true, keepaliveMs);
    if (this.isPaused) socket.pause();
    this.drain();
  }

  received(chunk: Uint8Array): void {
    if (this.isOver) return;
    try {
      this.reader.push(chunk);
    } catch (error) {
      if (!(error instanceof CodecError)) throw error;
      this.vanish({ kind: "malformed", message: error.message });
    }
  }

  lost(message: string): void {
    this.vanish({ kind: "lost", message });
  }

  write(frame: Uint8Array): boolean {
    sealFrame(frame);
    this.queue.push(frame);
    this.bufferedBytes += frame.length;
    this.push();
    this.isBlocked = this.queue.length > 0;
    return !this.isBlocked;
  }

  drain(): void {
    this.push();
    if (this.queue.length > 0 || this.isOver) return;
    if (this.isBlocked) {
      this.isBlocked = false;
      this.connection.drained();
    }
    this.leaveIfDone();
  }

  end(): void {
    this.isEnded = true;
    this.write(new Uint8Array(this.headroom));
    this.leaveIfDone();
  }

  destroy(): void {
    this.isOver = true;
    this.socket?.terminate();
  }

  pause(): void {
    this.isPaused = true;
    this.socket?.pause();
  }

  resume(): void {
    this.isPaused = false;
    this.socket?.resume();
  }

  private push(): void {
    const socket = this.socket;
    if (socket === undefined || this.isOver) return;
    for (let frame = this.queue[0]; frame !== undefined; frame = this.queue[0]) {
      const taken = Math.max(socket.write(frame), 0);
      this.bufferedBytes -= taken;
      if (taken < frame.length) {
        this.queue[0] = frame.subarray(taken);
        return;
      }
      this.queue.shift();
    }
  }

  private take(frame: Uint8Array): void {
    if (this.isOver) return;
    if (frame.length > 0) {
      this.connection.frame(frame);
      return;
    }
    this.isPeerEnded = true;
    this.connection.peerEnded();
    this.leaveIfDone();
  }

  /** The server's end finishes the stream, once it is sent or has come. */
  private leaveIfDone(): void {
    const isDone = this.isServer ? this.isEnded && this.queue.length === 0 : this.isPeerEnded;
    if (isDone) this.vanish({ kind: "finished", message: "The stream was ended" });
  }

  private vanish(closing: Closing): void {
    if (this.isOver) return;
    this.isOver = true;
    if (closing.kind === "finished") this.socket?.end();
    else this.socket?.terminate();
    this.connection.gone(closing);
  }
}

type Handler<Out, In> = Bun.SocketHandler<SocketLink<Out, In>>;

/** Socket events of a link that is found in the socket's `data`. */
function handler<Out, In>(open: (socket: Bun.Socket<SocketLink<Out, In>>) => void): Handler<Out, In> {
  return {
    binaryType: "uint8array",
    open,
    data: (socket, chunk) => socket.data?.received(chunk),
    drain: (socket) => socket.data?.drain(),
    end: (socket) => socket.data?.lost("The peer's socket closed before the stream was ended"),
    close: (socket) => socket.data?.lost("The socket closed before the stream was ended"),
    error: (socket, error) => socket.data?.lost(`The socket failed: ${error.message}`),
  };
}

/** Connects at once; a peer that is not there is reported as a lost stream. */
export function connectSocket<Out, In>(
  address: SocketAddress,
  codec: ItemCodec<Out, In>,
  bounds: FrameBounds,
  open: Open<Out, In>,
): Connection<Out> {
  const connection = new StreamConnection(codec, bounds, open);
  const link = new SocketLink(connection, bounds, false);
  connection.attach(link);
  const socket = handler<Out, In>((opened) => link.opened(opened));
  Bun.connect<SocketLink<Out, In>>({ ...address, socket, data: link } as Bun.UnixSocketOptions<SocketLink<Out, In>>).catch(
    (error: unknown) => link.lost(`Cannot connect to ${addressText(address)}: ${messageOf(error)}`),
  );
  return connection;
}

export interface SocketServer {
  /** Where it listens; for a TCP port 0, the port it was given. */
  readonly address: SocketAddress;
  /** Stops listening and drops the open streams. */
  close(): void;
}

/** Throws where the address can't be listened on. */
export function serveSocket<Out, In>(
  address: SocketAddress,
  codec: ItemCodec<Out, In>,
  bounds: FrameBounds,
  open: Open<Out, In>,
): SocketServer {
  const socket = handler<Out, In>((opened) => {
    const connection = new StreamConnection(codec, bounds, open);
    const link = new SocketLink(connection, bounds, true);
    opened.data = link;
    connection.attach(link);
    link.opened(opened);
  });
  const listener = Bun.listen<SocketLink<Out, In>>({ ...address, socket } as Bun.UnixSocketOptions<SocketLink<Out, In>>);
  return {
    address: "unix" in address ? address : { hostname: address.hostname, port: (listener as unknown as { port: number }).port },
    close: () => listener.stop(true),
  };
}

function addressText(address: SocketAddress): string {
  return "unix" in address ? address.unix : `${address.hostname}:${address.port}`;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
