/**
 * Bundles and realms of one V8 process: which code it holds, and which runs live where.
 *
 * A bundle becomes a base (a blob inside the child) once; realms open from it in about two
 * milliseconds. In the dense lane many runs share a realm, until its heap is half full and a
 * further one takes the newcomers; in the isolate lane a realm holds one run.
 */
import type { Artefact } from "../../bundle/artefact.ts";
import { artefactHash, decodeArtefact } from "../../bundle/artefact.ts";
import type { BundleSource } from "../guest-host.ts";
import type { ChildProcess, CommandAnswer } from "./child-process.ts";
import { ChildDiedError } from "./child-process.ts";

/** Code that can't be run, by its own fault. */
export class BrokenBundleError extends Error {
  override name = "BrokenBundleError";
}

export interface V8Limits {
  /** Processor time of one delivery. */
  readonly deliveryMs: number;
  /** Heap of a realm that many runs share, and of one that a run has to itself. */
  readonly denseHeapMb: number;
  readonly isolateHeapMb: number;
  /** Processor time for evaluating a bundle's dependencies, once. */
  readonly loadMs: number;
  /** Bundles kept ready beyond those in use. */
  readonly idleBundles: number;
}

export interface Realm {
  readonly id: number;
  readonly bundle: Bundle;
  readonly dense: boolean;
  readonly runs: Set<number>;
  full: boolean;
}

export interface Bundle {
  readonly hash: string;
  readonly base: number;
  readonly artefact: Artefact;
  /** Open realms of the dense lane that take newcomers, by namespace. */
  readonly dense: Map<string, Realm>;
  realmCount: number;
}

const crashesMax = 2;

export class Bundles {
  readonly #source: BundleSource;
  readonly #limits: V8Limits;
  readonly #kernel: string;
  readonly #ready = new Map<string, Bundle>();
  readonly #loading = new Map<string, Promise<Bundle>>();
  readonly #broken = new Map<string, BrokenBundleError>();
  readonly #realms = new Map<number, Realm>();
  /** How often the process died while it evaluated a bundle. Kept over its deaths. */
  readonly #crashes = new Map<string, number>();
  #child: ChildProcess | undefined;
  #ids = 0;

  constructor(options: { readonly source: BundleSource; readonly limits: V8Limits; readonly kernel: string }) {
    this.#source = options.source;
    this.#limits = options.limits;
    this.#kernel = options.kernel;
  }

  /** A new process begins with nothing. */
  attach(child: ChildProcess | undefined): void {
    this.#child = child;
    this.#ready.clear();
    this.#loading.clear();
    this.#realms.clear();
  }

  ready(hash: string): Bundle | undefined {
    return this.#ready.get(hash);
  }

  realm(id: number): Realm | undefined {
    return this.#realms.get(id);
  }

  /** Rejects with `BrokenBundleError` for code that can't be run, with anything else when it can't be had now. */
  load(hash: string): Promise<Bundle> {
    const broken = this.#broken.get(hash);
    if (broken !== undefined) return Promise.reject(broken);
    let loading = this.#loading.get(hash);
    if (loading === undefined) {
      loading = this.#load(hash).finally(() => this.#loading.delete(hash));
      this.#loading.set(hash, loading);
    }
    return loading;
  }

  async #load(hash: string): Promise<Bundle> {
    const bytes = await this.#source(hash);
    const got = artefactHash(bytes);
    if (got !== hash) throw new Error(`Cannot use bundle ${hash}: its bytes have the hash ${got}`);
    const child = this.#child;
    if (child === undefined) throw new ChildDiedError("The V8 process is not running");
    try {
      const artefact = decodeArtefact(bytes);
      const base = ++this.#ids;
      const answer = await this.#makeBase(child, hash, base, artefact);
      if (answer.error !== undefined) throw new BrokenBundleError(`Cannot use bundle ${hash}: ${answer.error}`);
      const bundle = { hash, base, artefact, dense: new Map<string, Realm>(), realmCount: 0 };
      if (child === this.#child) this.#ready.set(hash, bundle);
      this.#forgetIdle();
      return bundle;
    } catch (error) {
      if (error instanceof ChildDiedError) throw error;
      const broken = error instanceof BrokenBundleError ? error : new BrokenBundleError((error as Error).message, { cause: error });
      this.#broken.set(hash, broken);
      throw broken;
    }
  }

  async #makeBase(child: ChildProcess, hash: string, base: number, artefact: Artefact): Promise<CommandAnswer> {
    try {
      const { denseHeapMb: heapMb, loadMs: limitMs } = this.#limits;
      return await child.command({ name: "base", base, heapMb, limitMs }, [this.#kernel, artefact.dependencies, artefact.main]);
    } catch (error) {
      const crashes = (this.#crashes.get(hash) ?? 0) + 1;
      this.#crashes.set(hash, crashes);
      if (crashes < crashesMax) throw error;
      throw new BrokenBundleError(`Cannot use bundle ${hash}: the V8 process died ${crashes} times evaluating its dependencies`, {
        cause: error,
      });
    }
  }

  /** A realm for a run of this bundle. */
  place(bundle: Bundle, namespace: string, lane: "dense" | "isolate", key: number): Realm {
    let realm = lane === "dense" ? bundle.dense.get(namespace) : undefined;
    if (realm === undefined || realm.full) {
      realm = this.#open(bundle, lane === "dense");
      if (realm.dense) bundle.dense.set(namespace, realm);
    }
    realm.runs.add(key);
    return realm;
  }

  /** The run left its realm. */
  release(realm: Realm, key: number): void {
    realm.runs.delete(key);
    if (realm.runs.size === 0 && (!realm.dense || realm.full)) this.discard(realm);
  }

  /** The realm's heap, as last reported. */
  report(realm: Realm, heapBytes: number): void {
    if (heapBytes > (this.#limits.denseHeapMb << 20) / 2) realm.full = true;
  }

  /** Closes the realm, whatever is in it. */
  discard(realm: Realm): void {
    if (!this.#realms.delete(realm.id)) return;
    realm.bundle.realmCount--;
    for (const [namespace, dense] of realm.bundle.dense) if (dense === realm) realm.bundle.dense.delete(namespace);
    this.#tell({ name: "close", realm: realm.id });
  }

  #open(bundle: Bundle, dense: boolean): Realm {
    const realm: Realm = { id: ++this.#ids, bundle, dense, runs: new Set(), full: false };
    this.#realms.set(realm.id, realm);
    bundle.realmCount++;
    const heapMb = dense ? this.#limits.denseHeapMb : this.#limits.isolateHeapMb;
    this.#tell({ name: "open", realm: realm.id, base: bundle.base, heapMb, limitMs: this.#limits.deliveryMs });
    return realm;
  }

  #forgetIdle(): void {
    const idle = [...this.#ready.values()].filter((bundle) => [...bundle.dense.values()].every((realm) => realm.runs.size === 0));
    for (const bundle of idle.slice(0, Math.max(0, idle.length - this.#limits.idleBundles))) {
      if (bundle.realmCount > bundle.dense.size) continue;
      for (const realm of [...bundle.dense.values()]) this.discard(realm);
      this.#ready.delete(bundle.hash);
      this.#tell({ name: "forget", base: bundle.base });
    }
  }

  /** A command whose failure shows in what follows it: deliveries to a realm that is not open are lost. */
  #tell(command: { readonly name: string; readonly [field: string]: string | number }): void {
    this.#child?.command(command).catch(() => {});
  }
}
