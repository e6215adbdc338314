/** Tasks that wait for a worker: first in, first out for each activity of a namespace. */

/** What waits: an operation of a run, in the attempt and delivery it had when it was queued. */
export interface ReadyTask<Held> {
  readonly holder: Held;
  readonly op: number;
  readonly attempt: number;
  readonly delivery: number;
}

interface Lane<Held> {
  items: ReadyTask<Held>[];
  head: number;
}

export class ReadyQueue<Held> {
  private readonly lanes = new Map<string, Lane<Held>>();
  size = 0;

  push(namespace: string, activity: string, task: ReadyTask<Held>): void {
    const key = laneKey(namespace, activity);
    const lane = this.lanes.get(key);
    if (lane === undefined) this.lanes.set(key, { items: [task], head: 0 });
    else lane.items.push(task);
    this.size++;
  }

  /** Takes the oldest task of one activity. */
  shift(namespace: string, activity: string): ReadyTask<Held> | undefined {
    const key = laneKey(namespace, activity);
    const lane = this.lanes.get(key);
    const task = lane?.items[lane.head];
    if (lane === undefined || task === undefined) return undefined;
    lane.head++;
    this.size--;
    if (lane.head === lane.items.length) this.lanes.delete(key);
    else if (lane.head > 1024 && lane.head * 2 > lane.items.length) {
      lane.items = lane.items.slice(lane.head);
      lane.head = 0;
    }
    return task;
  }

  /** Forgets what is held by those that are gone. */
  remove(isGone: (holder: Held) => boolean): void {
    for (const [key, lane] of this.lanes) {
      const left = lane.items.slice(lane.head).filter(({ holder }) => !isGone(holder));
      this.size -= lane.items.length - lane.head - left.length;
      if (left.length === 0) this.lanes.delete(key);
      else this.lanes.set(key, { items: left, head: 0 });
    }
  }

  /** Namespaces and activities that have something waiting. */
  waiting(): [string, string][] {
    return [...this.lanes.keys()].map((key) => key.split("\n") as [string, string]);
  }
}

const laneKey = (namespace: string, activity: string) => `${namespace}\n${activity}`;
