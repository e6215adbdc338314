/**
 * Connected workers: what each offers and what it holds.
 *
 * Invariant: `tasks.size` never exceeds `activitySlots` by a task that Core gave out.
 */
import type { SessionId } from "#core/base";
import type { Hello } from "#proto";

export interface Session<Held> {
  readonly id: SessionId;
  readonly workerId: string;
  /** Empty = every namespace. */
  readonly namespace: string;
  readonly runsWorkflows: boolean;
  readonly activities: ReadonlySet<string>;
  readonly activitySlots: number;
  draining: boolean;
  /** Runs that the worker holds, by handle. */
  readonly runs: Map<number, Held>;
  /** Tasks it executes, by task key. */
  readonly tasks: Set<string>;
  nextHandle: number;
  nextTask: number;
}

export class WorkerPool<Held> {
  readonly sessions = new Map<SessionId, Session<Held>>();
  private readonly offering = new Map<string, Session<Held>[]>();

  join(id: SessionId, hello: Hello): Session<Held> {
    const session: Session<Held> = {
      id,
      workerId: hello.workerId,
      namespace: hello.namespace,
      runsWorkflows: hello.modes.includes("v8"),
      activities: new Set(hello.activities),
      activitySlots: hello.activitySlots,
      draining: false,
      runs: new Map(),
      tasks: new Set(),
      nextHandle: 1,
      nextTask: 1,
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
      if (s.draining || s.tasks.size >= s.activitySlots || !serves(s, namespace)) continue;
      if (best === undefined || s.tasks.size < best.tasks.size) best = s;
    }
    return best;
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
      if (best === undefined || s.runs.size < best.runs.size) best = s;
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
