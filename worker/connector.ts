/** Roads to a server over gRPC. */
import type * as grpc from "@grpc/grpc-js";
import { limits } from "#core/base";
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

/** Each stream gets a channel of its own: a new attempt never waits for an old one's backoff. */
export function grpcConnector(server: ServerAddress): Connect {
  const { addresses, credentials, metadata } = server;
  let turn = 0;
  return (open) => {
    const address = addresses[turn++ % addresses.length] as string;
    const client = grpcClient(address, limits, credentials);
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

/** Reads blobs from the first server that answers. `close` ends its channels. */
export function grpcBlobSource(server: ServerAddress): { readonly blobs: BlobSource; readonly close: () => void } {
  const clients = server.addresses.map((address) => grpcClient(address, limits, server.credentials));
  const sources = clients.map((client) => grpcBlobs(client, server.metadata));
  async function blobs(sha256: Uint8Array): Promise<Uint8Array> {
    let failed: unknown;
    for (const source of sources) {
      try {
        return await source(sha256);
      } catch (error) {
        failed = error;
      }
    }
    throw failed;
  }
  return {
    blobs,
    close() {
      for (const client of clients) client.close();
    },
  };
}
