/** What the logs of shards tell of messages: numbered without a gap, taken as they were sent, and answered as runs ended. */
import { expect } from "bun:test";
import type { Partition } from "#core/base";
import { decodeBody } from "#core/run";
import { decodeEvent, decodeRecord, EventKind, fromBytes } from "#proto";
import { takenIn } from "../../tests/taken-message.ts";

export class MessageStory {
  readonly counts = { signals: 0, refused: 0, results: 0, forgotten: 0 };
  /** By sender, receiver and number: what it carried, where it was a signal. */
  private readonly sent = new Map<string, string>();
  private readonly settled = new Map<string, string>();
  private readonly received = new Map<string, string>();
  private readonly refusals = new Set<string>();
  private readonly taken = new Map<string, number>();
  private readonly answered = new Set<string>();
  private readonly results = new Map<string, string>();
  private readonly told: [string, string][] = [];
  private readonly generations = new Map<string, number>();
  private readonly ops = new Map<string, string>();

  lastTaken(from: Partition, to: string): number {
    return this.taken.get(`${from} ${to}`) ?? 0;
  }

  read(records: readonly Uint8Array[]): void {
    for (const body of records) {
      const record = fromBytes(decodeRecord, body);
      const numbers: [string, number][] = [];
      for (const bytes of record.event) this.event(fromBytes(decodeEvent, bytes), numbers);
      for (const { sender, partition, number, refusal } of record.taken) {
        numbers.push([`${sender} ${partition}`, number]);
        if (refusal !== "") this.refusals.add(`${sender} ${partition} ${number}`);
      }
      this.counts.forgotten += record.forgotten.length;
      for (const [pair, number] of numbers.sort((a, b) => a[1] - b[1])) {
        expect([pair, number]).toEqual([pair, (this.taken.get(pair) ?? 0) + 1]);
        this.taken.set(pair, number);
      }
    }
  }

  private event(
    { partition, kind, payload: bytes }: { partition: string; kind: number; payload: Uint8Array },
    numbers: [string, number][],
  ): void {
    const event = decodeBody(kind, bytes);
    if (event === undefined) return;
    const generation = this.generations.get(partition) ?? 0;
    const asker = takenIn(event);
    if (asker !== undefined) numbers.push([`${asker.from} ${partition}`, asker.number]);
    const opKey = (op: number) => `${partition} ${generation} ${op}`;
    switch (event.kind) {
      case EventKind.runStarted:
        this.generations.set(partition, event.body.generation);
        break;
      case EventKind.signalSent: {
        const pair = `${partition} run/${event.body.to} ${event.body.number}`;
        this.sent.set(pair, textOf(event.body.payload));
        this.ops.set(opKey(event.body.op), pair);
        break;
      }
      case EventKind.signalSettled:
        this.settled.set(this.ops.get(opKey(event.body.op)) ?? "", event.body.failure?.type ?? "ok");
        break;
      case EventKind.signalQueued:
        if (event.body.number > 0) this.received.set(`${event.body.from} ${partition} ${event.body.number}`, textOf(event.body.payload));
        break;
      case EventKind.signalReceived:
        if (event.body.number === 0) break;
        this.received.set(`${event.body.from} ${partition} ${event.body.number}`, textOf(event.body.payload));
        break;
      case EventKind.resultReceived: {
        const { op, from, failure, result, generation: of } = event.body;
        expect(this.answered.has(opKey(op))).toBe(false);
        this.answered.add(opKey(op));
        if (of > 0) this.told.push([`${from} ${of}`, failure?.type ?? textOf(result)]);
        break;
      }
      case EventKind.runCompleted:
        this.results.set(`${partition} ${generation}`, textOf(event.body.result));
        break;
      case EventKind.runTerminated:
        this.results.set(`${partition} ${generation}`, "TerminatedError");
        break;
      default:
        break;
    }
  }

  check(): void {
    for (const [pair, value] of this.sent) {
      const received = this.received.get(pair);
      expect([pair, received ?? this.refusals.has(pair)]).toEqual([pair, received === undefined ? true : value]);
      const settled = this.settled.get(pair);
      if (settled !== undefined) expect([pair, settled === "ok"]).toEqual([pair, received !== undefined]);
    }
    for (const pair of this.received.keys()) expect(this.sent.has(pair)).toBe(true);
    for (const [of, value] of this.told) expect([of, value]).toEqual([of, this.results.get(of) ?? "it never ended"]);
    this.counts.signals = this.received.size;
    this.counts.refused = this.refusals.size;
    this.counts.results = this.told.length;
  }
}

const textOf = (value: { data: Uint8Array } | undefined) => new TextDecoder().decode(value?.data);
