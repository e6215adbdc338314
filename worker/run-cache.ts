/** The runs that a worker holds on one stream, least recently used first. */

/** What the executor knows of a run that its host holds. */
export interface CachedRun {
  readonly handle: number;
  /** The host's key. */
  readonly key: number;
  /** An activation or query is under way; what comes meanwhile waits. */
  isBusy: boolean;
  /** The server took the run away: what is under way is not answered any more. */
  isDropped: boolean;
  readonly waiting: (() => void)[];
}

export class RunCache {
  private readonly runs = new Map<number, CachedRun>();

  get size(): number {
    return this.runs.size;
  }

  /** The run behind a handle, now the most recently used. */
  use(handle: number): CachedRun | undefined {
    const run = this.runs.get(handle);
    if (run === undefined) return undefined;
    this.runs.delete(handle);
    this.runs.set(handle, run);
    return run;
  }

  add(handle: number, key: number): CachedRun {
    const run: CachedRun = { handle, key, isBusy: false, isDropped: false, waiting: [] };
    this.runs.set(handle, run);
    return run;
  }

  remove(handle: number): CachedRun | undefined {
    const run = this.runs.get(handle);
    this.runs.delete(handle);
    return run;
  }

  /** Removes and returns the run that was idle longest, where there is one. */
  evict(): CachedRun | undefined {
    for (const run of this.runs.values()) {
      if (run.isBusy) continue;
      this.runs.delete(run.handle);
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
