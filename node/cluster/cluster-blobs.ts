/**
 * Content-addressed storage of a whole cluster, over each node's own.
 *
 * A blob is durable on a majority of the replication factor's nodes when `put` resolves, so it
 * survives what the shards survive. A node that lacks one fetches it from another, or from object
 * storage, checks its hash and keeps it. While a node that might have a blob does not answer, or
 * object storage does not, it is unavailable and never missing.
 */
import type { NodeId } from "#core/base";
import { HopError, toHex } from "#core/base";
import {
  type DurableRef,
  decodeBlobFound,
  decodeBlobHashes,
  decodeBlobRequest,
  encodeBlobFound,
  encodeBlobHashes,
  encodeBlobRequest,
  fromBytes,
  toBytes,
} from "#proto";
import type { OpenBlob } from "#store";
import type { PeerNet } from "../peer/peer-net.ts";
import type { ReadableBlobs } from "../service/client-service.ts";
import { asHopError } from "../service/status.ts";
import type { Timing } from "../timing.ts";
import { type BlobSink, MemorySink } from "./blob-sink.ts";
import { BlobTransfer } from "./blob-transfer.ts";
import { ClaimedBlobs } from "./claimed-blobs.ts";

/** A node's own store. */
export interface LocalBlobs {
  put(data: Uint8Array): Promise<DurableRef>;
  /** Takes a blob in pieces. */
  receive(sha256: Uint8Array): BlobSink;
  /** Undefined where there is none. */
  find(sha256: Uint8Array): Promise<Uint8Array | undefined>;
  open(sha256: Uint8Array, from?: number): Promise<OpenBlob | undefined>;
  size(sha256: Uint8Array): Promise<number | undefined>;
  isIntact(sha256: Uint8Array): Promise<boolean>;
  touch(sha256: Uint8Array): Promise<boolean>;
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

/** Where blobs are that were uploaded. They reject with `HopError`; undefined where there certainly is none. */
export interface StoredBlobs {
  size(sha256: Uint8Array): Promise<number | undefined>;
  /** Hands the blob to `take` in pieces, in order, and resolves with its size when their hash is right. */
  download(sha256: Uint8Array, take: (bytes: Uint8Array) => void | Promise<void>): Promise<number | undefined>;
}

/** `data` where the disk did not take it. */
interface Fetched {
  readonly found: boolean;
  readonly data: Uint8Array | undefined;
}

export interface ClusterBlobsParts {
  readonly local: LocalBlobs;
  /** Undefined where the node has no object storage. */
  readonly stored?: StoredBlobs | undefined;
  readonly net: PeerNet;
  readonly nodes: BlobNodes;
  readonly timing: Pick<Timing, "monotonicMs">;
  /** What no event names is kept so long after it was put or asked for. */
  readonly graceMs: number;
}

const calls = { keep: "blob.keep", size: "blob.size", lacking: "blob.lacking" } as const;
/** A node that is to keep a blob has so long for it, and a second more for each of these bytes. */
const keepMsMin = 60_000;
const bytesASecondMin = 1 << 20;

export class ClusterBlobs implements ReadableBlobs {
  private readonly parts: ClusterBlobsParts;
  private readonly transfer: BlobTransfer;
  private readonly claimed: ClaimedBlobs;
  /** Blobs on their way to this disk, by hash: others may fetch them already. */
  private readonly incoming = new Map<string, Uint8Array>();
  private readonly fetching = new Map<string, Promise<Fetched>>();

  constructor(parts: ClusterBlobsParts) {
    this.parts = parts;
    const { net, local, timing, graceMs } = parts;
    this.claimed = new ClaimedBlobs(timing, graceMs / 2);
    this.transfer = new BlobTransfer({
      net,
      incoming: (sha256) => this.incoming.get(toHex(sha256)),
      open: (sha256, from) => local.open(sha256, from),
    });
    net.serve(calls.keep, async (from, body) => {
      await this.keep(from, fromBytes(decodeBlobRequest, body).sha256.slice());
      return new Uint8Array(0);
    });
    net.serve(calls.size, async (_, body) => {
      const size = await local.size(fromBytes(decodeBlobRequest, body).sha256.slice());
      return toBytes(encodeBlobFound, { found: size !== undefined, size: size ?? 0 });
    });
    net.serve(calls.lacking, async (_, body) => {
      const { sha256: asked } = fromBytes(decodeBlobHashes, body);
      const lacking: Uint8Array[] = [];
      for (const sha256 of asked) if ((await local.size(sha256)) === undefined) lacking.push(sha256);
      return toBytes(encodeBlobHashes, { sha256: lacking });
    });
  }

