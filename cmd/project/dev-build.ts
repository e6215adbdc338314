/**
 * Keeps a development server's deployments at the newest code: bundles the workflow files,
 * deploys what changed, and lets runs that are blocked at a fault of older code go on with it.
 *
 * Code that can't be bundled is reported and the code before it stays.
 */
import { toHex } from "#core/base";
import { RunStatus } from "#proto";
import { CommandError } from "../failure.ts";
import { allRuns } from "../pages.ts";
import type { Remote } from "../remote.ts";
import { bundleFile, checkTypes, type FileBundle } from "./bundles.ts";

/** What `update` did, for people. */
export interface DevNews {
  deployed(bundle: FileBundle, version: number): void;
  failed(error: Error): void;
  /** A file that could not be built is as it was deployed before. */
  mended(file: string): void;
  resumed(run: string): void;
  /** A run was resumed and stopped again at once. */
  blockedAgain(run: string): void;
}

/** A resumed run that blocks at once has done so by then. */
const settleMs = 500;

export class DevBuild {
  readonly #remote: Remote;
  readonly #namespace: string;
  readonly #news: DevNews;
  /** What is deployed, by file. */
  readonly #current = new Map<string, FileBundle>();
  readonly #broken = new Set<string>();

  constructor(parts: { readonly remote: Remote; readonly namespace: string; readonly news: DevNews }) {
    this.#remote = parts.remote;
    this.#namespace = parts.namespace;
    this.#news = parts.news;
  }

  /** Workflow types that are deployed. */
  get types(): string[] {
    return [...this.#current.values()].flatMap((bundle) => [...bundle.workflows]).sort();
  }

  /** Files that could not be built as they are now. */
  get broken(): string[] {
    return [...this.#broken].sort();
  }

  /** Brings the deployments up to the files as they are now. */
  async update(files: readonly string[]): Promise<void> {
    for (const file of this.#current.keys()) if (!files.includes(file)) this.#current.delete(file);
    for (const file of this.#broken) if (!files.includes(file)) this.#broken.delete(file);
    for (const file of files) {
      try {
        await this.#updateOne(file);
      } catch (error) {
        if (!(error instanceof CommandError)) throw error;
        this.#broken.add(file);
        this.#news.failed(error);
      }
    }
  }

  async #updateOne(file: string): Promise<void> {
    const bundle = await bundleFile(file);
    if (this.#current.get(file)?.hash === bundle.hash) {
      if (this.#broken.delete(file)) this.#news.mended(file);
      return;
    }
    checkTypes([...[...this.#current.values()].filter((other) => other.file !== file), bundle]);
    const { version } = await this.#remote.deploy({ namespace: this.#namespace, code: bundle.bytes, types: [...bundle.workflows] });
    this.#current.set(file, bundle);
    this.#broken.delete(file);
    this.#news.deployed(bundle, version);
    for (const type of bundle.workflows) await this.#report(await this.#resumeBlocked(type, bundle.hash));
  }

  /** Resumes the runs of a type that are blocked on other code than the newest: the same code would stop where it did. */
  async #resumeBlocked(type: string, newest: string): Promise<string[]> {
    const resumed: string[] = [];
    for (const { run, bundle } of await allRuns(this.#remote, { namespace: this.#namespace, status: RunStatus.blocked, type })) {
      if (toHex(bundle) === newest) continue;
      try {
        await this.#remote.resume({ run, newest: true });
        resumed.push(run);
      } catch (error) {
        this.#news.failed(new Error(`Cannot resume ${run} on the new code of ${type}: ${(error as Error).message}`, { cause: error }));
      }
    }
    return resumed;
  }

  /** Says of resumed runs whether they went on. */
  async #report(runs: readonly string[]): Promise<void> {
    if (runs.length === 0) return;
    await Bun.sleep(settleMs);
    for (const run of runs) {
      const { summary } = await this.#remote.describe(run);
      if (summary?.status === RunStatus.blocked) this.#news.blockedAgain(run);
      else this.#news.resumed(run);
    }
  }
}
