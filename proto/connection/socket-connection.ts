/**
 * Connections over a unix or TCP socket, each frame behind its length.
 *
 * An empty frame is the end of one side: a socket that closes without it was lost. With `tls`
 * nothing is read or written before a good handshake; without it nothing here authenticates: unix
 * sockets belong in a private folder, TCP on a loopback address or a network of one's own.
 */
import { CodecError } from "../codec/reader.ts";
import type { Closing, Connection, FrameBounds, ItemCodec, Open } from "./connection.ts";
import { FrameReader, sealFrame } from "./frame-reader.ts";
import { type SocketGate, Strangers } from "./socket-gate.ts";
import { type Link, StreamConnection } from "./stream-connection.ts";

export type SocketAddress = { readonly unix: string } | { readonly hostname: string; readonly port: number };

/** PEM texts. */
export interface SocketTls {
  readonly cert: string;
  readonly key: string;
  /** Who vouches for the other side. */
  readonly ca: string;
  /** A server's: who shows no certificate of `ca` is turned away. */
  readonly requireClientCert?: boolean;
  /** A client's: name that the server's certificate must bear. Left out: the address it dials. */
  readonly serverName?: string;
}

export interface SocketServeOptions {
  readonly tls?: SocketTls | undefined;
  readonly gate?: SocketGate | undefined;
}

/** Who connected. */
export interface SocketPeer {
  /** Network address; empty for a unix socket. */
  readonly address: string;
  /** Common name in the certificate that it proved to hold. */
  readonly certificateName: string | undefined;
  /** Lifts the bounds of the gate. */
  admit(): void;
}

const keepaliveMs = 10_000;

class SocketLink<Out, In> implements Link {
  readonly headroom = 4;
  bufferedBytes = 0;
  private readonly isServer: boolean;
  private readonly connection: StreamConnection<Out, In>;
  private readonly reader: FrameReader;
  private readonly queue: Uint8Array[] = [];
  private socket: Bun.Socket<unknown> | undefined;
  /** The socket may be written to: with TLS, its handshake was good. */
  private isReady = false;
  private isBlocked = false;
  private isPaused = false;
  private isEnded = false;
  private isPeerEnded = false;
  private isOver = false;

  constructor(connection: StreamConnection<Out, In>, options: { readonly frameBytesMax: number; readonly isServer: boolean }) {
    this.connection = connection;
    this.isServer = options.isServer;
    this.reader = new FrameReader(options.frameBytesMax, (frame) => this.take(frame));
  }

  /** The socket is there, though it may not be spoken on yet. */
  connected(socket: Bun.Socket<unknown>): void {
    if (this.isOver) {
      socket.terminate();
      return;
    }
    this.socket = socket;
    socket.setNoDelay?.(true);
    socket.setKeepAlive?.(true, keepaliveMs);
  }

  /** What was written before the socket was ready leaves now. */
  ready(): void {
    if (this.isOver) return;
    this.isReady = true;
    if (this.isPaused) this.socket?.pause();
    this.drain();
  }

  set frameBytesMax(bytes: number) {
    this.reader.bytesMax = bytes;
  }

  received(chunk: Uint8Array): void {
    if (this.isOver || !this.isReady) return;
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
    if (this.isReady) this.socket?.pause();
  }

  resume(): void {
    this.isPaused = false;
    this.socket?.resume();
  }