  /** Resolves when the blob is durable on enough nodes, and new there. Rejects with NO_SPACE or STORE_UNAVAILABLE. */
  async put(data: Uint8Array): Promise<DurableRef> {
    const wanted = this.copiesWanted();
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

  /**
   * Size of a blob that an event is about to name: as after a `put` of it, it is durable on enough
   * nodes and not collected for a while. Undefined where there is none. Rejects with `HopError`.
   */
  async claim(sha256: Uint8Array): Promise<number | undefined> {
    const name = toHex(sha256);
    const known = this.claimed.sizeOf(name);
    if (known !== undefined) return known;
    const askedMs = this.parts.timing.monotonicMs();
    if (!(await this.isKept(sha256))) return undefined;
    await this.copy(sha256, this.copiesWanted());
    const size = await this.parts.local.size(sha256);
    if (size !== undefined) this.claimed.note(name, size, askedMs);
    return size;
  }

  /** The blob. Rejects with `HopError` BLOB_NOT_FOUND, STORE_UNAVAILABLE or HASH_MISMATCH. */
  async get(sha256: Uint8Array): Promise<Uint8Array> {
    const own = await this.findLocal(sha256);
    if (own !== undefined) return own;
    const fetched = await this.fetch(sha256);
    const found = fetched.data ?? (fetched.found ? await this.parts.local.find(sha256) : undefined);
    if (found === undefined)
      throw new HopError("BLOB_NOT_FOUND", `Cannot read blob ${toHex(sha256)}: neither a node nor object storage has it`);
    return found;
  }

  /** Bytes of the blob; undefined where there is none. Rejects with `HopError` STORE_UNAVAILABLE. */
  async size(sha256: Uint8Array): Promise<number | undefined> {
    const own = await this.parts.local.size(sha256);
    if (own !== undefined) return own;
    const [heard, silent] = this.othersByVoice(sha256);
    return this.firstOf("look for", sha256, [
      () => this.sizeAt(heard, sha256),
      async () => this.parts.stored?.size(sha256),
      () => this.sizeAt(silent, sha256),
    ]);
  }

  private async sizeAt(nodes: readonly NodeId[], sha256: Uint8Array): Promise<number | undefined> {
    const body = toBytes(encodeBlobRequest, { sha256 });
    let failed: unknown;
    for (const node of nodes) {
      try {
        const { found, size } = fromBytes(decodeBlobFound, await this.parts.net.call(node, calls.size, body));
        if (found) return size;
      } catch (error) {
        failed ??= error;
      }
    }
    if (failed !== undefined) throw asHopError(failed);
    return undefined;
  }

  /** What the first road that leads to the blob brings; undefined where all of them end without it. Rejects where one is closed. */
  private async firstOf<T>(verb: string, sha256: Uint8Array, roads: readonly (() => Promise<T | undefined>)[]): Promise<T | undefined> {
    let failed: unknown;
    for (const road of roads) {
      try {
        const found = await road();
        if (found !== undefined) return found;
      } catch (error) {
        // This node's disk is full: that is no matter of roads.
        if (asHopError(error).reason === "NO_SPACE") throw error;
        failed ??= error;
      }
    }
    if (failed !== undefined) throw unavailable(verb, sha256, failed);
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

  /** Resolves when `node` has the blob durably, and new; it fetches it from here. */
  async sendTo(node: NodeId, sha256: Uint8Array): Promise<void> {
    const bytes = this.incoming.get(toHex(sha256))?.length ?? (await this.parts.local.size(sha256)) ?? 0;
    const timeoutMs = keepMsMin + Math.ceil((bytes / bytesASecondMin) * 1000);
    await this.parts.net.call(node, calls.keep, toBytes(encodeBlobRequest, { sha256 }), { timeoutMs });
  }

  /** Another node has a blob that this one is to have too. */
  private async keep(from: NodeId, sha256: Uint8Array): Promise<void> {
    const { local } = this.parts;
    // A blob that is only on its way to this disk may still fail: fetching it too makes it certain.
    if (!this.incoming.has(toHex(sha256)) && (await local.isIntact(sha256)) && (await local.touch(sha256))) return;
    const sink = local.receive(sha256);
    try {
      if (await this.transfer.fill(sink, sha256, [from])) return;
    } finally {
      await sink.abandon();
    }
    throw new HopError("BLOB_NOT_FOUND", `Cannot keep blob ${toHex(sha256)}: node ${from} does not have it`);
  }

  /** Whether this node has the blob from now on, where there is one. */
  private async isKept(sha256: Uint8Array): Promise<boolean> {
    const { local } = this.parts;
    if (await local.touch(sha256)) return true;
    const { found } = await this.fetch(sha256);
    if (!found) return false;
    // One that the disk did not take may still be durable elsewhere, but not here.
    if (await local.touch(sha256)) return true;
    throw new HopError("STORE_UNAVAILABLE", `Cannot keep blob ${toHex(sha256)} on this node`, { retryAfterMs: 500 });
  }

  /** From another node or object storage. One fetch at a time for each blob. */
  private fetch(sha256: Uint8Array): Promise<Fetched> {
    const name = toHex(sha256);
    const known = this.fetching.get(name);
    if (known !== undefined) return known;
    const fetched = this.fetchToDisk(sha256).finally(() => this.fetching.delete(name));
    this.fetching.set(name, fetched);
    return fetched;
  }

  private async fetchToDisk(sha256: Uint8Array): Promise<Fetched> {
    const sink = this.parts.local.receive(sha256);
    try {
      return { found: await this.fill(sink, sha256), data: undefined };
    } catch (error) {
      if (asHopError(error).reason !== "NO_SPACE") throw error;
      // Whoever reads the blob is not kept from it by a disk that is full.
      const memory = new MemorySink(sha256);
      return (await this.fill(memory, sha256)) ? { found: true, data: memory.data() } : { found: false, data: undefined };
    } finally {
      await sink.abandon();
    }
  }

  /** Nodes that live are asked first, and those that are silent when object storage has not helped. */
  private async fill(sink: BlobSink, sha256: Uint8Array): Promise<boolean> {
    const { stored } = this.parts;
    const [heard, silent] = this.othersByVoice(sha256);
    const filled = await this.firstOf("read", sha256, [
      async () => (await this.transfer.fill(sink, sha256, heard)) || undefined,
      async () => (stored !== undefined && (await fillStored(sink, sha256, stored))) || undefined,
      async () => (await this.transfer.fill(sink, sha256, silent)) || undefined,
    ]);
    return filled ?? false;
  }

  /** Damage here is repaired from elsewhere, where the blob is. */
  private async findLocal(sha256: Uint8Array): Promise<Uint8Array | undefined> {
    const { local, nodes, stored } = this.parts;
    try {
      return await local.find(sha256);
    } catch (error) {
      if (asHopError(error).reason !== "HASH_MISMATCH" || (nodes.members().length < 2 && stored === undefined)) throw error;
      const copy = await this.fetch(sha256).catch(() => undefined);
      if (copy?.found !== true) throw error;
      return copy.data ?? (await local.find(sha256));
    }
  }

  /** Besides this node's own, which is one of a majority. */
  private copiesWanted(): number {
    return Math.floor(this.parts.nodes.replicas() / 2);
  }

  /** Other members, those first that are its homes; who was not heard lately comes last. */
  private others(sha256: Uint8Array): NodeId[] {
    return this.othersByVoice(sha256).flat();
  }

  /** The same in two parts: who was heard lately, and who was not. */
  private othersByVoice(sha256: Uint8Array): [NodeId[], NodeId[]] {
    const { nodes } = this.parts;
    const ordered = homesOf(sha256, nodes.members()).filter((node) => node !== nodes.self);
    return [ordered.filter((node) => nodes.isHeard(node)), ordered.filter((node) => !nodes.isHeard(node))];
  }
}

async function fillStored(sink: BlobSink, sha256: Uint8Array, stored: StoredBlobs): Promise<boolean> {
  await sink.reset();
  if ((await stored.download(sha256, (piece) => sink.write(piece))) === undefined) return false;
  await sink.finish();
  return true;
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
    `Cannot ${verb} blob ${toHex(sha256)}: it is not here, and who may have it does not answer (${asHopError(cause).message})`,
    { cause, retryAfterMs: 500 },
  );
