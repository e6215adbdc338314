/**
 * Content-addressed storage of a whole cluster, over each node's own.
 *
 * A blob is durable on a majority of the replication factor's nodes when `put` resolves, so it
 * survives what the shards survive. A node that lacks one fetches it from another, checks its hash
 * and keeps it. While a node that might have a blob does not answer, it is unavailable and never
 * missing.
 */
import type { NodeId } from "#core/base";
import { bytesEqual, HopError, toHex } from "#core/base";
import {
  type BlobFound,
  type DurableRef,
  decodeBlobChunk,
  decodeBlobFound,
  decodeBlobHashes,
  decodeBlobRequest,
  encodeBlobChunk,
  encodeBlobFound,
  encodeBlobHashes,
  encodeBlobRequest,
  fromBytes,
  toBytes,
} from "#proto";
import type { PeerNet } from "../peer/peer-net.ts";
import type { ReadableBlobs } from "../service/client-service.ts";
import { asHopError } from "../service/status.ts";

/** A node's own store. */
export interface LocalBlobs {
  put(data: Uint8Array): Promise<DurableRef>;
  /** Undefined where there is none. */
  find(sha256: Uint8Array): Promise<Uint8Array | undefined>;
  size(sha256: Uint8Array): Promise<number | undefined>;
}

/** Who keeps blobs. */
export interface BlobNodes {
  readonly self: NodeId;
  /** Members of the cluster, this node too. */
  members(): readonly NodeId[];
  /** Replicas that data is to have, as far as there are members. */
  replicas(): number;
  /** Whether a node answered lately; who did not is asked last. */
  isHeard(node: NodeId): boolean;
}

export interface ClusterBlobsParts {
  readonly local: LocalBlobs;
  readonly net: PeerNet;
  readonly nodes: BlobNodes;
}

const calls = { keep: "blob.keep", size: "blob.size", read: "blob.read", lacking: "blob.lacking" } as const;
const chunkBytes = 1 << 20;
const keepMsMax = 60_000;

export class ClusterBlobs implements ReadableBlobs {
  private readonly parts: ClusterBlobsParts;
  /** Blobs on their way to this disk, by hash: others may fetch them already. */
  private readonly incoming = new Map<string, Uint8Array>();
  private readonly fetching = new Map<string, Promise<Uint8Array | undefined>>();

  constructor(parts: ClusterBlobsParts) {
    this.parts = parts;
    const { net } = parts;
    net.serve(calls.keep, async (from, body) => {
      await this.keep(from, fromBytes(decodeBlobRequest, body).sha256.slice());
      return new Uint8Array(0);
    });
    net.serve(calls.size, async (_, body) => {
      const size = await this.localSize(fromBytes(decodeBlobRequest, body).sha256.slice());
      return toBytes(encodeBlobFound, { found: size !== undefined, size: size ?? 0 });
    });
    net.serve(calls.lacking, async (_, body) => {
      const { sha256: asked } = fromBytes(decodeBlobHashes, body);
      const lacking: Uint8Array[] = [];
      for (const sha256 of asked) if ((await this.localSize(sha256)) === undefined) lacking.push(sha256);
      return toBytes(encodeBlobHashes, { sha256: lacking });
    });
    net.serveStream(calls.read, (_, body) => this.chunks(fromBytes(decodeBlobRequest, body).sha256.slice()));
  }

  /** Resolves when the blob is durable on enough nodes. Rejects with NO_SPACE or STORE_UNAVAILABLE. */
  async put(data: Uint8Array): Promise<DurableRef> {
    // This node's own copy is one of a majority.
    const wanted = Math.floor(this.parts.nodes.replicas() / 2);
    if (wanted <= 0) return this.parts.local.put(data);
    const sha256 = await hashOf(data);
    const name = toHex(sha256);
    this.incoming.set(name, data);
    try {
      const [ref] = await Promise.all([this.parts.local.put(data), this.copy(sha256, wanted)]);
      return ref;
    } finally {
      if (this.incoming.get(name) === data) this.incoming.delete(name);
    }
  }

