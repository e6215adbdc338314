/**
 * Blobs on their way between nodes: in pieces, a few blobs at a time from each node, and never
 * whole in memory on account of the transfer.
 *
 * What a broken stream has brought is kept, and the same node or another goes on from there. The
 * hash of all of it is checked before any of it counts.
 */
import { HopError, type NodeId, toHex } from "#core/base";
import { decodeBlobChunk, decodeBlobRest, encodeBlobChunk, encodeBlobRest, fromBytes, toBytes } from "#proto";
import type { OpenBlob } from "#store";
import type { PeerNet } from "../peer/peer-net.ts";
import { asHopError } from "../service/status.ts";
import type { BlobSink } from "./blob-sink.ts";
import { Lanes } from "./lanes.ts";

export interface BlobTransferParts {
  readonly net: Pick<PeerNet, "stream" | "serveStream">;
  /** Bytes of a blob that is only on its way to this node's disk. */
  readonly incoming: (sha256: Uint8Array) => Uint8Array | undefined;
  readonly open: (sha256: Uint8Array, from: number) => Promise<OpenBlob | undefined>;
}

const readCall = "blob.read";
const pieceBytes = 1 << 20;
/** Blobs that are read from one node at a time. */
const lanesOfNode = 8;
/** What came already is worth some patience with the node: streams that may fail one after the other without bringing a byte. */
const fruitlessMax = 4;
const againMs = 100;

export class BlobTransfer {
  private readonly parts: BlobTransferParts;
  private readonly lanes = new Map<NodeId, Lanes>();

  constructor(parts: BlobTransferParts) {
    this.parts = parts;
    parts.net.serveStream(readCall, (_, body) => {
      const { sha256, from } = fromBytes(decodeBlobRest, body);
      return this.rest(sha256.slice(), from);
    });
  }

  /**
   * Fills the sink from the first node that has the blob. Returns whether one did: false when all of
   * them certainly lack it. Rejects with what kept one from answering, or the sink from taking it.
   */
  async fill(sink: BlobSink, sha256: Uint8Array, nodes: readonly NodeId[]): Promise<boolean> {
    let failed: unknown;
    for (const node of nodes) {
      try {
        if (await this.lanesOf(node).run(() => this.fillFrom(sink, sha256, node))) return true;
      } catch (error) {
        // The sink's own fault: another node would not help.
        if (asHopError(error).reason === "NO_SPACE") throw error;
        failed ??= error;
      }
    }
    if (failed !== undefined) throw asHopError(failed);
    return false;
  }

  private async fillFrom(sink: BlobSink, sha256: Uint8Array, node: NodeId): Promise<boolean> {
    const wentOn = sink.bytes > 0;
    if (!(await this.readAll(sink, sha256, node))) return false;
    try {
      await sink.finish();
      return true;
    } catch (error) {
      if (asHopError(error).reason !== "HASH_MISMATCH") throw error;
      await sink.reset();
      // The wrong bytes may be another node's.
      if (wentOn) return this.fillFrom(sink, sha256, node);
      throw new HopError("HASH_MISMATCH", `Cannot read blob ${toHex(sha256)} from node ${node}: it sent another one`, { cause: error });
    }
  }

  private async readAll(sink: BlobSink, sha256: Uint8Array, node: NodeId): Promise<boolean> {
    for (let fruitless = 0; ; ) {
      const before = sink.bytes;
      try {
        const body = toBytes(encodeBlobRest, { sha256, from: before });
        for await (const chunk of this.parts.net.stream(node, readCall, body)) await sink.write(fromBytes(decodeBlobChunk, chunk).data);
        return true;
      } catch (error) {
        const { reason } = asHopError(error);
        if (reason === "BLOB_NOT_FOUND") return false;
        fruitless = sink.bytes > before ? 0 : fruitless + 1;
        if (reason !== "STORE_UNAVAILABLE" || sink.bytes === 0 || fruitless >= fruitlessMax) throw error;
        await new Promise((resolve) => setTimeout(resolve, againMs * 2 ** fruitless));
      }
    }
  }

  private async *rest(sha256: Uint8Array, from: number): AsyncIterable<Uint8Array> {
    const data = this.parts.incoming(sha256);
    if (data !== undefined) {
      for (let at = from; at < data.length; at += pieceBytes) yield toBytes(encodeBlobChunk, { data: data.subarray(at, at + pieceBytes) });
      return;
    }
    const blob = await this.parts.open(sha256, from);
    if (blob === undefined) throw new HopError("BLOB_NOT_FOUND", `Cannot read blob ${toHex(sha256)}: this node does not have it`);
    try {
      for await (const piece of blob.pieces) yield toBytes(encodeBlobChunk, { data: piece });
    } finally {
      await blob.close();
    }
  }

  private lanesOf(node: NodeId): Lanes {
    const known = this.lanes.get(node) ?? new Lanes(lanesOfNode);
    this.lanes.set(node, known);
    return known;
  }
}
