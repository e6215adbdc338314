/**
 * A unix socket in the data folder for workers on the same machine: the frames of Dispatch.Connect
 * without HTTP/2 around them, at about two thirds of the cost a step.
 *
 * Whoever may enter the data folder, which is its owner alone, may connect.
 */
import { rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { limits } from "#core/base";
import type { ServerItemInit, WorkerItem } from "#proto";
import { dispatchCodec, type Open, serveSocket } from "#proto/connection";

export interface LocalServer {
  readonly path: string;
  /** Stops listening and drops the open streams. */
  close(): void;
}

/** A longer path does not fit the address of a unix socket. */
const pathBytesMax = 100;

/** Undefined where the folder's path is too long for one. Throws where it can't be listened on. */
export function serveLocal(dataDir: string, open: Open<ServerItemInit, WorkerItem>): LocalServer | undefined {
  const path = resolve(join(dataDir, "worker.sock"));
  if (Buffer.byteLength(path) > pathBytesMax) return undefined;
  // The folder is locked by this process, so a socket that lies here is of a process that died.
  rmSync(path, { force: true });
  const server = serveSocket({ unix: path }, dispatchCodec, limits, open);
  return {
    path,
    close() {
      server.close();
      rmSync(path, { force: true });
    },
  };
}
