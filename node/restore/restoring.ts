/** A restore as it is asked for and followed: which cluster, told step by step, given up when nobody listens any more. */
import { HopError } from "#core/base";
import type { ProgressInit } from "#proto";
import type { ObjectStore } from "#store";
import { isClusterId, type NodeIdentity } from "../identity.ts";
import { clustersIn, type RestoreParts, restoreCluster } from "./restore.ts";

export interface RestoreWanted {
  /** As it was asked for; empty = the node's own. */
  readonly objectStore: string;
  /** Empty = the only one that is there. */
  readonly cluster: string;
}

/** Object storage as the node was told of it; undefined where it was told of none. */
export interface OwnObjects {
  readonly url: string | undefined;
  readonly objects: ObjectStore | undefined;
}

/** Throws `HopError` BAD_REQUEST where the node can't restore from there. */
export function objectsFor({ objectStore }: RestoreWanted, { url, objects }: OwnObjects): ObjectStore {
  const refuse = (why: string) => new HopError("BAD_REQUEST", `Cannot restore a cluster: ${why}`);
  if (objects === undefined || url === undefined)
    throw refuse("this node has no object storage; start it with --object-store, on an empty data folder");
  if (objectStore !== "" && withoutSlash(objectStore) !== withoutSlash(url))
    throw refuse(`this node was started with --object-store ${url}, and is to restore from ${objectStore}; want the same`);
  return objects;
}

const withoutSlash = (url: string) => url.replace(/\/+$/, "");

/** Returns whom the node's folder is of then. Leaving it early gives the restore up. */
export async function* restoring(
  parts: Omit<RestoreParts, "cluster" | "tell" | "signal">,
  wanted: RestoreWanted,
): AsyncGenerator<ProgressInit, NodeIdentity> {
  const cluster = await clusterWanted(parts.objects, wanted.cluster, "restore");
  yield { text: `Restoring ${cluster} from ${parts.objects.url}` };
  const steps = new Steps();
  const gone = new AbortController();
  const restored = restoreCluster({ ...parts, cluster, tell: (...step) => steps.add(...step), signal: gone.signal });
  void restored.then(
    () => steps.end(),
    () => steps.end(),
  );
  try {
    for (let step = await steps.next(); step !== undefined; step = await steps.next()) yield step;
    return await restored;
  } finally {
    gone.abort(new HopError("STORE_UNAVAILABLE", "The restore was given up: nobody listens to it any more"));
    await restored.catch(() => {});
  }
}

/** Throws `HopError` BAD_REQUEST where it is not said which one, or there is no such. */
export async function clusterWanted(objects: ObjectStore, wanted: string, doing: string): Promise<string> {
  if (wanted !== "" && !isClusterId(wanted))
    throw new HopError("BAD_REQUEST", `Cannot ${doing} of cluster ${JSON.stringify(wanted)}: want hop_ and 16 hex digits`);
  if (wanted !== "") return wanted;
  const found = await clustersIn(objects);
  const [only] = found;
  if (only !== undefined && found.length === 1) return only;
  const what =
    only === undefined ? "there is no cluster" : `there are ${found.length} clusters (${found.join(", ")}): name one with --cluster`;
  throw new HopError("BAD_REQUEST", `Cannot ${doing} from ${objects.url}: ${what}`);
}

/** Steps that wait to be told: each line, and of what only counts the newest. */
class Steps {
  private waiting: ProgressInit[] = [];
  private isOver = false;
  private wake = () => {};

  add(text: string, done: number, total: number): void {
    const last = this.waiting.at(-1);
    if (total > 0 && last?.text === text) this.waiting.pop();
    this.waiting.push({ text, done, total });
    this.wake();
  }

  end(): void {
    this.isOver = true;
    this.wake();
  }

  async next(): Promise<ProgressInit | undefined> {
    while (this.waiting.length === 0 && !this.isOver)
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    return this.waiting.shift();
  }
}
