/** Dispatch: the streams that workers hold. */
import type { Server } from "@grpc/grpc-js";
import { errorText, limits } from "#core/base";
import { dispatchCodec, serveConnections } from "#proto/connection";
import { connectPath } from "#proto/descriptors";
import { WorkerStream, type WorkerStreamParts } from "../stream/worker-stream.ts";
import { callerOf, type Edge } from "./unary.ts";

/** Adds `Dispatch.Connect` to the server. */
export function addDispatch(server: Server, edge: Edge, parts: WorkerStreamParts): void {
  serveConnections(server, connectPath, dispatchCodec, limits, (connection, peer) => {
    try {
      callerOf(edge, peer.metadata);
    } catch (error) {
      connection.close(errorText(error));
    }
    return new WorkerStream(connection, peer.address, parts);
  });
}
