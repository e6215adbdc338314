/** What runs tell each other, folded: numbers, refusals, results, and what is kept of them. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { limits, noBytes, type Partition, type RunId, runPartition } from "#core/base";
import {
  applyEvent,
  applyForgotten,
  applySettled,
  applyTaken,
  attentionMs,
  blankMessage,
  decideAwaitResult,
  decideSendSignal,
  decideSettled,
  decideTake,
  decideWaitCancelled,
  emptyRun,
  loadRun,
  nextNumber,
  noAsker,
  outgoing,
  type Run,
  type RunEvent,
  saveRun,
  settledThrough,
} from "#core/run";
import {
  decodeRunStarted,
  decodeRunState,
  encodeRunState,
  fromBytes,
  type InboxTaken,
  EventKind as Kind,
  type Message,
  MessageKind,
  RunStatus,
  toBytes,
} from "#proto";

const bundle = new Uint8Array(32).fill(1);
const text = (value: string) => ({ data: new TextEncoder().encode(value), ref: undefined });
const partition = (name: string): Partition => runPartition(`shop:${name}` as RunId);

/** A run to which events are added as its code or others would. */
class Bench {
  readonly run: Run;
  private seq = 0;

  constructor(name: string, generation = 1) {
    this.run = emptyRun(`shop:${name}` as RunId);
    if (generation > 0) this.start();
  }

  add(event: RunEvent): void {
    applyEvent(this.run, event, { seq: this.seq, timeMs: 1_800_000_000_000 + this.seq++ }, new Uint8Array(32));
  }

  start(): void {
    const generation = this.run.generation + 1;
    this.add({
      kind: Kind.runStarted,
      body: { ...fromBytes(decodeRunStarted, noBytes), generation, type: "order", bundle, seed: 7 },
    });
  }

  complete(result: string): void {
    this.add({ kind: Kind.runCompleted, body: { result: text(result) } });
  }

  send(to: string, name: string): number {
    const op = this.run.nextOp;
    this.add(decideSendSignal(this.run, { op, to: `shop:${to}`, name, payload: text(name), child: 0 }));
    return op;
  }

  await(to: string): number {
    const op = this.run.nextOp;
    for (const event of decideAwaitResult(this.run, { op, to: `shop:${to}`, inCall: 0 })) this.add(event);
    return op;
  }

  numbersTo(to: string): number[] {
    return (this.run.outbox.get(partition(to))?.messages ?? []).map(({ number }) => number);
  }

  settle(to: string, through: number): void {
    applySettled(this.run, { partition: "", receiver: partition(to), through });
  }

  /** Takes the message as a shard does. Returns the refusal, "event" or "fact". */
  take(from: string, message: Message): string {
    const decision = decideTake(this.run, partition(from), message);
    if (decision === undefined) return "unknown";
    if ("kind" in decision) {
      this.add(decision);
      return "event";
    }
    applyTaken(this.run, taken(from, message, decision.refusal));
    return decision.refusal ?? "fact";
  }
}

const taken = (from: string, message: Message, refusal?: string): InboxTaken => ({
  partition: "",
  sender: partition(from),
  number: message.number,
  settled: 0,
  refusal: refusal ?? "",
  kind: message.kind,
  op: message.op,
  generation: message.generation,
  of: 0,
  offset: 0,
  count: 0,
  lingerMs: 0,
});

const message = (number: number, kind: MessageKind, part: Partial<Message> = {}): Message => ({
  ...blankMessage,
  number,
  kind,
  op: 1,
  generation: 1,
  ...part,
});

/** All that is under way from one bench to another, as it travels. */
function mail(from: Bench, to: string): Message[] {
  return (from.run.outbox.get(partition(to))?.messages ?? []).map((one) => outgoing(from.run, one));
}

test("messages are numbered by receiver, over all generations, and outlive the run that sent them", () => {
  const a = new Bench("a");
  a.send("b", "s1");
  a.send("c", "s2");
  a.send("b", "s3");
  expect([a.numbersTo("b"), a.numbersTo("c"), a.run.unsettled]).toEqual([[1, 2], [1], 3]);
  a.settle("b", 1);
  expect([a.numbersTo("b"), settledThrough(a.run, partition("b"))]).toEqual([[2], 1]);
  a.complete("done");
  expect([a.numbersTo("b"), attentionMs(a.run)]).toEqual([[2], 0]);
  a.start();
  a.send("b", "s4");
  expect(a.numbersTo("b")).toEqual([2, 3]);
  a.settle("b", 9);
  a.settle("c", 1);
  expect([a.run.outbox.size, a.run.unsettled, nextNumber(a.run, partition("b")), settledThrough(a.run, partition("b"))]).toEqual([
    0, 0, 4, 3,
  ]);
  expect(settledThrough(a.run, partition("never met"))).toBe(0);
});

