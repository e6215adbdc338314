/** Streams of items between processes, over gRPC, framed sockets, or in one process. */
export { clientCodec, dispatchCodec, dispatchPath, sessionCodec, sessionPath, workerCodec } from "./codecs.ts";
export type { Closing, Connection, FrameBounds, ItemCodec, Open, Receiver } from "./connection.ts";
export { channelOptions, connectGrpc, type GrpcPeer, grpcClient, type Keepalive, serveConnections } from "./grpc-connection.ts";
export { type LocalSide, localPair } from "./local-connection.ts";
export {
  connectSocket,
  type SocketAddress,
  type SocketPeer,
  type SocketServeOptions,
  type SocketServer,
  type SocketTls,
  serveSocket,
} from "./socket-connection.ts";
export type { SocketGate } from "./socket-gate.ts";
