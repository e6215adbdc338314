/**
 * The services of a node that looks for a cluster: each call is refused with what to do. A member's
 * services take their place.
 */
import type { Server } from "@grpc/grpc-js";
import { HopError, limits } from "#core/base";
import { dispatchCodec, serveConnections, sessionCodec } from "#proto/connection";
import { clientMethods, connectPath, sessionPath } from "#proto/descriptors";
import { addUnary, type Edge } from "./unary.ts";

/** Refuses calls because of `why`; the returned function takes the refusals away. */
export function refuseCalls(server: Server, edge: Edge, why: () => string): () => void {
  const refused = (): never => {
    throw new HopError("STORE_UNAVAILABLE", `Cannot take the call: ${why()}`);
  };
  const paths: string[] = [sessionPath, connectPath];
  for (const method of Object.values(clientMethods)) {
    addUnary(server, edge, method as Parameters<typeof addUnary>[2], refused);
    paths.push(method.path);
  }
  const none = { item() {}, ended() {}, closed() {} };
  serveConnections(server, sessionPath, sessionCodec, limits, (connection) => {
    connection.close(why());
    return none;
  });
  serveConnections(server, connectPath, dispatchCodec, limits, (connection) => {
    connection.close(why());
    return none;
  });
  return () => {
    for (const path of paths) server.unregister(path);
  };
}
