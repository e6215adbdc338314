/**
 * Connected workers as one shard sees them: what each offers, and which of its runs it holds. What
 * a worker can take is shared with the node's other shards.
 */
import type { SessionId, ShardId } from "#core/base";
import type { Hello } from "#proto";
import type { SessionCapacity } from "./session-capacity.ts";

export interface Session<Held> {
  readonly id: SessionId;
  readonly workerId: string;
  /** Empty = every namespace. */
  readonly namespace: string;
  readonly runsWorkflows: boolean;
  readonly activities: ReadonlySet<string>;
  readonly capacity: SessionCapacity;
  draining: boolean;
  /** Runs that the worker holds, by handle. */
  readonly runs: Map<number, Held>;
}

export class WorkerPool<Held> {
  readonly sessions = new Map<SessionId, Session<Held>>();
  private readonly shard: ShardId;
  private readonly offering = new Map<string, Session<Held>[]>();

  constructor(shard: ShardId) {
    this.shard = shard;
  }

  join(id: SessionId, hello: Hello, capacity: SessionCapacity): Session<Held> {
    const session: Session<Held> = {
      id,
      workerId: hello.workerId,
      namespace: hello.namespace,
      runsWorkflows: hello.modes.includes("v8"),
      activities: new Set(hello.activities),
      capacity,
      draining: false,
      runs: new Map(),
    };
    this.sessions.set(id, session);
    for (const name of session.activities) this.offers(name).push(session);
    return session;
  }

  leave(session: Session<Held>): void {
    this.sessions.delete(session.id);
    for (const name of session.activities) {
      const left = this.offers(name).filter((s) => s !== session);
      if (left.length > 0) this.offering.set(name, left);
      else this.offering.delete(name);
    }
  }

  /** The least loaded session with a free slot for the activity, or undefined. */
  forActivity(namespace: string, name: string): Session<Held> | undefined {
    let best: Session<Held> | undefined;
    for (const s of this.offering.get(name) ?? []) {
      if (s.draining || !s.capacity.hasSlot(this.shard) || !serves(s, namespace)) continue;
      if (best === undefined || s.capacity.tasks.size < best.capacity.tasks.size) best = s;
    }
    return best;
  }

  /** Asks every session that offers the activity for a turn when it has a free slot. */
  awaitSlot(namespace: string, name: string): void {
    for (const s of this.offering.get(name) ?? []) if (!s.draining && serves(s, namespace)) s.capacity.wait(this.shard);
  }

  /** Whether any session offers the activity at all, with or without a free slot. */
  isOffered(namespace: string, name: string): boolean {
    return (this.offering.get(name) ?? []).some((s) => serves(s, namespace));
  }

  /** The session that holds the fewest runs, or undefined. */
  forRun(namespace: string): Session<Held> | undefined {
    let best: Session<Held> | undefined;
    for (const s of this.sessions.values()) {
      if (s.draining || !s.runsWorkflows || !serves(s, namespace)) continue;
      if (best === undefined || s.capacity.runCount < best.capacity.runCount) best = s;
    }
    return best;
  }

  private offers(name: string): Session<Held>[] {
    const found = this.offering.get(name);
    if (found !== undefined) return found;
    const made: Session<Held>[] = [];
    this.offering.set(name, made);
    return made;
  }
}

function serves(session: Session<unknown>, namespace: string): boolean {
  return session.namespace === "" || session.namespace === namespace;
}