test("numbers of receivers settled long ago are dropped, and later ones begin above them", () => {
  const a = new Bench("a");
  for (let i = 0; i < 3; i++) a.send("b", `s${i}`);
  a.settle("b", 3);
  for (let i = 0; i < limits.settledReceiversKept; i++) {
    a.send(`r${i}`, "s");
    a.settle(`r${i}`, 1);
  }
  expect(a.run.settledTo.size).toBe(limits.settledReceiversKept);
  expect([nextNumber(a.run, partition("b")), settledThrough(a.run, partition("b"))]).toEqual([4, 3]);
  expect(nextNumber(a.run, partition("r0"))).toBe(2);
  a.send("new", "s");
  expect(a.numbersTo("new")).toEqual([4]);
});

test("a signal is an event of its receiver; a refused one is taken without effect, and remembered", () => {
  const b = new Bench("b");
  expect(b.take("a", message(1, MessageKind.signal, { name: "go" }))).toBe("event");
  expect([[...b.run.unclaimed], b.run.inbox.get(partition("a"))]).toEqual([[["go", 1]], { taken: 1, refused: [] }]);
  b.complete("done");
  expect(b.take("a", message(2, MessageKind.signal, { name: "go" }))).toBe("RUN_CLOSED");
  expect(b.run.inbox.get(partition("a"))).toEqual({ taken: 2, refused: [{ number: 2, reason: "RUN_CLOSED" }] });
  const nobody = new Bench("nobody", 0);
  expect(nobody.take("a", message(1, MessageKind.signal, { name: "go" }))).toBe("RUN_NOT_FOUND");
  expect(nobody.take("a", message(2, MessageKind.wait))).toBe("RUN_NOT_FOUND");
  nobody.start();
  expect(nobody.take("a", message(3, MessageKind.signal, { name: "go" }))).toBe("event");
  expect(nobody.run.inbox.get(partition("a"))?.refused).toHaveLength(2);
  expect(nobody.take("a", message(4, 99 as MessageKind))).toBe("unknown");
});

test("refusals that the sender has recorded are forgotten with the next refusal", () => {
  const b = new Bench("b", 0);
  for (let number = 1; number <= 3; number++)
    applyTaken(b.run, { ...taken("a", message(number, MessageKind.wait), "RUN_NOT_FOUND"), settled: number - 1 });
  expect(b.run.inbox.get(partition("a"))?.refused.map(({ number }) => number)).toEqual([3]);
});

test("a fact that is folded again changes nothing", () => {
  const b = new Bench("b");
  const wait = taken("a", message(1, MessageKind.wait));
  applyTaken(b.run, wait);
  applyTaken(b.run, taken("a", message(2, MessageKind.waitCancelled)));
  applyTaken(b.run, wait);
  expect([b.run.awaiters.size, b.run.inbox.get(partition("a"))?.taken]).toEqual([0, 2]);
  applyForgotten(b.run, { partition: "", sender: partition("a"), taken: 1, timeMs: 0 });
  expect(b.run.inbox.size).toBe(1);
  applyForgotten(b.run, { partition: "", sender: partition("a"), taken: 2, timeMs: 0 });
  expect(b.run.inbox.size).toBe(0);
});

test("a run's end is told to all who wait for it, and kept once until they have it", () => {
  const [a, b, c] = [new Bench("a"), new Bench("b"), new Bench("c")];
  const op = a.await("b");
  expect([b.take("a", mail(a, "b")[0] as Message), b.run.awaiters.size]).toEqual(["fact", 1]);
  c.await("b");
  b.take("c", mail(c, "b")[0] as Message);
  b.complete("done");
  expect([b.run.awaiters.size, b.run.owed.size, b.run.unsettled]).toEqual([0, 1, 2]);
  // The next generation does not change what is owed of the one before.
  b.start();
  const [result] = mail(b, "a") as [Message];
  expect(result).toMatchObject({ number: 1, kind: MessageKind.result, op, of: 1, status: RunStatus.completed, payload: text("done") });
  expect([a.take("b", result), a.run.pending.size]).toEqual(["event", 0]);
  b.settle("a", 1);
  expect(b.run.owed.size).toBe(1);
  b.settle("c", 1);
  expect(b.run.owed.size).toBe(0);
});

test("whoever waits for a run that has ended is told at once", () => {
  const b = new Bench("b");
  b.add({ kind: Kind.runTerminated, body: { reason: "wrong", ...noAsker } });
  expect(b.take("a", message(1, MessageKind.wait, { op: 3, generation: 2 }))).toBe("fact");
  expect(mail(b, "a")[0]).toMatchObject({
    op: 3,
    generation: 2,
    of: 1,
    status: RunStatus.terminated,
    failure: { type: "TerminatedError" },
  });
});

