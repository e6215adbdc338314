/** Blobs of several nodes for tests: each has a store of its own on disk, and real links to the others. */
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asNodeId, type HopError, toHex } from "#core/base";
import { BlobStore, type OpenBlob } from "#store";
import { TestPeer } from "../peer/peer-fixture.ts";
import { realTiming } from "../timing.ts";
import { type BlobNodes, ClusterBlobs, type StoredBlobs } from "./cluster-blobs.ts";

export const graceMs = 60_000;

export const bytesOf = (seed: number, size = 1000) => new Uint8Array(size).map((_, i) => (i * 31 + (i >> 8) * 7 + seed) & 0xff);

export class BlobNode {
  readonly peer: TestPeer;
  readonly store: BlobStore;
  readonly blobs: ClusterBlobs;
  readonly nodes: BlobNodes;
  readonly dir: string;
  /** Nodes that it counts as silent. */
  readonly unheard = new Set<number>();
  /** Bytes that others have read here; told of each piece before it leaves. */
  servedBytes = 0;
  onServe: (servedBytes: number) => void = () => {};

  constructor(id: number, town: Town) {
    this.peer = new TestPeer(id);
    this.dir = fs.mkdtempSync(join(tmpdir(), "hop-blobs-"));
    this.store = BlobStore.open(this.dir);
    this.nodes = {
      self: asNodeId(id),
      members: () => town.members.map(asNodeId),
      replicas: () => town.replicas,
      isHeard: (node) => !this.unheard.has(node),
    };
    const timing = { monotonicMs: () => realTiming.monotonicMs() + town.passedMs };
    const local = new Proxy(this.store, {
      get: (store, name) => {
        if (name === "open") return (sha256: Uint8Array, from?: number) => this.open(sha256, from);
        const value = Reflect.get(store, name);
        return typeof value === "function" ? value.bind(store) : value;
      },
    });
    this.blobs = new ClusterBlobs({ local, stored: town.stored, net: this.peer.net, nodes: this.nodes, timing, graceMs });
  }

  pathOf(sha256: Uint8Array): string {
    const name = toHex(sha256);
    return join(this.dir, name.slice(0, 2), name.slice(2, 4), name);
  }

  /** Makes all its blobs look as if nobody had touched them for so long. */
  async age(ms: number): Promise<void> {
    for await (const { sha256, touchedMs } of this.store.kept()) {
      const at = new Date(touchedMs - ms);
      fs.utimesSync(this.pathOf(sha256), at, at);
    }
  }

  private async open(sha256: Uint8Array, from?: number): Promise<OpenBlob | undefined> {
    const blob = await this.store.open(sha256, from);
    return blob && { ...blob, pieces: this.counted(blob.pieces) };
  }

  private async *counted(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const piece of pieces) {
      this.onServe(this.servedBytes);
      this.servedBytes += piece.length;
      yield piece;
    }
  }
}

export class Town implements Disposable {
  replicas: number;
  members: number[];
  /** Milliseconds by which the nodes' monotonic clocks were moved on. */
  passedMs = 0;
  readonly stored: StoredBlobs | undefined;
  readonly nodes: BlobNode[];

  constructor(count: number, replicas: number, stored?: StoredBlobs) {
    this.replicas = replicas;
    this.stored = stored;
    this.members = Array.from({ length: count }, (_, i) => i + 1);
    this.nodes = this.members.map((id) => new BlobNode(id, this));
    for (const { peer } of this.nodes) peer.meet(...this.nodes.map((each) => each.peer).filter((each) => each !== peer));
  }

  node(id: number): BlobNode {
    return this.nodes[id - 1] as BlobNode;
  }

  async copies(sha256: Uint8Array): Promise<number[]> {
    const has = await Promise.all(this.nodes.map(({ store }) => store.has(sha256)));
    return this.members.filter((_, i) => has[i]);
  }

  [Symbol.dispose](): void {
    for (const { peer, dir } of this.nodes) {
      peer.net.close();
      fs.rmSync(dir, { recursive: true, force: true });
    }
  }
}

export async function reasonOf(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => "fine",
    (error: unknown) => (error as HopError).reason,
  );
}