  /** The blob. Rejects with `HopError` BLOB_NOT_FOUND, STORE_UNAVAILABLE or HASH_MISMATCH. */
  async get(sha256: Uint8Array): Promise<Uint8Array> {
    const found = (await this.findLocal(sha256)) ?? (await this.fetch(sha256));
    if (found === undefined) throw new HopError("BLOB_NOT_FOUND", `Cannot read blob ${toHex(sha256)}: no node of the cluster has it`);
    return found;
  }

  /** Bytes of the blob; undefined where no node has it. Rejects with `HopError` STORE_UNAVAILABLE. */
  async size(sha256: Uint8Array): Promise<number | undefined> {
    const own = await this.localSize(sha256);
    if (own !== undefined) return own;
    const body = toBytes(encodeBlobRequest, { sha256 });
    let silent: unknown;
    for (const node of this.others(sha256)) {
      let answer: BlobFound;
      try {
        answer = fromBytes(decodeBlobFound, await this.parts.net.call(node, calls.size, body));
      } catch (error) {
        silent ??= error;
        continue;
      }
      if (answer.found) return answer.size;
    }
    if (silent !== undefined) throw unavailable("look for", sha256, silent);
    return undefined;
  }

  /** Has `count` other nodes keep the blob; one that fails is replaced by the next. */
  private async copy(sha256: Uint8Array, count: number): Promise<void> {
    const candidates = this.others(sha256);
    let failed: unknown;
    const one = async (): Promise<void> => {
      for (let node = candidates.shift(); node !== undefined; node = candidates.shift()) {
        try {
          await this.sendTo(node, sha256);
          return;
        } catch (error) {
          failed = error;
        }
      }
      const why = failed === undefined ? "too few nodes are members" : asHopError(failed).message;
      throw new HopError("STORE_UNAVAILABLE", `Cannot store blob ${toHex(sha256)} on ${count + 1} nodes: ${why}`, { cause: failed });
    };
    await Promise.all(Array.from({ length: count }, one));
  }

  /** Those of the blobs that `node` does not have. Rejects with `HopError`. */
  async lackedBy(node: NodeId, hashes: readonly Uint8Array[]): Promise<Uint8Array[]> {
    const body = toBytes(encodeBlobHashes, { sha256: hashes });
    return fromBytes(decodeBlobHashes, await this.parts.net.call(node, calls.lacking, body)).sha256;
  }

  /** Resolves when `node` has the blob durably; it fetches it from here. */
  async sendTo(node: NodeId, sha256: Uint8Array): Promise<void> {
    await this.parts.net.call(node, calls.keep, toBytes(encodeBlobRequest, { sha256 }), { timeoutMs: keepMsMax });
  }

  /** Another node has a blob that this one is to have too. */
  private async keep(from: NodeId, sha256: Uint8Array): Promise<void> {
    // A blob that is only on its way to this disk may still fail: putting it again waits for it.
    if ((await this.parts.local.size(sha256)) !== undefined && !this.incoming.has(toHex(sha256)) && (await this.isIntact(sha256))) return;
    const data = await this.read(from, sha256);
    if (data === undefined) throw new HopError("BLOB_NOT_FOUND", `Cannot keep blob ${toHex(sha256)}: node ${from} does not have it`);
    await this.parts.local.put(data);
  }

  private async isIntact(sha256: Uint8Array): Promise<boolean> {
    try {
      return (await this.parts.local.find(sha256)) !== undefined;
    } catch {
      return false;
    }
  }

  /** From the first other node that has it; undefined where none does. One fetch at a time for each blob. */
  private fetch(sha256: Uint8Array): Promise<Uint8Array | undefined> {
    const name = toHex(sha256);
    const known = this.fetching.get(name);
    if (known !== undefined) return known;
    const fetched = this.fetchFrom(sha256).finally(() => this.fetching.delete(name));
    this.fetching.set(name, fetched);
    return fetched;
  }

