import { afterEach, expect, test } from "bun:test";
import * as grpc from "@grpc/grpc-js";
import { limits, type Reason } from "#core/base";
import type { BlobRequest } from "#proto";
import { clientMethods } from "#proto/descriptors";
import { type BlobSource, cachedBlobs } from "./blob-source.ts";
import { grpcBlobSource } from "./connector.ts";

const sha256 = (bytes: Uint8Array) => new Bun.CryptoHasher("sha256").update(bytes).digest();
const blob = (length: number, byte: number) => new Uint8Array(length).fill(byte);

async function reasonOf(promise: Promise<unknown>): Promise<Reason | undefined> {
  try {
    await promise;
    return undefined;
  } catch (error) {
    return (error as { reason: Reason }).reason;
  }
}

/** A source that counts what it is asked for. */
function counted(blobs: Uint8Array[]): { source: BlobSource; asked: string[] } {
  const asked: string[] = [];
  const source: BlobSource = async (hash) => {
    const found = blobs.find((bytes) => Buffer.compare(sha256(bytes), hash) === 0);
    asked.push(found === undefined ? "?" : String(found[0]));
    if (found === undefined) throw new Error("no such blob");
    return found;
  };
  return { source, asked };
}

test("cachedBlobs() asks once for what it keeps, also when asked at the same time", async () => {
  const one = blob(10, 1);
  const { source, asked } = counted([one]);
  const blobs = cachedBlobs(source, { bytesMax: 100 });
  expect(await Promise.all([blobs(sha256(one)), blobs(sha256(one))])).toEqual([one, one]);
  expect(await blobs(sha256(one))).toEqual(one);
  expect(asked).toEqual(["1"]);
});

test("cachedBlobs() forgets what was not used longest, and never keeps what is too large", async () => {
  const all = [1, 2, 3].map((byte) => blob(40, byte));
  const large = blob(101, 9);
  const { source, asked } = counted([...all, large]);
  const blobs = cachedBlobs(source, { bytesMax: 100 });
  for (const at of [0, 1, 0, 2, 0, 1]) await blobs(sha256(all[at] as Uint8Array));
  expect(asked).toEqual(["1", "2", "3", "2"]);
  for (let i = 0; i < 2; i++) await blobs(sha256(large));
  expect(asked.slice(4)).toEqual(["9", "9"]);
});

test("cachedBlobs() does not keep a failure", async () => {
  const known: Uint8Array[] = [];
  const { source, asked } = counted(known);
  const blobs = cachedBlobs(source, { bytesMax: 100 });
  const one = blob(10, 1);
  await expect(blobs(sha256(one))).rejects.toThrow("no such blob");
  known.push(one);
  expect(await blobs(sha256(one))).toEqual(one);
  expect(asked).toEqual(["?", "1"]);
});

test("cachedBlobs() refuses bytes that are not what their name says", async () => {
  const blobs = cachedBlobs(async () => blob(10, 2), { bytesMax: 100 });
  expect(await reasonOf(blobs(sha256(blob(10, 1))))).toBe("HASH_MISMATCH");
});

let close: () => void = () => {};
afterEach(() => close());

async function serve(blobs: Uint8Array[]): Promise<string> {
  const server = new grpc.Server();
  const getBlob = (call: grpc.ServerWritableStream<BlobRequest, unknown>) => {
    const found = blobs.find((bytes) => Buffer.compare(sha256(bytes), call.request.sha256) === 0);
    if (found === undefined) {
      call.emit("error", { code: grpc.status.NOT_FOUND, details: "Storage has no such blob" });
      return;
    }
    for (let at = 0; at < found.length; at += 1 << 20) call.write({ data: found.subarray(at, at + (1 << 20)) });
    call.end();
  };
  server.addService({ getBlob: clientMethods.getBlob } as never, { getBlob: getBlob as never });
  close = () => server.forceShutdown();
  const port = await new Promise<number>((done, fail) => {
    server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? done(bound) : fail(error),
    );
  });
  return `127.0.0.1:${port}`;
}

test("grpcBlobSource() reads blobs of any size, empty ones included", async () => {
  const all = [blob(0, 0), blob(1, 1), blob(3 << 20, 2), crypto.getRandomValues(new Uint8Array(65_536)), blob(limits.payloadBytesMax, 4)];
  const source = grpcBlobSource({ addresses: [await serve(all)] });
  for (const bytes of all) expect(Buffer.compare(await source.blobs(sha256(bytes)), bytes)).toBe(0);
  source.close();
});

test("grpcBlobSource() tells a blob that is not there from a server that is not there", async () => {
  const address = await serve([]);
  const source = grpcBlobSource({ addresses: [address] });
  expect(await reasonOf(source.blobs(sha256(blob(1, 1))))).toBe("BLOB_NOT_FOUND");
  close();
  expect(await reasonOf(source.blobs(sha256(blob(1, 1))))).toBe("STORE_UNAVAILABLE");
  source.close();
});

test("grpcBlobSource() asks the next server where one does not answer", async () => {
  const one = blob(10, 1);
  const source = grpcBlobSource({ addresses: ["127.0.0.1:1", await serve([one])] });
  expect(await source.blobs(sha256(one))).toEqual(one);
  source.close();
});
