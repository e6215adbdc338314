/** The gRPC server's port: opened, and closed without cutting calls short. */
import { type Server, ServerCredentials } from "@grpc/grpc-js";
import { HopError } from "#core/base";

/** Calls that are still open when the node closes get this long to end. */
const graceMs = 1000;

/** Resolves with the port. Rejects with `HopError` STORE_UNAVAILABLE. */
export function listen(server: Server, address: string): Promise<number> {
  return new Promise((resolve, reject) => {
    server.bindAsync(address, ServerCredentials.createInsecure(), (error, port) => {
      if (error === null) resolve(port);
      else reject(cannotListen(address, error));
    });
  });
}

export function cannotListen(address: string, cause: unknown): HopError {
  const why = cause instanceof Error ? cause.message : "unknown cause";
  return new HopError(
    "STORE_UNAVAILABLE",
    `Cannot listen on ${address}: it is in use or not an address of this machine (${why}); stop what uses it or choose another port`,
    { cause },
  );
}

/** Lets open calls end, but not for ever. */
export function shutDown(server: Server): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      server.forceShutdown();
      resolve();
    }, graceMs);
    server.tryShutdown(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}