  private push(): void {
    const socket = this.socket;
    if (socket === undefined || !this.isReady || this.isOver) return;
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
function handler<Out, In>(own: Handler<Out, In>): Handler<Out, In> {
  return {
    binaryType: "uint8array",
    data: (socket, chunk) => socket.data?.received(chunk),
    drain: (socket) => socket.data?.drain(),
    end: (socket) => socket.data?.lost("The peer's socket closed before the stream was ended"),
    close: (socket) => socket.data?.lost("The socket closed before the stream was ended"),
    error: (socket, error) => socket.data?.lost(`The socket failed: ${error.message}`),
    ...own,
  };
}

/** Connects at once; a peer that is not there, or that can't prove what `tls` wants, is reported as a lost stream. */
export function connectSocket<Out, In>(
  address: SocketAddress,
  codec: ItemCodec<Out, In>,
  bounds: FrameBounds,
  open: Open<Out, In>,
  tls?: SocketTls,
): Connection<Out> {
  const connection = new StreamConnection(codec, bounds, open);
  const link = new SocketLink(connection, { frameBytesMax: bounds.frameBytesMax, isServer: false });
  connection.attach(link);
  const socket = handler<Out, In>({
    open: (opened) => {
      link.connected(opened);
      if (tls === undefined) link.ready();
    },
    ...(tls === undefined ? {} : { handshake: (_, isGood, error) => afterHandshake(link, isGood, error) }),
  });
  const options = { ...address, socket, data: link, ...(tls === undefined ? {} : { tls: clientTls(address, tls) }) };
  Bun.connect<SocketLink<Out, In>>(options as Bun.UnixSocketOptions<SocketLink<Out, In>>).catch((error: unknown) =>
    link.lost(`Cannot connect to ${addressText(address)}: ${messageOf(error)}`),
  );
  return connection;
}

function clientTls(address: SocketAddress, tls: SocketTls): Bun.TLSOptions {
  const { cert, key, ca } = tls;
  const serverName = tls.serverName ?? ("unix" in address ? "localhost" : address.hostname);
  return { cert, key, ca, serverName, rejectUnauthorized: true };
}

function afterHandshake<Out, In>(link: SocketLink<Out, In>, isGood: boolean, error: Error | null): void {
  if (isGood) link.ready();
  else link.lost(`The TLS handshake failed: ${error?.message || (error as { code?: string } | null)?.code || "no reason was given"}`);
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
  open: (connection: Connection<Out>, peer: SocketPeer) => ReturnType<Open<Out, In>>,
  options: SocketServeOptions = {},
): SocketServer {
  type Accepted = Bun.Socket<SocketLink<Out, In>>;
  const { tls } = options;
  const strangers = options.gate === undefined ? undefined : new Strangers(options.gate);

  const accept = (socket: Accepted): void => {
    const peer: SocketPeer = {
      address: socket.remoteAddress ?? "",
      certificateName: tls === undefined ? undefined : certificateName(socket),
      admit: () => {
        strangers?.leave(socket);
        link.frameBytesMax = bounds.frameBytesMax;
      },
    };
    const connection = new StreamConnection<Out, In>(codec, bounds, (own) => open(own, peer));
    const link = new SocketLink(connection, { frameBytesMax: options.gate?.frameBytesMax ?? bounds.frameBytesMax, isServer: true });
    socket.data = link;
    connection.attach(link);
    link.connected(socket);
    link.ready();
  };

  const socket = handler<Out, In>({
    open: (opened) => {
      const expire = (message: string) => {
        opened.data?.lost(message);
        opened.terminate();
      };
      if (strangers?.enter(opened, expire) === false) opened.terminate();
      else if (tls === undefined) accept(opened);
    },
    close: (closed) => {
      strangers?.leave(closed);
      closed.data?.lost("The socket closed before the stream was ended");
    },
    ...(tls === undefined
      ? {}
      : {
          handshake: (shaken, isGood) => {
            // A certificate that nobody known vouches for makes a good handshake of somebody unauthorized.
            if (isGood && (tls.requireClientCert !== true || shaken.authorized)) accept(shaken);
            else shaken.terminate();
          },
        }),
  });
  const served = tls === undefined ? {} : { tls: serverTls(tls) };
  const listener = Bun.listen<SocketLink<Out, In>>({ ...address, socket, ...served } as Bun.UnixSocketOptions<SocketLink<Out, In>>);
  return {
    address: "unix" in address ? address : { hostname: address.hostname, port: (listener as unknown as { port: number }).port },
    close: () => {
      strangers?.clear();
      listener.stop(true);
    },
  };
}

function serverTls({ cert, key, ca, requireClientCert = false }: SocketTls): Bun.TLSOptions {
  return { cert, key, ca, requestCert: requireClientCert, rejectUnauthorized: requireClientCert };
}

function certificateName(socket: {
  getPeerCertificate(): { subject?: { CN?: string | string[] } } | undefined;
  readonly authorized: boolean;
}) {
  const name = socket.authorized ? socket.getPeerCertificate()?.subject?.CN : undefined;
  return Array.isArray(name) ? name[0] : name;
}

function addressText(address: SocketAddress): string {
  return "unix" in address ? address.unix : `${address.hostname}:${address.port}`;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
