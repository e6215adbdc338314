/** What the logs of shards tell of idempotency keys: one execution each, whose result everybody has who claimed it. */
import { expect } from "bun:test";
import type { Partition, Prng } from "#core/base";
import { decodeBody, type RunEvent } from "#core/run";
import { type CommandInit, CommandKind, decodeEvent, decodeRecord, EventKind, fromBytes, KeyOutcome } from "#proto";

export const keyNames = ["k0", "k1", "k2", "k3", "k4", "k5"];
/** Their partitions, in the namespace of the fixture. */
export const keyPartitions = keyNames.map((name) => `key/test:a:${name}` as Partition);

/** An activity with a key, mostly with the input that all have. */
export function drawKeyedCommand(prng: Prng, op: number): CommandInit {
  const idempotencyKey = keyNames[prng.below(keyNames.length)] as string;
  const payload = { data: new TextEncoder().encode(prng.chance(0.05) ? "other" : "same") };
  return { kind: CommandKind.activity, op, name: "a", payload, options: { idempotencyKey } };
}

interface Told {
  readonly key: string;
  readonly by: string;
  readonly result: string;
}

export class KeyStory {
  readonly counts = { executed: 0, told: 0, waited: 0, released: 0, refused: 0 };
  /** Key of an operation, by its run, generation and number. */
  private readonly keyed = new Map<string, string>();
  private readonly executed: Told[] = [];
  private readonly told: Told[] = [];
  private readonly generations = new Map<string, number>();
  /** Who holds a key, then those who wait. */
  private readonly lines = new Map<string, readonly string[]>();
  /** How the key was executed. */
  private readonly settled = new Map<string, Told>();

  read(records: readonly Uint8Array[]): void {
    for (const body of records) {
      for (const bytes of fromBytes(decodeRecord, body).event) {
        const { partition, kind, payload } = fromBytes(decodeEvent, bytes);
        const event = decodeBody(kind, payload);
        if (event !== undefined) this.event(partition, event);
      }
    }
  }

  private event(partition: string, event: RunEvent): void {
    const of = (op: number) => `${partition} ${this.generations.get(partition) ?? 0} ${op}`;
    switch (event.kind) {
      case EventKind.runStarted:
        this.generations.set(partition, event.body.generation);
        return;
      case EventKind.activityScheduled:
        if (event.body.claim !== undefined) this.keyed.set(of(event.body.op), event.body.claim.to);
        return;
      case EventKind.activityFailed:
        if (event.body.failure?.type === "IdempotencyKeyReusedError") this.counts.refused++;
        return;
      case EventKind.activityCompleted: {
        const { op, result, by, told, from } = event.body;
        const one = { key: this.keyed.get(of(op)) ?? "", result: textOf(result) };
        expect([of(op), told > 0]).toEqual([of(op), from === ""]);
        if (by === undefined) this.executed.push({ ...one, by: of(op) });
        else this.told.push({ ...one, by: `${by.partition} ${by.generation} ${by.op}` });
        return;
      }
      default:
        this.keyEvent(partition, event);
    }
  }

  private keyEvent(key: string, event: RunEvent): void {
    switch (event.kind) {
      case EventKind.keyClaimed: {
        const { from, generation, op, outcome } = event.body;
        const claimant = `${from} ${generation} ${op}`;
        const line = this.lines.get(key) ?? [];
        const want = this.settled.has(key) ? KeyOutcome.settled : line.length === 0 ? KeyOutcome.granted : KeyOutcome.waits;
        expect([key, outcome]).toEqual([key, want]);
        if (outcome !== KeyOutcome.settled) this.lines.set(key, [...line, claimant]);
        if (outcome === KeyOutcome.waits) this.counts.waited++;
        return;
      }
      case EventKind.keySettled: {
        const { from, generation, op, result } = event.body;
        const by = `${from} ${generation} ${op}`;
        expect([key, this.lines.get(key)?.[0], this.settled.has(key)]).toEqual([key, by, false]);
        this.lines.delete(key);
        this.settled.set(key, { key, by, result: textOf(result) });
        return;
      }
      case EventKind.keyReleased: {
        const { from, generation, op } = event.body;
        const line = this.lines.get(key) ?? [];
        const rest = line.filter((one) => one !== `${from} ${generation} ${op}`);
        expect([key, rest.length]).toEqual([key, line.length - 1]);
        this.lines.set(key, rest);
        this.counts.released++;
        return;
      }
      case EventKind.keyForgotten:
        this.settled.delete(key);
        return;
      default:
        return;
    }
  }

  check(): void {
    const byKey = new Map(this.executed.map((one) => [one.key, one]));
    expect(byKey.size).toBe(this.executed.length);
    for (const [key, one] of this.settled) expect([key, byKey.get(key)]).toEqual([key, one]);
    for (const one of this.told) expect(byKey.get(one.key)).toEqual(one);
    this.counts.executed = this.executed.length;
    this.counts.told = this.told.length;
  }
}

const textOf = (value: { data: Uint8Array } | undefined) => new TextDecoder().decode(value?.data);
