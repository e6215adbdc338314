/** Roads to a server over gRPC. */
import type * as grpc from "@grpc/grpc-js";
import { HopError, limits } from "#core/base";
import { connectGrpc, connectSocket, dispatchPath, grpcClient, workerCodec } from "#proto/connection";
import { type BlobSource, grpcBlobs } from "./blob-source.ts";
import type { Connect } from "./session.ts";

export interface ServerAddress {
  /** `host:port`; with several, streams try them in turn. */
  readonly addresses: readonly string[];
  readonly credentials?: grpc.ChannelCredentials | undefined;
  /** Sent with each call: authorization, for example. */
  readonly metadata?: grpc.Metadata | undefined;
}

/** Shorter than results are kept that may have been lost with a stream. */
const keepalive = { timeMs: 5_000, timeoutMs: 5_000 } as const;

/** Each stream gets a channel of its own: a new attempt never waits for an old one's backoff. */
export function grpcConnector(server: ServerAddress): Connect {
  const { addresses, credentials, metadata } = server;
  let turn = 0;
  return (open) => {
    const address = addresses[turn++ % addresses.length] as string;
    const client = grpcClient(address, limits, credentials, keepalive);
    return connectGrpc(
      client,
      dispatchPath,
      workerCodec,
      limits,
      (connection) => {
        const receiver = open(connection);
        return {
          item: (item) => receiver.item(item),
          ended: () => receiver.ended(),
          closed(closing) {
            client.close();
            receiver.closed({ kind: closing.kind, message: `${address}: ${closing.message}` });
          },
        };
      },
      metadata,
    );
  };
}

/** Streams over a unix socket of this machine. */
export function localConnector(socket: string): Connect {
  return (open) => connectSocket({ unix: socket }, workerCodec, limits, open);
}

export interface GrpcBlobs {
  readonly blobs: BlobSource;
  /** The nodes there are now: they are asked too. */
  readonly onNodes: (addresses: readonly string[]) => void;
  readonly close: () => void;
}

/** Reads blobs from the first node that has them. `close` ends its channels. */
export function grpcBlobSource(server: ServerAddress): GrpcBlobs {
  const clients = new Map<string, grpc.Client>();
  let addresses = server.addresses;
  const clientOf = (address: string): grpc.Client => {
    const client = clients.get(address) ?? grpcClient(address, limits, server.credentials);
    clients.set(address, client);
    return client;
  };
  async function blobs(sha256: Uint8Array): Promise<Uint8Array> {
    let failed: unknown;
    for (const address of addresses) {
      try {
        return await grpcBlobs(clientOf(address), server.metadata)(sha256);
      } catch (error) {
        // What one node lacks may be on another that can't be reached now: then it is not missing.
        if (failed === undefined || isMissing(failed)) failed = error;
      }
    }
    throw failed;
  }
  return {
    blobs,
    onNodes(learned) {
      addresses = [...new Set([...server.addresses, ...learned])];
      for (const [address, client] of clients) {
        if (addresses.includes(address)) continue;
        client.close();
        clients.delete(address);
      }
    },
    close() {
      for (const client of clients.values()) client.close();
    },
  };
}

const isMissing = (error: unknown) => error instanceof HopError && error.reason === "BLOB_NOT_FOUND";
