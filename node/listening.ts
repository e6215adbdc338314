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
      else reject(cannotListen(address, error, "--listen"));
    });
  });
}

/** `option`: the command line's way to say another address or port. */
export function cannotListen(address: string, cause: unknown, option: string): HopError {
  const said = cause instanceof Error ? cause.message : "unknown cause";
  // grpc has the system's code in its message alone.
  const code = (cause as NodeJS.ErrnoException).code ?? /\bE[A-Z]{4,}\b/.exec(said)?.[0] ?? "";
  const why = reasons[code] ?? `${said}; choose another with`;
  return new HopError("STORE_UNAVAILABLE", `Cannot listen on ${address}${code === "" ? "" : ` (${code})`}: ${why} ${option}`, { cause });
}

const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: "the port is in use; stop what uses it, or choose another port with",
  EADDRNOTAVAIL: "it is not an address of this machine; choose one that is with",
  EACCES: "this user may not; choose a port from 1024 on with",
};

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
