/**
 * What the logs tell of messages between partitions (I17): each is taken once and in order, what
 * its sender counts as taken is committed at the receiver, and what a run is told of another is
 * what that one became.
 */
import { decodeBody } from "#core/run";
import { decodeEvent, fromBytes, EventKind as Kind, type Record as LogBody } from "#proto";
import { takenIn } from "../../taken-message.ts";
import type { PartitionJournal } from "../journal.ts";
import type { JournalEvent } from "../model.ts";
import { claim } from "../violation.ts";

const rule = "messagesOnceInOrder";

interface Sent {
  readonly pair: string;
  readonly number: number;
  readonly text: string;
}

export class Messages {
  /** Highest number taken, by sender and receiver. */
  private readonly taken = new Map<string, number>();
  /** Signals by sender, receiver and number. */
  private readonly sent = new Map<string, Sent>();
  private readonly received = new Map<string, string>();
  private readonly refused = new Set<string>();
  private readonly settledThrough = new Map<string, number>();
  /** How generations ended. */
  private readonly endings = new Map<string, string>();
  /** How often things happened. */
  readonly counts = { signals: 0, refused: 0, results: 0 };

  /** A record does not say in which order its facts and its events were taken. */
  beforeEvents(record: LogBody): void {
    const takes = record.taken.map(({ sender, partition, number, settled }) => ({ sender, partition, number, settled }));
    for (const bytes of record.event) {
      const { partition, kind, payload } = fromBytes(decodeEvent, bytes);
      const event = decodeBody(kind, payload);
      const message = event === undefined ? undefined : takenIn(event);
      if (message === undefined) continue;
      // Of messages for a channel those that came together are one event, of which the last one is said.
      const together = event?.kind === Kind.messagesAppended ? event.body.message.length : 1;
      for (let back = together - 1; back >= 0; back--)
        takes.push({ sender: message.from, partition, number: message.number - back, settled: 0 });
    }
    for (const { sender, partition, number, settled } of takes.sort((a, b) => a.number - b.number))
      this.take(sender, partition, number, settled);
    for (const { sender, partition, number, refusal } of record.taken) {
      if (refusal !== "") {
        this.refused.add(keyOf(sender, partition, number));
        this.counts.refused++;
      }
    }
  }

  /** What a leader found taken was taken: its committed log says so. */
  afterEvents(record: LogBody): void {
    for (const { partition, receiver, through } of record.settled) {
      const pair = pairOf(partition, receiver);
      const taken = this.taken.get(pair) ?? 0;
      claim(
        "ackedMessageIsTaken",
        through <= taken,
        () => `${partition} counts message ${through} to ${receiver} as taken, which has taken ${taken}`,
      );
      this.settledThrough.set(pair, through);
    }
  }

  event(at: PartitionJournal, e: JournalEvent): void {
    const { event, partition } = e;
    switch (event.kind) {
      case Kind.signalSent: {
        const { to, number, payload } = event.body;
        const pair = pairOf(partition, `run/${to}`);
        this.sent.set(`${pair} ${number}`, { pair, number, text: textOf(payload) });
        return;
      }
      case Kind.signalSettled:
        return this.settled(at, e, event.body);
      case Kind.signalReceived: {
        const { from, number, payload } = event.body;
        if (number === 0) return;
        const key = keyOf(from, partition, number);
        const sent = this.sent.get(key);
        claim(
          rule,
          sent?.text === textOf(payload),
          () => `${partition} receives ${textOf(payload)} as message ${number} of ${from}, which sent ${sent?.text}`,
        );
        this.received.set(key, sent.text);
        this.counts.signals++;
        return;
      }
      case Kind.resultReceived:
        return this.result(e, event.body);
      default:
        if (e.kind >= Kind.runCompleted && e.kind <= Kind.runTimedOut)
          this.endings.set(
            `${partition} ${at.model.generation}`,
            `${e.kind} ${event.kind === Kind.runCompleted ? textOf(event.body.result) : ""}`,
          );
    }
  }

  /** What a receiver's leader answers is committed when it leaves. */
  checkAnswer({ from, to }: { readonly from: string; readonly to: string }, { taken }: { readonly taken: number }): void {
    const committed = Math.max(this.taken.get(pairOf(from, to)) ?? 0, this.settledThrough.get(pairOf(from, to)) ?? 0);
    claim("ackedMessageIsTaken", taken <= committed, () => `${to} answers ${from} that it has taken ${taken}, committed is ${committed}`);
  }

  private take(from: string, to: string, number: number, settled: number): void {
    const pair = pairOf(from, to);
    const last = this.taken.get(pair) ?? 0;
    claim(rule, number === Math.max(last, settled) + 1, () => `${to} takes message ${number} of ${from} behind ${last}`);
    this.taken.set(pair, number);
  }

  /** The sender was told that its signal is in the receiver's history, or was refused: it is so. */
  private settled(at: PartitionJournal, e: JournalEvent, body: { op: number; failure: { type: string } | undefined }): void {
    const opened = at.model.ops.get(body.op)?.opened.event;
    if (opened?.kind !== Kind.signalSent) return;
    const key = keyOf(e.partition, `run/${opened.body.to}`, opened.body.number);
    const holds = body.failure === undefined ? this.received.has(key) : this.refused.has(key);
    claim(
      "ackedMessageIsTaken",
      holds,
      () => `${e.partition} is told that message ${key} was ${body.failure?.type ?? "received"}, its receiver's log does not say so`,
    );
  }

  private result(
    e: JournalEvent,
    body: { from: string; number: number; generation: number; status: number; result: { data: Uint8Array } | undefined },
  ): void {
    const { from, generation } = body;
    if (generation === 0) return;
    this.counts.results++;
    const ending = this.endings.get(`${from} ${generation}`);
    const isSame = ending !== undefined && (body.result === undefined || ending.endsWith(textOf(body.result)));
    claim(
      "resultsDelivered",
      isSame,
      () => `${e.partition} is told how ${from}#${generation} ended: ${textOf(body.result)}, its log has ${ending}`,
    );
  }

  /** At the end: every message arrived or was refused, and its sender knows. */
  checkEnd(): void {
    for (const [key, { pair, number, text }] of this.sent) {
      const isThere = this.received.get(key) === text || this.refused.has(key);
      claim("messagesSettled", isThere, () => `message ${key} was never taken; ${this.taken.get(pair) ?? 0} were`);
      const settled = this.settledThrough.get(pair) ?? 0;
      claim("messagesSettled", settled >= number, () => `message ${key} was taken, and its sender knows of ${settled}`);
    }
  }

  /** A few of those, for people. */
  openOnes(): string {
    const open = [...this.sent.values()].filter(({ pair, number }) => (this.settledThrough.get(pair) ?? 0) < number);
    return open
      .slice(0, 3)
      .map(({ pair, number }) => `${pair} ${number}, taken ${this.taken.get(pair) ?? 0}, settled ${this.settledThrough.get(pair) ?? 0}`)
      .join("; ");
  }

  /** Something is still on its way. */
  get isOpen(): boolean {
    for (const [, { pair, number }] of this.sent) if ((this.settledThrough.get(pair) ?? 0) < number) return true;
    return false;
  }
}

const pairOf = (from: string, to: string) => `${from} ${to}`;
const keyOf = (from: string, to: string, number: number) => `${from} ${to} ${number}`;
const textOf = (payload: { readonly data: Uint8Array } | undefined) => new TextDecoder().decode(payload?.data);
