/** What must hold of runs that runs start: told from events and facts alone. */
import { EventKind as Kind, type Record as LogBody, MessageKind, ParentClosePolicy, type StartedBy } from "#proto";
import type { PartitionJournal } from "../journal.ts";
import { type JournalEvent, terminalKinds } from "../model.ts";
import { claim } from "../violation.ts";

interface Spawn {
  readonly to: string;
  readonly policy: number;
  /** Its start was taken: it began, waits, attached or was refused. */
  takenCount: number;
}

const keyOf = ({ partition, generation, op }: Omit<StartedBy, "number">) => `${partition} ${generation} ${op}`;

/** Others start runs too, and owe them nothing. */
const isRun = (partition: string) => partition.startsWith("run/");

export class Children {
  readonly counts = { spawned: 0 };
  /** By parent, its generation and operation. */
  private readonly spawns = new Map<string, Spawn>();
  /** What parents that ended owe their children, and whether those have it. */
  private readonly closes = new Map<string, boolean>();
  /** Who started the newest run of a partition, and starts that wait, by ticket. */
  private readonly starters = new Map<string, string>();
  private readonly attached = new Set<string>();

  /** `at` is as of before the event. */
  event(at: PartitionJournal, e: JournalEvent): void {
    const { event, partition } = e;
    switch (event.kind) {
      case Kind.childSpawned: {
        if (!isRun(partition)) return;
        const { op, to, closePolicy: policy } = event.body;
        this.spawns.set(keyOf({ partition, generation: at.model.generation, op }), { to: `run/${to}`, policy, takenCount: 0 });
        this.counts.spawned++;
        return;
      }
      case Kind.childStarted:
        if (event.body.attached) this.attached.add(keyOf({ partition, generation: at.model.generation, op: event.body.op }));
        return;
      case Kind.runStarted:
        this.starters.delete(partition);
        return this.begun(e, event.body.startedBy, event.body.ticket > 0);
      case Kind.startQueued:
        return this.begun(e, event.body.startedBy, false);
      case Kind.cancelRequested:
      case Kind.startCancelled:
        if (isRun(event.body.from)) this.closed(e, event.kind === Kind.startCancelled ? event.body.ticket : 0);
        return;
      default:
        if (event.kind === Kind.runTerminated && isRun(event.body.from)) this.closed(e, 0);
        if (terminalKinds.has(event.kind)) this.ended(at, e);
    }
  }

  afterEvents(record: LogBody): void {
    for (const { sender, generation, op, kind } of record.taken) {
      if (!isRun(sender)) continue;
      const key = keyOf({ partition: sender, generation, op });
      if (kind === MessageKind.cancel || kind === MessageKind.terminate) this.close(key);
      if (kind === MessageKind.start) this.take(key, sender);
    }
  }

  /** A start is taken once, of who asked for it, under the name that was asked for. */
  private begun(e: JournalEvent, startedBy: StartedBy | undefined, hasWaited: boolean): void {
    if (startedBy === undefined || !isRun(startedBy.partition)) return;
    const key = keyOf(startedBy);
    claim(
      "childStartedOnce",
      this.spawns.get(key)?.to === e.partition,
      () => `${e.partition} seq ${e.seq} is started by ${key}, which did not ask`,
    );
    const { event } = e;
    this.starters.set(event.kind === Kind.startQueued ? `${e.partition} ${e.seq}` : e.partition, key);
    if (!hasWaited) this.take(key, e.partition);
  }

  private take(key: string, by: string): void {
    const spawn = this.spawns.get(key);
    claim("childStartedOnce", spawn?.takenCount === 0, () => `${by} takes the start of ${key}, which was taken ${spawn?.takenCount} times`);
    spawn.takenCount++;
  }

  /** The run has ended: what its children are owed for that is told by its events alone. */
  private ended(at: PartitionJournal, { partition }: JournalEvent): void {
    const { generation } = at.model;
    for (const o of at.model.ops.values()) {
      const key = keyOf({ partition, generation, op: o.op });
      const policy = this.spawns.get(key)?.policy ?? ParentClosePolicy.abandon;
      if (o.opened.kind !== Kind.childSpawned || o.closedBy !== 0 || policy === ParentClosePolicy.abandon || this.attached.has(key))
        continue;
      this.closes.set(key, false);
    }
  }

  /** Nobody but the run that started it ends it, or asks it to, and that has ended. */
  private closed(e: JournalEvent, ticket: number): void {
    const key = this.starters.get(ticket > 0 ? `${e.partition} ${ticket}` : e.partition);
    const isByParent = key !== undefined && this.closes.has(key) && e.issuer === "run";
    claim("closedByParent", isByParent, () => `${e.partition} seq ${e.seq} of kind ${e.kind} is of ${key}, whose parent goes on`);
    this.close(key);
  }

  private close(key: string): void {
    claim("closedByParent", this.closes.has(key), () => `${key} is to end, but its parent goes on`);
    this.closes.set(key, true);
  }

  /** Something is still on its way. */
  get isOpen(): boolean {
    for (const isTaken of this.closes.values()) if (!isTaken) return true;
    for (const { takenCount } of this.spawns.values()) if (takenCount === 0) return true;
    return false;
  }

  checkEnd(): void {
    for (const [key, isTaken] of this.closes)
      claim("childrenClosed", isTaken, () => `the parent of ${key} has ended, and its child was never told`);
    for (const [key, { takenCount }] of this.spawns)
      claim("childStartedOnce", takenCount === 1, () => `the start of ${key} was taken ${takenCount} times`);
  }
}
