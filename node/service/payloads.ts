/**
 * Payloads at the node's edge: what is large becomes a blob before Core sees it.
 *
 * After admission a payload holds at most `inlineBytesMax` bytes, or a reference to a blob that
 * is durable here. What can be admitted without storage is admitted at once, without a promise.
 */
import { HopError, limits, noBytes, toHex } from "#core/base";
import type { DurableRef, Payload } from "#proto";

/** The part of content-addressed storage that the edge needs. */
export interface BlobStore {
  /** Stores the bytes durably. Rejects with `HopError` NO_SPACE or STORE_UNAVAILABLE. */
  put(data: Uint8Array): Promise<DurableRef>;
  /** Size in bytes of a stored blob, which an event may name from now on as if it had just been put; or undefined. */
  claim(sha256: Uint8Array): Promise<number | undefined>;
}

const hashBytes = 32;

export class PayloadEdge {
  private readonly blobs: BlobStore;

  constructor(blobs: BlobStore) {
    this.blobs = blobs;
  }

  /**
   * Admits payloads in place. Undefined: done, nothing had to be stored. Else resolves when all
   * of them are durable, or rejects with `HopError` PAYLOAD_TOO_LARGE, BLOB_NOT_FOUND,
   * BAD_REQUEST or what storage answered; those not admitted are then as they came.
   */
  admit(payloads: readonly (Payload | undefined)[]): Promise<void> | undefined {
    let waits: Payload[] | undefined;
    for (const payload of payloads) {
      if (payload === undefined || (payload.ref === undefined && payload.data.length <= limits.inlineBytesMax)) continue;
      waits ??= [];
      waits.push(payload);
    }
    return waits === undefined ? undefined : this.admitAll(waits);
  }

  /** Makes a blob of it in place. Rejects as `admit` does. */
  async store(payload: Payload): Promise<void> {
    payload.ref = await this.blobs.put(payload.data);
    payload.data = noBytes;
  }

  /** Checks a payload that is not recorded: it may be large, but not without bound. Throws `HopError`. */
  checkPassing(payload: Payload | undefined): void {
    if (payload !== undefined) checkShape(payload);
  }

  /** Rejects with `HopError` BLOB_NOT_FOUND unless the blob is stored; then an event may name it. `doing` opens the message. */
  async requireBlob(sha256: Uint8Array, doing: string): Promise<void> {
    if ((await this.blobs.claim(sha256)) === undefined)
      throw new HopError("BLOB_NOT_FOUND", `${doing}: no blob ${toHex(sha256)} is stored`);
  }

  private async admitAll(payloads: readonly Payload[]): Promise<void> {
    for (const payload of payloads) checkShape(payload);
    for (const payload of payloads) {
      if (payload.ref === undefined) await this.store(payload);
      else await this.checkStored(payload.ref);
    }
  }

  private async checkStored(ref: DurableRef): Promise<void> {
    const size = await this.blobs.claim(ref.sha256);
    if (size === undefined)
      throw new HopError("BLOB_NOT_FOUND", `Cannot take a payload by reference: no blob ${toHex(ref.sha256)} is stored`);
    if (size !== ref.size)
      throw new HopError("BAD_REQUEST", `Cannot take a payload by reference: blob ${toHex(ref.sha256)} has ${size} bytes, got ${ref.size}`);
  }
}

function checkShape(payload: Payload): void {
  const bytes = payload.data.length;
  if (bytes > limits.payloadBytesMax) {
    throw new HopError(
      "PAYLOAD_TOO_LARGE",
      `Cannot take a payload: it has ${bytes} bytes, want at most ${limits.payloadBytesMax}; pass a reference to the data instead`,
    );
  }
  if (payload.ref === undefined) return;
  if (bytes > 0) throw new HopError("BAD_REQUEST", "Cannot take a payload: it holds both data and a reference, want one of them");
  const length = payload.ref.sha256.length;
  if (length !== hashBytes)
    throw new HopError("BAD_REQUEST", `Cannot take a payload by reference: its hash has ${length} bytes, want ${hashBytes}`);
}
