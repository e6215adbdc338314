/**
 * Keeps a development server's deployments at the newest code: bundles the workflow files,
 * deploys what changed, and lets runs that are blocked at a fault of their code go on with it.
 *
 * Code that can't be bundled is reported and the code before it stays.
 */
import { RunStatus } from "#proto";
import { CommandError } from "../failure.ts";
import type { Remote } from "../remote.ts";
import { bundleFile, checkTypes, type FileBundle } from "./bundles.ts";

/** What `update` did, for people. */
export interface DevNews {
  deployed(bundle: FileBundle, version: number): void;
  failed(error: Error): void;
  resumed(run: string): void;
}

const pageSize = 1000;

export class DevBuild {
  readonly #remote: Remote;
  readonly #namespace: string;
  readonly #news: DevNews;
  /** What is deployed, by file. */
  readonly #current = new Map<string, FileBundle>();

  constructor(parts: { readonly remote: Remote; readonly namespace: string; readonly news: DevNews }) {
    this.#remote = parts.remote;
    this.#namespace = parts.namespace;
    this.#news = parts.news;
  }

  /** Workflow types that are deployed. */
  get types(): string[] {
    return [...this.#current.values()].flatMap((bundle) => [...bundle.workflows]).sort();
  }

  /** Brings the deployments up to the files as they are now. */
  async update(files: readonly string[]): Promise<void> {
    for (const file of this.#current.keys()) if (!files.includes(file)) this.#current.delete(file);
    for (const file of files) {
      try {
        await this.#updateOne(file);
      } catch (error) {
        if (!(error instanceof CommandError)) throw error;
        this.#news.failed(error);
      }
    }
  }

  async #updateOne(file: string): Promise<void> {
    const bundle = await bundleFile(file);
    if (this.#current.get(file)?.hash === bundle.hash) return;
    checkTypes([...[...this.#current.values()].filter((other) => other.file !== file), bundle]);
    const { version } = await this.#remote.deploy({ namespace: this.#namespace, code: bundle.bytes, types: [...bundle.workflows] });
    this.#current.set(file, bundle);
    this.#news.deployed(bundle, version);
    for (const type of bundle.workflows) await this.#resumeBlocked(type);
  }

  async #resumeBlocked(type: string): Promise<void> {
    let pageToken = "";
    do {
      const page = await this.#remote.list({ namespace: this.#namespace, status: RunStatus.blocked, type, limit: pageSize, pageToken });
      for (const { run } of page.run) {
        try {
          await this.#remote.resume({ run, newest: true });
          this.#news.resumed(run);
        } catch (error) {
          this.#news.failed(new Error(`Cannot resume ${run} on the new code of ${type}: ${(error as Error).message}`, { cause: error }));
        }
      }
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }
}
