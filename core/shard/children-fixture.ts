/** What the logs of shards tell of children: each start taken once, ends told as they were, and none left behind by its parent. */
import { expect } from "bun:test";
import type { Prng } from "#core/base";
import { contentions, decodeBody, isTerminal, type Run, type RunEvent } from "#core/run";
import type { CommandInit, ParentClosePolicy } from "#proto";
import { CommandKind, decodeEvent, decodeRecord, type Event, EventKind, fromBytes, MessageKind, ParentClosePolicy as Policy } from "#proto";
import { takenIn } from "../../tests/taken-message.ts";

interface Spawn {
  readonly to: string;
  readonly type: string;
  readonly policy: number;
  /** How often its start was taken, and how. */
  readonly taken: string[];
  ended: string | undefined;
}

interface Generation {
  readonly startedBy: string;
  /** As the event and, of a result, its text. */
  end: string | undefined;
  cancelRequested: boolean;
}

export class ChildStory {
  readonly counts = { spawned: 0, started: 0, queued: 0, attached: 0, refused: 0, told: 0, closed: 0, cancelled: 0 };
  /** By parent's partition, generation and operation. */
  private readonly spawns = new Map<string, Spawn>();
  private readonly numbers = new Map<string, string>();
  /** By partition and number. */
  private readonly generations = new Map<string, Generation>();
  private readonly newest = new Map<string, number>();
  private readonly told: { readonly spawn: string; readonly of: string; readonly how: string }[] = [];

  read(records: readonly Uint8Array[]): void {
    for (const body of records) {
      const record = fromBytes(decodeRecord, body);
      for (const bytes of record.event) {
        const event = fromBytes(decodeEvent, bytes);
        const read = decodeBody(event.kind, event.payload);
        if (read !== undefined) this.event(event, read);
      }
      for (const { sender, generation, op, kind, refusal } of record.taken) {
        if (kind !== MessageKind.start) continue;
        if (refusal === "") this.counts.attached++;
        else this.counts.refused++;
        this.takes.push([`${sender} ${generation} ${op}`, refusal === "" ? "attached" : refusal]);
      }
    }
  }

  private readonly takes: [string, string][] = [];

  private event({ partition, identity }: Event, event: RunEvent): void {
    const generation = this.newest.get(partition) ?? 0;
    const current = this.generations.get(`${partition} ${generation}`);
    const asker = takenIn(event);
    if (asker !== undefined) expect([event.kind, identity?.issuer, `run/${identity?.subject}`]).toEqual([event.kind, "run", asker.from]);
    switch (event.kind) {
      case EventKind.runStarted: {
        const { startedBy, ticket } = event.body;
        const by = startedBy === undefined ? "" : `${startedBy.partition} ${startedBy.generation} ${startedBy.op}`;
        this.newest.set(partition, event.body.generation);
        this.generations.set(`${partition} ${event.body.generation}`, { startedBy: by, end: undefined, cancelRequested: false });
        if (by !== "" && ticket === 0) this.takes.push([by, "started"]);
        return;
      }
      case EventKind.startQueued: {
        const { startedBy } = event.body;
        if (startedBy !== undefined) this.takes.push([`${startedBy.partition} ${startedBy.generation} ${startedBy.op}`, "queued"]);
        return;
      }
      case EventKind.childSpawned: {
        const { op, to, start, closePolicy: policy, number } = event.body;
        const key = `${partition} ${generation} ${op}`;
        this.spawns.set(key, { to: `run/${to}`, type: start?.type ?? "", policy, taken: [], ended: undefined });
        this.numbers.set(`${partition} run/${to} ${number}`, key);
        return;
      }
      case EventKind.childEnded: {
        const { op, from, generation: of, failure, result } = event.body;
        const spawn = `${partition} ${generation} ${op}`;
        this.told.push({ spawn, of: of === 0 ? "" : `${from} ${of}`, how: failure?.type ?? textOf(result) });
        return;
      }
      case EventKind.cancelRequested:
        if (current !== undefined) current.cancelRequested = true;
        this.counts.cancelled += asker === undefined ? 0 : 1;
        return;
      case EventKind.runTerminated:
        // Nobody but its own parent ends it, and that has ended itself.
        if (asker !== undefined) {
          this.counts.closed++;
          expect(current?.startedBy.split(" ")[0]).toBe(asker.from);
        }
        break;
      default:
        break;
    }
    if (isTerminal(event.kind) && current !== undefined)
      current.end = event.kind === EventKind.runCompleted ? textOf(event.body.result) : "TerminatedError";
  }

  /** Once nothing is under way any more. */
  check(): void {
    for (const [key, how] of this.takes) {
      const spawn = this.spawns.get(key);
      expect([key, spawn === undefined]).toEqual([key, false]);
      spawn?.taken.push(how);
    }
    for (const [key, { taken }] of this.spawns) {
      expect([key, taken.length]).toEqual([key, 1]);
      this.counts.spawned++;
      if (taken[0] === "started") this.counts.started++;
      if (taken[0] === "queued") this.counts.queued++;
    }
    for (const { spawn, of, how } of this.told) {
      expect(this.spawns.has(spawn)).toBe(true);
      if (of !== "") expect([of, how]).toEqual([of, this.generations.get(of)?.end ?? "it never ended"]);
      this.counts.told++;
    }
    for (const [name, { startedBy, end, cancelRequested }] of this.generations) {
      if (startedBy === "") continue;
      const spawn = this.spawns.get(startedBy);
      const [partition, generation] = startedBy.split(" ") as [string, string];
      const parentEnd = this.generations.get(`${partition} ${generation}`)?.end;
      expect([name, spawn?.to]).toEqual([name, name.split(" ")[0]]);
      if (parentEnd === undefined) continue;
      // None is left running behind its parent, but by its parent's wish.
      if (spawn?.policy === Policy.terminate) expect([name, end === undefined]).toEqual([name, false]);
      if (spawn?.policy === Policy.cancel) expect([name, end !== undefined || cancelRequested]).toEqual([name, true]);
    }
  }
}

/** An operation that spawns a child, or asks one to cancel, or signals it. */
export function drawChildCommand(
  prng: Prng,
  run: Run,
  { op, names }: { readonly op: number; readonly names: readonly string[] },
): CommandInit | undefined {
  const children = [...run.pending.values()].filter(({ kind }) => kind === EventKind.childSpawned);
  const child = children[prng.below(children.length + 1)];
  if (child !== undefined && prng.chance(0.5))
    return prng.chance(0.5)
      ? { kind: CommandKind.cancelRun, op, to: child.to, child: child.op, reason: "not wanted" }
      : {
          kind: CommandKind.sendSignal,
          op,
          to: child.to,
          child: child.op,
          name: "s",
          payload: { data: new TextEncoder().encode(`to ${child.op}`) },
        };
  const to = names[prng.below(names.length)] as string;
  if (to === run.run) return undefined;
  const contention = contentions[prng.below(contentions.length)] as string;
  const overrideReason = contention === "supersede" ? "a newer one" : "";
  const budgetMs = contention === "queue" && prng.chance(0.3) ? 1000 + prng.below(10_000) : 0;
  const closePolicy = (prng.below(4) as ParentClosePolicy | 0) || 0;
  return { kind: CommandKind.spawn, op, to, name: "t", start: { contention, overrideReason, budgetMs }, closePolicy, ownCode: true };
}

const textOf = (value: { data: Uint8Array } | undefined) => new TextDecoder().decode(value?.data);
