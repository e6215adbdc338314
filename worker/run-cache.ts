/** The runs that a worker holds on one stream, least recently used first. */

/** Names a run on a stream: shards number their runs each for itself. */
export interface RunHandle {
  readonly shard: number;
  readonly handle: number;
}

/** What the executor knows of a run that its host holds. */
export interface CachedRun extends RunHandle {
  /** The host's key. */
  readonly key: number;
  /** An activation or query is under way; what comes meanwhile waits. */
  isBusy: boolean;
  /** The server took the run away: what is under way is not answered any more. */
  isDropped: boolean;
  readonly waiting: (() => void)[];
}

const handleEnd = 2 ** 32;

/** One number for both parts; shards are numbered as they are made and stay far below 2^21. */
export const handleKey = ({ shard, handle }: RunHandle) => shard * handleEnd + handle;

export class RunCache {
  private readonly runs = new Map<number, CachedRun>();

  get size(): number {
    return this.runs.size;
  }

  /** The run behind a handle, now the most recently used. */
  use(handle: RunHandle): CachedRun | undefined {
    const at = handleKey(handle);
    const run = this.runs.get(at);
    if (run === undefined) return undefined;
    this.runs.delete(at);
    this.runs.set(at, run);
    return run;
  }

  add({ shard, handle }: RunHandle, key: number): CachedRun {
    const run: CachedRun = { shard, handle, key, isBusy: false, isDropped: false, waiting: [] };
    this.runs.set(handleKey(run), run);
    return run;
  }

  remove(handle: RunHandle): CachedRun | undefined {
    const at = handleKey(handle);
    const run = this.runs.get(at);
    this.runs.delete(at);
    return run;
  }

  /** Removes and returns the run that was idle longest, where there is one. */
  evict(): CachedRun | undefined {
    for (const run of this.runs.values()) {
      if (run.isBusy) continue;
      this.runs.delete(handleKey(run));
      return run;
    }
    return undefined;
  }

  /** Removes and returns all. */
  clear(): CachedRun[] {
    const all = [...this.runs.values()];
    this.runs.clear();
    return all;
  }
}
