/** A cluster's objects, as commands find them without a server: URL, cluster, manifests. */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type BackedObjectStore, type Manifest, ManifestLog, openObjectStore, type StoredManifest } from "#store";
import { hasher } from "../audit/hasher.ts";
import type { Context } from "../context.ts";
import { CommandError, exit, UsageError } from "../failure.ts";
import { inParallel } from "../parallel.ts";

export interface ColdOptions {
  readonly objectStore?: string;
  readonly cluster?: string;
}

const clusterForm = /^hop_[0-9a-f]{16}$/;
const manifestsAtOnce = 8;

export class ColdPlace implements AsyncDisposable {
  readonly objects: BackedObjectStore;
  readonly cluster: string;
  readonly manifests: ManifestLog;
  /** Where the objects are files. */
  readonly folder: string | undefined;

  private constructor(objects: BackedObjectStore, cluster: string, folder: string | undefined) {
    this.objects = objects;
    this.cluster = cluster;
    this.folder = folder;
    this.manifests = new ManifestLog(objects, cluster, hasher);
  }

  /** Throws where the options name no place, or none with the objects of one cluster. */
  static async open(options: ColdOptions, env: Context["env"]): Promise<ColdPlace> {
    const url = options.objectStore ?? (env.HOP_OBJECT_STORE || undefined);
    if (url === undefined)
      throw new UsageError("Cannot read object storage: it was not named", {
        next: "give --object-store file:///folder or s3://bucket/prefix?endpoint=…, or set HOP_OBJECT_STORE",
      });
    if (options.cluster !== undefined && !clusterForm.test(options.cluster))
      throw new UsageError(
        `Cannot use --cluster ${JSON.stringify(options.cluster)}: want hop_ and 16 hex digits, as \`hop cluster status\` shows it`,
      );
    const folder = folderOf(url);
    const objects = openObjectStore(url, { forReading: true });
    try {
      return new ColdPlace(objects, options.cluster ?? (await onlyCluster(objects)), folder);
    } catch (error) {
      await objects.close();
      throw error;
    }
  }

  /** The newest manifest of each shard that sealed something, retired ones too. */
  async newestManifests(): Promise<Manifest[]> {
    return (await this.newestStored()).map(({ manifest }) => manifest);
  }

  /** The same, as they are stored. */
  async newestStored(): Promise<StoredManifest[]> {
    const shards = await this.manifests.shards();
    const newest = await inParallel(shards, manifestsAtOnce, (shard) => this.manifests.newest(shard));
    const found = newest.filter((stored) => stored !== undefined);
    if (found.length > 0) return found;
    throw new CommandError(exit.notFound, `Cannot read cluster ${this.cluster}: nothing of it is sealed at ${this.objects.url}`, {
      next: "wait for its first segment (see --seal-size and --seal-age of `hop server start`), or name another --cluster",
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.objects.close();
  }
}

function folderOf(url: string): string | undefined {
  if (!URL.canParse(url) || new URL(url).protocol !== "file:" || new URL(url).host !== "") return undefined;
  const folder = fileURLToPath(new URL(url));
  if (existsSync(folder)) return folder;
  throw new CommandError(exit.notFound, `Cannot read ${url}: there is no such folder`, {
    next: "check --object-store and HOP_OBJECT_STORE",
  });
}

async function onlyCluster(objects: BackedObjectStore): Promise<string> {
  const clusters = await clustersIn(objects);
  const [first] = clusters;
  if (first === undefined)
    throw new CommandError(exit.notFound, `Cannot read ${objects.url}: it holds the objects of no cluster`, {
      next: "check --object-store: give it as `hop server start` has it, prefix included",
    });
  if (clusters.length > 1)
    throw new UsageError(`Cannot choose a cluster: ${objects.url} holds those of ${clusters.join(", ")}`, {
      next: "name one with --cluster",
    });
  return first;
}

/** Looks at one key of each cluster, not at all of them. */
async function clustersIn(objects: BackedObjectStore): Promise<string[]> {
  const clusters: string[] = [];
  for (let after = ""; ; ) {
    const key = await firstKey(objects, after);
    if (key === undefined) return clusters;
    const cluster = key.slice(0, key.indexOf("/"));
    if (clusterForm.test(cluster)) clusters.push(cluster);
    // Behind all of its keys: "0" is the character after "/".
    after = `${cluster}0`;
  }
}

async function firstKey(objects: BackedObjectStore, after: string): Promise<string | undefined> {
  for await (const { key } of objects.list("hop_", { after })) return key;
  return undefined;
}