  private async fetchFrom(sha256: Uint8Array): Promise<Uint8Array | undefined> {
    let failed: unknown;
    for (const node of this.others(sha256)) {
      try {
        const data = await this.read(node, sha256);
        if (data === undefined) continue;
        // A copy that can't be kept here is fetched again the next time.
        await this.parts.local.put(data).catch(() => {});
        return data;
      } catch (error) {
        failed ??= error;
      }
    }
    if (failed !== undefined) throw unavailable("read", sha256, failed);
    return undefined;
  }

  /** The blob as `node` has it, its hash checked; undefined where it has none. */
  private async read(node: NodeId, sha256: Uint8Array): Promise<Uint8Array | undefined> {
    const parts: Uint8Array[] = [];
    try {
      for await (const chunk of this.parts.net.stream(node, calls.read, toBytes(encodeBlobRequest, { sha256 })))
        parts.push(fromBytes(decodeBlobChunk, chunk).data);
    } catch (error) {
      if (asHopError(error).reason === "BLOB_NOT_FOUND") return undefined;
      throw error;
    }
    const data = new Uint8Array(Buffer.concat(parts));
    const got = await hashOf(data);
    if (!bytesEqual(got, sha256))
      throw new HopError("HASH_MISMATCH", `Cannot read blob ${toHex(sha256)} from node ${node}: what came has SHA-256 ${toHex(got)}`);
    return data;
  }

  private async *chunks(sha256: Uint8Array): AsyncIterable<Uint8Array> {
    const data = this.incoming.get(toHex(sha256)) ?? (await this.parts.local.find(sha256));
    if (data === undefined) throw new HopError("BLOB_NOT_FOUND", `Cannot read blob ${toHex(sha256)}: this node does not have it`);
    for (let at = 0; at < data.length || at === 0; at += chunkBytes)
      yield toBytes(encodeBlobChunk, { data: data.subarray(at, at + chunkBytes) });
  }

  /** Damage here is repaired from another node, where one has the blob. */
  private async findLocal(sha256: Uint8Array): Promise<Uint8Array | undefined> {
    try {
      return await this.parts.local.find(sha256);
    } catch (error) {
      if (this.parts.nodes.members().length < 2 || asHopError(error).reason !== "HASH_MISMATCH") throw error;
      const copy = await this.fetch(sha256).catch(() => undefined);
      if (copy === undefined) throw error;
      return copy;
    }
  }

  /** Other members, those first that are its homes; who was not heard lately comes last. */
  private others(sha256: Uint8Array): NodeId[] {
    const { nodes } = this.parts;
    const ordered = homesOf(sha256, nodes.members()).filter((node) => node !== nodes.self);
    return [...ordered.filter((node) => nodes.isHeard(node)), ...ordered.filter((node) => !nodes.isHeard(node))];
  }

  private localSize(sha256: Uint8Array): Promise<number | undefined> {
    return this.parts.local.size(sha256);
  }
}

/**
 * Nodes in the order in which they are to have the blob. Each blob has an order of its own, and a
 * node that comes or goes changes nothing about the order of the others.
 */
export function homesOf(sha256: Uint8Array, nodes: readonly NodeId[]): NodeId[] {
  const seed = new DataView(sha256.buffer, sha256.byteOffset, sha256.byteLength).getUint32(0);
  return nodes
    .map((node) => ({ node, score: mixed(seed ^ Math.imul(node, 0x9e3779b1)) }))
    .sort((a, b) => b.score - a.score || a.node - b.node)
    .map((each) => each.node);
}

function mixed(value: number): number {
  let h = value;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

/** Off this thread where hashing would hold it up. */
async function hashOf(bytes: Uint8Array): Promise<Uint8Array> {
  if (bytes.length <= 1 << 18) return Bun.SHA256.hash(bytes) as Uint8Array;
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
}

const unavailable = (verb: string, sha256: Uint8Array, cause: unknown) =>
  new HopError(
    "STORE_UNAVAILABLE",
    `Cannot ${verb} blob ${toHex(sha256)}: it is not here, and a node that may have it does not answer (${asHopError(cause).message})`,
    { cause, retryAfterMs: 500 },
  );