test("a result counts for the operation that waits for it, and for no other", () => {
  const cases: [string, (a: Bench) => void, Partial<Message>, string][] = [
    ["it waits", () => {}, {}, "event"],
    ["it was withdrawn", (a) => a.add(decideWaitCancelled(a.run, a.run.pending.get(1) as never)), {}, "fact"],
    ["another operation", () => {}, { op: 2 }, "fact"],
    ["another generation", () => {}, { generation: 2 }, "fact"],
    ["the run has ended", (a) => a.complete("done"), {}, "fact"],
  ];
  for (const [name, before, part, want] of cases) {
    const a = new Bench("a");
    a.await("b");
    before(a);
    expect([name, a.take("b", message(1, MessageKind.result, part)), a.run.inbox.get(partition("b"))?.taken]).toEqual([name, want, 1]);
  }
  const a = new Bench("a");
  a.await("b");
  expect(a.take("c", message(1, MessageKind.result))).toBe("fact");
});

test("a wait that is withdrawn, or whose run has ended, is taken back at the other run", () => {
  const [a, b] = [new Bench("a"), new Bench("b")];
  a.await("b");
  a.await("b");
  a.add(decideWaitCancelled(a.run, a.run.pending.get(1) as never));
  a.complete("done");
  for (const one of mail(a, "b")) b.take("a", one);
  expect([b.run.awaiters.size, b.run.inbox.get(partition("a"))?.taken]).toEqual([0, 4]);
});

test("what a settled message means to the run's code", () => {
  const a = new Bench("a");
  const op = a.send("b", "go");
  const [first] = mail(a, "b") as [Message];
  expect(decideSettled(a.run, partition("b"), first, undefined)).toEqual({ kind: Kind.signalSettled, body: { op, failure: undefined } });
  expect(decideSettled(a.run, partition("b"), first, "RUN_CLOSED")).toMatchObject({
    body: { failure: { type: "RunClosedError", message: "Cannot signal shop:b: it has ended", nonRetryable: true } },
  });
  expect(decideSettled(a.run, partition("c"), first, undefined)).toBeUndefined();
  a.add({ kind: Kind.signalSendCancelled, body: { op } });
  expect(decideSettled(a.run, partition("b"), first, undefined)).toBeUndefined();
  expect(a.numbersTo("b")).toEqual([1]);
  a.await("b");
  const wait = mail(a, "b")[1] as Message;
  expect(decideSettled(a.run, partition("b"), wait, undefined)).toBeUndefined();
  expect(decideSettled(a.run, partition("b"), wait, "RUN_NOT_FOUND")).toMatchObject({
    kind: Kind.resultReceived,
    body: { number: 0, failure: { type: "RunNotFoundError", message: "Cannot wait for shop:b: there is no such run" } },
  });
  a.complete("done");
  a.start();
  expect(decideSettled(a.run, partition("b"), wait, "RUN_NOT_FOUND")).toBeUndefined();
});

test("a run is waited for by a bounded number of operations", () => {
  const b = new Bench("b");
  for (let i = 1; i <= limits.awaitersMax; i++) applyTaken(b.run, taken("a", message(i, MessageKind.wait, { op: i })));
  expect(b.take("c", message(1, MessageKind.wait))).toBe("BUFFER_FULL");
});

test("a state with messages comes back from its bytes whole, and goes on the same", () => {
  const draws = fc.array(fc.nat(7), { maxLength: 60 });
  fc.assert(
    fc.property(draws, (steps) => {
      const bench = new Bench("a");
      const { run } = bench;
      for (const [i, step] of steps.entries()) {
        const other = `r${i % 3}`;
        const number = (run.inbox.get(partition(other))?.taken ?? 0) + 1;
        if (step === 6 && run.status === RunStatus.running) bench.complete(`${i}`);
        else if (run.status !== RunStatus.running) bench.start();
        else if (step < 2) bench.send(other, "go");
        else if (step < 3) bench.await(other);
        else if (step < 4) bench.settle(other, i);
        else bench.take(other, message(number, (step - 3) as MessageKind, { op: i % 5 }));
      }
      const bytes = (r: Run) => toBytes(encodeRunState, saveRun(r));
      const back = loadRun(run.run, fromBytes(decodeRunState, bytes(run)));
      expect(back).toEqual(run);
      for (const r of [run, back]) for (const to of [...r.outbox.keys()]) applySettled(r, { partition: "", receiver: to, through: 1000 });
      expect(bytes(back)).toEqual(bytes(run));
      expect([run.unsettled, run.owed.size]).toEqual([0, 0]);
    }),
  );
});
