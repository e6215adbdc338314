/**
 * What must hold of idempotency keys, told from events alone: who claims a key is granted it in turn,
 * one operation executes its activity at a time, what it came to is kept for its time, and everybody
 * who claimed it meanwhile is told that and nothing else.
 */
import { KeyOutcome, EventKind as Kind } from "#proto";
import type { PartitionJournal } from "../journal.ts";
import type { JournalEvent } from "../model.ts";
import { claim } from "../violation.ts";

const rule = "keyExecutedOnce";

interface Key {
  /** Who holds it, then those who wait. */
  line: string[];
  settled: Settled | undefined;
  /** How it was executed ever. */
  readonly past: Settled[];
}

interface Settled {
  readonly by: string;
  readonly result: string;
  readonly forgetAtMs: number;
}

interface Claiming {
  readonly from: string;
  readonly generation: number;
  readonly op: number;
}

const nameOf = ({ from, generation, op }: Claiming) => `${from}#${generation}.${op}`;

export class Keys {
  /** How often things happened. */
  readonly counts = { executed: 0, told: 0, forgotten: 0 };
  private readonly keys = new Map<string, Key>();
  /** What operations came to that a key granted, by their names. */
  private readonly executed = new Map<string, string>();

  event(at: PartitionJournal, e: JournalEvent): void {
    const { event, partition } = e;
    const name = (op: number) => nameOf({ from: partition, generation: at.model.generation, op });
    switch (event.kind) {
      case Kind.activityGranted:
        return this.isHolder(e, event.body.from, name(event.body.op));
      case Kind.activityCompleted: {
        const { op, told, from, result, by } = event.body;
        if (by !== undefined)
          return this.told(e, from, { by: nameOf({ from: by.partition, generation: by.generation, op: by.op }), result: textOf(result) });
        if (told === 0) return;
        this.isHolder(e, keyOf(at, op), name(op));
        this.executed.set(name(op), textOf(result));
        return;
      }
      default:
        if (partition.startsWith("key/")) this.change(e, this.of(partition));
    }
  }

  private of(partition: string): Key {
    const known = this.keys.get(partition) ?? { line: [], settled: undefined, past: [] };
    this.keys.set(partition, known);
    return known;
  }

  /** Only who was granted the key, and did not release it, executes. */
  private isHolder(e: JournalEvent, partition: string, name: string): void {
    const { line, settled } = this.of(partition);
    claim(
      rule,
      line[0] === name && settled === undefined,
      () => `${e.partition} seq ${e.seq} of kind ${e.kind} is of ${name}, ${partition} is held by ${line[0]}, executed by ${settled?.by}`,
    );
  }

  private told(e: JournalEvent, partition: string, { by, result }: { readonly by: string; readonly result: string }): void {
    const isSo = this.of(partition).past.some((one) => one.by === by && one.result === result);
    claim(rule, isSo, () => `${e.partition} seq ${e.seq} is told that ${by} executed ${partition} to ${result}: the key does not say so`);
    this.counts.told++;
  }

  private change(e: JournalEvent, key: Key): void {
    const { event, partition } = e;
    switch (event.kind) {
      case Kind.keyClaimed: {
        const { outcome } = event.body;
        const want = key.settled !== undefined ? KeyOutcome.settled : key.line.length > 0 ? KeyOutcome.waits : KeyOutcome.granted;
        claim(rule, outcome === want, () => `${partition} seq ${e.seq} is claimed with outcome ${outcome}, want ${want}`);
        if (outcome !== KeyOutcome.settled) key.line.push(nameOf(event.body));
        return;
      }
      case Kind.keySettled: {
        const by = nameOf(event.body);
        const result = textOf(event.body.result);
        this.isHolder(e, partition, by);
        claim(rule, this.executed.get(by) === result, () => `${partition} has ${result} of ${by}, which came to ${this.executed.get(by)}`);
        key.settled = { by, result, forgetAtMs: e.timeMs + event.body.keepMs };
        key.past.push(key.settled);
        key.line = [];
        this.counts.executed++;
        return;
      }
      case Kind.keyReleased: {
        const name = nameOf(event.body);
        claim(rule, key.line.includes(name), () => `${partition} seq ${e.seq} is released by ${name}, which has no part in it`);
        key.line = key.line.filter((one) => one !== name);
        return;
      }
      case Kind.keyForgotten: {
        const due = key.settled?.forgetAtMs ?? Number.POSITIVE_INFINITY;
        claim(rule, e.timeMs >= due, () => `${partition} is forgotten at ${e.timeMs}, its result is kept until ${due}`);
        key.settled = undefined;
        this.counts.forgotten++;
        return;
      }
      default:
        claim(rule, false, () => `${partition} seq ${e.seq} is of kind ${e.kind}, which is no key's`);
    }
  }

  /** At the end nothing is live: no key is held, and none is waited for. */
  checkEnd(): void {
    for (const [partition, { line }] of this.keys)
      claim("keysReleased", line.length === 0, () => `${partition} is held for ever by ${line.join(", ")}`);
  }
}

function keyOf(at: PartitionJournal, op: number): string {
  const opened = at.model.ops.get(op)?.opened.event;
  return opened?.kind === Kind.activityScheduled ? (opened.body.claim?.to ?? "") : "";
}

const textOf = (payload: { readonly data: Uint8Array } | undefined) => new TextDecoder().decode(payload?.data);
