/** Large payloads and bundles, by their SHA-256, from the server's content-addressed storage. */
import * as grpc from "@grpc/grpc-js";
import { bytesEqual, HopError, type Reason, toHex } from "#core/base";
import type { BlobChunk } from "#proto";
import { clientMethods } from "#proto/descriptors";

/** Bytes of the blob. Rejects with a `HopError`: BLOB_NOT_FOUND, or a reason to try again later. */
export type BlobSource = (sha256: Uint8Array) => Promise<Uint8Array>;

export interface BlobCacheOptions {
  readonly bytesMax: number;
}

/** Keeps what was read last, checks that bytes are what their name says, and asks once for each. */
export function cachedBlobs(source: BlobSource, options: BlobCacheOptions): BlobSource {
  const kept = new Map<string, Uint8Array>();
  const asked = new Map<string, Promise<Uint8Array>>();
  let keptBytes = 0;

  function keep(name: string, bytes: Uint8Array): void {
    if (bytes.length > options.bytesMax) return;
    kept.set(name, bytes);
    keptBytes += bytes.length;
    for (const [oldest, old] of kept) {
      if (keptBytes <= options.bytesMax) break;
      kept.delete(oldest);
      keptBytes -= old.length;
    }
  }

  async function ask(name: string, sha256: Uint8Array): Promise<Uint8Array> {
    try {
      const bytes = await source(sha256);
      const got = new Bun.CryptoHasher("sha256").update(bytes).digest();
      if (!bytesEqual(got, sha256)) throw new HopError("HASH_MISMATCH", `Cannot use blob ${name}: its bytes have SHA-256 ${toHex(got)}`);
      keep(name, bytes);
      return bytes;
    } finally {
      asked.delete(name);
    }
  }

  return (sha256) => {
    const name = toHex(sha256);
    const bytes = kept.get(name);
    if (bytes !== undefined) {
      kept.delete(name);
      kept.set(name, bytes);
      return Promise.resolve(bytes);
    }
    const pending = asked.get(name) ?? ask(name, sha256);
    asked.set(name, pending);
    return pending;
  };
}

const waitMs = 30_000;

/** Reads blobs through `WorkflowClient.GetBlob`. */
export function grpcBlobs(client: grpc.Client, metadata = new grpc.Metadata()): BlobSource {
  const { path, requestSerialize, responseDeserialize } = clientMethods.getBlob;
  return (sha256) =>
    new Promise((done, fail) => {
      const deadline = Date.now() + waitMs;
      const call = client.makeServerStreamRequest(path, requestSerialize, responseDeserialize, { sha256 }, metadata, { deadline });
      const chunks: Uint8Array[] = [];
      call.on("data", (chunk: BlobChunk) => chunks.push(chunk.data));
      call.on("error", (error: grpc.ServiceError) => fail(asHopError(sha256, error)));
      call.on("end", () => done(chunks.length === 1 ? (chunks[0] as Uint8Array) : Buffer.concat(chunks)));
    });
}

function asHopError(sha256: Uint8Array, error: grpc.ServiceError): HopError {
  const reason: Reason = error.code === grpc.status.NOT_FOUND ? "BLOB_NOT_FOUND" : "STORE_UNAVAILABLE";
  return new HopError(reason, `Cannot read blob ${toHex(sha256)}: ${error.details || error.message}`, { cause: error });
}
