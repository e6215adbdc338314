import { describe, expect, test } from "bun:test";
import { HopError, limits } from "#core/base";
import type { DurableRef, Payload } from "#proto";
import { until } from "../../tests/until.ts";
import { OrderedIntake } from "./intake.ts";
import { type BlobStore, PayloadEdge } from "./payloads.ts";

/** Blobs in memory; a put lands when the test says so. */
class HeldBlobs implements BlobStore {
  readonly stored = new Map<string, number>();
  readonly landing: (() => void)[] = [];
  failure: HopError | undefined;

  put(data: Uint8Array): Promise<DurableRef> {
    const sha256 = new Bun.CryptoHasher("sha256").update(data).digest();
    return new Promise((resolve, reject) => {
      this.landing.push(() => {
        if (this.failure !== undefined) return reject(this.failure);
        this.stored.set(sha256.toHex(), data.length);
        resolve({ sha256, size: data.length });
      });
    });
  }

  claim(sha256: Uint8Array): Promise<number | undefined> {
    return Promise.resolve(this.stored.get(sha256.toHex()));
  }
}

const inline = (bytes: number): Payload => ({ data: new Uint8Array(bytes), ref: undefined });
const settle = async (blobs: HeldBlobs, admitted: Promise<void> | undefined): Promise<void> => {
  let isDone = false;
  void admitted?.finally(() => {
    isDone = true;
  });
  await until(() => {
    blobs.landing.shift()?.();
    return isDone;
  });
  await admitted;
};

describe("PayloadEdge.admit()", () => {
  test("takes what is small at once, up to the bound itself", () => {
    const edge = new PayloadEdge(new HeldBlobs());
    expect(edge.admit([undefined, inline(0), inline(limits.inlineBytesMax)])).toBeUndefined();
  });

  test("moves what is larger into storage and leaves the reference", async () => {
    const blobs = new HeldBlobs();
    const payloads = [inline(limits.inlineBytesMax + 1), inline(1), inline(limits.inlineBytesMax * 2)];
    await settle(blobs, new PayloadEdge(blobs).admit(payloads));
    expect(payloads.map((payload) => [payload.data.length, payload.ref?.size])).toEqual([
      [0, limits.inlineBytesMax + 1],
      [1, undefined],
      [0, limits.inlineBytesMax * 2],
    ]);
    expect(blobs.stored.has(payloads[0]?.ref?.sha256.toHex() ?? "")).toBe(true);
  });

  test("refuses what is above the limit before it stores anything", async () => {
    const blobs = new HeldBlobs();
    const admitted = new PayloadEdge(blobs).admit([inline(limits.inlineBytesMax + 1), inline(limits.payloadBytesMax + 1)]);
    const error = await admitted?.catch((cause: unknown) => cause);
    expect(error).toMatchObject({ reason: "PAYLOAD_TOO_LARGE" });
    expect((error as Error).message).toContain(`it has ${limits.payloadBytesMax + 1} bytes, want at most ${limits.payloadBytesMax}`);
    expect(blobs.landing).toHaveLength(0);
  });

  test("a reference must be to a stored blob of that size, and whole", async () => {
    const blobs = new HeldBlobs();
    const edge = new PayloadEdge(blobs);
    const sha256 = new Uint8Array(32).fill(7);
    const refused = (payload: Payload) =>
      edge.admit([payload])?.then(
        () => undefined,
        (error: HopError) => error.reason,
      );
    expect(await refused({ data: new Uint8Array(0), ref: { sha256, size: 5 } })).toBe("BLOB_NOT_FOUND");
    blobs.stored.set(sha256.toHex(), 5);
    expect(await refused({ data: new Uint8Array(0), ref: { sha256, size: 5 } })).toBeUndefined();
    expect(await refused({ data: new Uint8Array(0), ref: { sha256, size: 6 } })).toBe("BAD_REQUEST");
    expect(await refused({ data: new Uint8Array(1), ref: { sha256, size: 5 } })).toBe("BAD_REQUEST");
    expect(await refused({ data: new Uint8Array(0), ref: { sha256: new Uint8Array(3), size: 5 } })).toBe("BAD_REQUEST");
  });

  test("storage that can't take it is told to the caller", async () => {
    const blobs = new HeldBlobs();
    blobs.failure = new HopError("NO_SPACE", "full");
    const admitted = new PayloadEdge(blobs).admit([inline(limits.inlineBytesMax + 1)]);
    blobs.landing.shift()?.();
    expect(await admitted?.catch((error: HopError) => error.reason)).toBe("NO_SPACE");
  });
});

describe("OrderedIntake", () => {
  const gate = () => {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    return { promise, resolve, reject };
  };

  test("an item that waits is not overtaken, and reading stops meanwhile", async () => {
    const seen: string[] = [];
    const waiting: boolean[] = [];
    const intake = new OrderedIntake((isWaiting) => void waiting.push(isWaiting));
    const add = (name: string, ready?: Promise<void>) =>
      intake.add(
        ready,
        () => void seen.push(name),
        () => void seen.push(`${name} refused`),
      );
    const [first, second] = [gate(), gate()];
    add("a");
    expect(seen).toEqual(["a"]);
    add("b", first.promise);
    add("c");
    add("d", second.promise);
    add("e");
    second.reject(new Error("no"));
    await Promise.resolve();
    expect(seen).toEqual(["a"]);
    expect(waiting).toEqual([true]);
    first.resolve();
    await until(() => intake.waiting === 0);
    expect(seen).toEqual(["a", "b", "c", "d refused", "e"]);
    await until(() => waiting.length === 2);
    expect(waiting).toEqual([true, false]);
    add("f");
    expect(seen.at(-1)).toBe("f");
  });

  test("what waits is forgotten when the stream is over", async () => {
    const seen: string[] = [];
    const intake = new OrderedIntake();
    const held = gate();
    intake.add(
      held.promise,
      () => void seen.push("a"),
      () => {},
    );
    intake.add(
      undefined,
      () => void seen.push("b"),
      () => {},
    );
    intake.close();
    held.resolve();
    await held.promise;
    await Promise.resolve();
    expect(seen).toEqual([]);
  });
});
