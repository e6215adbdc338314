/**
 * Connections over gRPC bidirectional streams whose messages are frames.
 *
 * The serializers are the identity: frames are encoded and decoded here. A consumer and an
 * `error` listener are always attached, since a stream without them buffers for ever or ends
 * the process.
 */
import { constants, type ServerHttp2Stream } from "node:http2";
import * as grpc from "@grpc/grpc-js";
import type { Closing, Connection, FrameBounds, ItemCodec, Open } from "./connection.ts";
import { type Link, StreamConnection } from "./stream-connection.ts";

const identity = (bytes: Buffer) => bytes;
/** A plain view: reading it is cheaper than reading a Buffer. */
const viewOf = (bytes: Buffer) => new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length);

type Call = grpc.ClientDuplexStream<Buffer, Buffer> | grpc.ServerDuplexStream<Buffer, Buffer>;

class GrpcLink implements Link {
  readonly headroom = 0;
  bufferedBytes = 0;
  private readonly call: Call;
  private readonly onDestroy: (closing: Closing) => void;

  constructor(call: Call, onDestroy: (closing: Closing) => void) {
    this.call = call;
    this.onDestroy = onDestroy;
  }

  write(frame: Uint8Array): boolean {
    const bytes = frame.length;
    this.bufferedBytes += bytes;
    return this.call.write(frame as Buffer, () => {
      this.bufferedBytes -= bytes;
    });
  }

  end(): void {
    this.call.end();
  }

  destroy(closing: Closing): void {
    this.onDestroy(closing);
  }

  pause(): void {
    this.call.pause();
  }

  resume(): void {
    this.call.resume();
  }
}

/** Channel options that both sides need. */
export function channelOptions(bounds: FrameBounds): grpc.ChannelOptions {
  // A frame is the largest message; unary calls carry the same payloads.
  return { "grpc.max_receive_message_length": bounds.frameBytesMax, "grpc.max_send_message_length": bounds.frameBytesMax };
}

/** After `timeMs` of silence a peer is asked whether it lives, and has `timeoutMs` to answer. */
export interface Keepalive {
  readonly timeMs: number;
  readonly timeoutMs: number;
}

/**
 * A client whose connection is its own and is watched: a peer that is silent for 15 s, or for the
 * sum of `keepalive`, counts as gone. Its connection attempts follow each other quickly, since
 * callers wait on their own.
 */
export function grpcClient(
  address: string,
  bounds: FrameBounds,
  credentials = grpc.credentials.createInsecure(),
  keepalive: Keepalive = { timeMs: 10_000, timeoutMs: 5_000 },
): grpc.Client {
  return new grpc.Client(address, credentials, {
    ...channelOptions(bounds),
    "grpc.keepalive_time_ms": keepalive.timeMs,
    "grpc.keepalive_timeout_ms": keepalive.timeoutMs,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.use_local_subchannel_pool": 1,
    "grpc.initial_reconnect_backoff_ms": 50,
    "grpc.max_reconnect_backoff_ms": 2_000,
  });
}

/** Opens a stream of the method at `path` (`/package.Service/Method`). The client stays open. */
export function connectGrpc<Out, In>(
  client: grpc.Client,
  path: string,
  codec: ItemCodec<Out, In>,
  bounds: FrameBounds,
  open: Open<Out, In>,
  metadata = new grpc.Metadata(),
): Connection<Out> {
  const connection = new StreamConnection(codec, bounds, open);
  const call = client.makeBidiStreamRequest(path, identity, identity, metadata);
  const link = new GrpcLink(call, () => call.cancel());
  let isEnded = false;
  let isStatusOk = false;
  const finishIfDone = () => {
    if (isEnded && isStatusOk) connection.gone({ kind: "finished", message: "The stream was ended" });
  };
  call.on("error", () => {});
  call.on("data", (bytes: Buffer) => connection.frame(viewOf(bytes)));
  call.on("drain", () => connection.drained());
  call.on("end", () => {
    isEnded = true;
    if (isStatusOk) connection.peerEnded();
    finishIfDone();
  });
  call.on("status", (status: grpc.StatusObject) => {
    // A failure may overtake frames that were not read yet: they are lost with the stream.
    if (status.code !== grpc.status.OK) {
      connection.gone({ kind: "lost", message: `${grpc.status[status.code] ?? status.code}: ${status.details}` });
      return;
    }
    isStatusOk = true;
    if (isEnded) connection.peerEnded();
    finishIfDone();
  });
  connection.attach(link);
  return connection;
}

/** Who opened a stream, for those who authenticate it. */
export interface GrpcPeer {
  readonly metadata: grpc.Metadata;
  /** Network address, as grpc writes it. */
  readonly address: string;
  readonly auth: ReturnType<grpc.ServerDuplexStream<Buffer, Buffer>["getAuthContext"]>;
}

/** Adds the method at `path` to `server`; each stream of it becomes a connection. */
export function serveConnections<Out, In>(
  server: grpc.Server,
  path: string,
  codec: ItemCodec<Out, In>,
  bounds: FrameBounds,
  open: (connection: Connection<Out>, peer: GrpcPeer) => ReturnType<Open<Out, In>>,
): void {
  const handle = (call: grpc.ServerDuplexStream<Buffer, Buffer>) => {
    const peer: GrpcPeer = { metadata: call.metadata, address: call.getPeer(), auth: call.getAuthContext() };
    accept(call, new StreamConnection(codec, bounds, (connection) => open(connection, peer)));
  };
  if (!server.register(path, handle as never, identity as never, identity as never, "bidi"))
    throw new Error(`Cannot serve ${path}: the server has it already`);
}

function accept<Out, In>(call: grpc.ServerDuplexStream<Buffer, Buffer>, connection: StreamConnection<Out, In>): void {
  const link = new GrpcLink(call, (closing) => {
    if (link.bufferedBytes > 0) reset(call);
    else call.emit("error", { code: statusOf(closing), details: closing.message });
  });
  call.on("error", (error: Error) => connection.gone({ kind: "lost", message: error.message }));
  call.on("data", (bytes: Buffer) => connection.frame(viewOf(bytes)));
  call.on("drain", () => connection.drained());
  call.on("end", () => connection.peerEnded());
  call.on("finish", () => connection.gone({ kind: "finished", message: "The stream was ended" }));
  // It is also emitted for a stream that finished; `gone` counts once.
  call.on("cancelled", () => connection.gone({ kind: "lost", message: "The peer is gone or cancelled the stream" }));
  connection.attach(link);
}

/**
 * Resets the HTTP/2 stream. A status would wait behind what the peer does not take, and keep it
 * in memory; grpc offers no other way, so this reaches for the stream that it wraps.
 */
function reset(call: grpc.ServerDuplexStream<Buffer, Buffer>): void {
  const { stream } = (call as unknown as { call: { stream: ServerHttp2Stream } }).call;
  stream.close(constants.NGHTTP2_CANCEL);
}

function statusOf(closing: Closing): grpc.status {
  return closing.kind === "malformed" ? grpc.status.INVALID_ARGUMENT : grpc.status.UNAVAILABLE;
}
