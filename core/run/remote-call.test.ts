/** Calls between runs, folded: answers that are owed, cancellations, cycles, and what a restore lost. */
import { expect, test } from "bun:test";
import { limits, type Partition, type RunId, runPartition } from "#core/base";
import {
  applyEvent,
  applySettled,
  applyTaken,
  decideAnswer,
  decideAnswerLost,
  decideCallWithdrawn,
  decideMethodCall,
  decideSettled,
  decideTake,
  differenceOf,
  emptyRun,
  loadRun,
  type MethodCallRequest,
  type Run,
  type RunEvent,
  saveRun,
} from "#core/run";
import { decodeRunStarted, decodeRunState, EventKind, encodeRunState, fromBytes, type Message, MessageKind, toBytes } from "#proto";

const partition = (name: string): Partition => runPartition(`shop:${name}` as RunId);
const data = (text: string) => ({ data: new TextEncoder().encode(text), ref: undefined });

class Bench {
  readonly partition: Partition;
  run: Run;
  private seq = 0;

  constructor(name: string) {
    this.partition = partition(name);
    this.run = emptyRun(`shop:${name}` as RunId);
    this.add({ kind: EventKind.runStarted, body: { ...fromBytes(decodeRunStarted, new Uint8Array(0)), generation: 1 } });
  }

  add(event: RunEvent): void {
    applyEvent(this.run, event, { seq: this.seq, timeMs: 1000 + this.seq++ }, new Uint8Array(0));
  }

  call(op: number, to: string, more: Partial<MethodCallRequest> = {}): RunEvent[] {
    const events = decideMethodCall(this.run, {
      op,
      to: `shop:${to}`,
      name: "m",
      input: data("in"),
      propagates: false,
      inCall: 0,
      ...more,
    });
    for (const event of events) this.add(event);
    return events;
  }

  /** Takes what `sender` has for this run. */
  take(sender: Bench): void {
    const from = runPartition(sender.run.run);
    const taken = () => this.run.inbox.get(from)?.taken ?? 0;
    for (const message of sender.messagesTo(this.run)) {
      if (message.number <= taken()) continue;
      const decision = decideTake(this.run, from, message);
      if (decision === undefined) throw new Error("A message of unknown kind");
      if ("kind" in decision) this.add(decision);
      else {
        const { number, kind, op, generation } = message;
        const refusal = decision.refusal ?? "";
        applyTaken(this.run, {
          partition: runPartition(this.run.run),
          sender: from,
          number,
          settled: 0,
          refusal,
          kind,
          op,
          generation,
          of: 0,
          offset: 0,
          count: 0,
          lingerMs: 0,
        });
      }
    }
    const reply = this.run.inbox.get(from);
    sender.settle(runPartition(this.run.run), reply?.taken ?? 0, reply?.refused ?? []);
  }

  messagesTo(run: Run): readonly Message[] {
    return this.run.outbox.get(runPartition(run.run))?.messages ?? [];
  }

  private settle(to: Partition, through: number, refused: readonly { number: number; reason: string }[]): void {
    for (const message of this.run.outbox.get(to)?.messages ?? []) {
      if (message.number > through) break;
      const event = decideSettled(this.run, to, message, refused.find(({ number }) => number === message.number)?.reason);
      if (event !== undefined) this.add(event);
    }
    applySettled(this.run, { partition: runPartition(this.run.run), receiver: to, through });
  }

  answer(call: number): void {
    this.add(decideAnswer({ call, result: data("out"), failure: undefined, rejected: false }));
  }

  reload(): void {
    this.run = loadRun(this.run.run, fromBytes(decodeRunState, toBytes(encodeRunState, saveRun(this.run))));
  }

  /** As it is now, for a restore to come back to. */
  copy(name: string): Bench {
    const copy = new Bench(name);
    copy.run = loadRun(this.run.run, fromBytes(decodeRunState, toBytes(encodeRunState, saveRun(this.run))));
    return copy;
  }
}

test("a call is open on both sides until its answer is taken, over checkpoints", () => {
  const [a, b] = [new Bench("a"), new Bench("b")];
  a.call(1, "b");
  a.reload();
  expect(a.messagesTo(b.run)).toMatchObject([{ kind: MessageKind.call, number: 1, op: 1, name: "m", path: ["shop:a"] }]);
  b.take(a);
  b.reload();
  expect([...b.run.calls.values()]).toMatchObject([{ call: 1, from: partition("a"), op: 1, generation: 1, path: ["shop:a"] }]);
  b.answer(1);
  b.reload();
  expect(b.messagesTo(a.run)).toMatchObject([{ kind: MessageKind.callAnswered, op: 1, payload: data("out") }]);
  expect(a.run.pending.has(1)).toBe(true);
  a.take(b);
  expect(a.run.pending.size).toBe(0);
  expect(b.run.outbox.size + b.run.calls.size).toBe(0);
});

test("a refused call tells why, and leaves nothing behind", () => {
  const [a, nobody] = [new Bench("a"), new Bench("nobody")];
  nobody.run = emptyRun("shop:nobody" as RunId);
  a.call(1, "nobody");
  nobody.take(a);
  expect(a.run.pending.size).toBe(0);
  const [b, closed] = [new Bench("b"), new Bench("closed")];
  closed.add({ kind: EventKind.runCompleted, body: { result: undefined } });
  b.call(1, "closed");
  closed.take(b);
  expect(b.run.pending.size).toBe(0);
  expect(closed.run.calls.size).toBe(0);
});

test("a run that ends answers its open calls with its end", () => {
  const [a, b] = [new Bench("a"), new Bench("b")];
  a.call(1, "b");
  b.take(a);
  b.add({ kind: EventKind.runTerminated, body: { reason: "", from: "", number: 0 } });
  expect(b.messagesTo(a.run)).toMatchObject([{ kind: MessageKind.callAnswered, op: 1, failure: { type: "RunClosedError" } }]);
  a.take(b);
  expect(a.run.pending.size).toBe(0);
});

test("a call that closes a cycle is not sent; the path goes on with each call", () => {
  const [a, b] = [new Bench("a"), new Bench("b")];
  a.call(1, "b");
  b.take(a);
  const [sent, failed] = b.call(1, "a", { inCall: 1 });
  expect(sent).toMatchObject({ kind: EventKind.methodCallSent, body: { number: 0, path: ["shop:a", "shop:b"] } });
  expect(failed).toMatchObject({
    body: { failure: { type: "CallCycleError", message: expect.stringContaining("shop:a → shop:b → shop:a") } },
  });
  expect(b.run.outbox.size + b.run.pending.size).toBe(0);
  // Its own code waits for nobody: that call is answered beside it.
  expect(b.call(2, "a")).toHaveLength(1);
  expect(b.call(3, "b")).toHaveLength(2);
});

test("a path has a bound", () => {
  const b = new Bench("b");
  const path = Array.from({ length: limits.callDepthMax }, (_, i) => `shop:${i}`);
  b.add({
    kind: EventKind.methodCalled,
    body: { call: 1, name: "m", input: undefined, id: "", from: partition("63"), number: 1, op: 1, generation: 1, path },
  });
  expect(b.call(1, "c", { inCall: 1 })[1]).toMatchObject({ body: { failure: { type: "LimitError" } } });
  expect(b.call(2, "c")).toHaveLength(1);
});

test("a call that is withdrawn is cancelled there once, where the caller wanted it", () => {
  for (const propagates of [false, true]) {
    const [a, b] = [new Bench("a"), new Bench("b")];
    a.call(1, "b", { propagates });
    b.take(a);
    const o = a.run.pending.get(1);
    if (o === undefined) throw new Error("The call is open");
    a.add(decideCallWithdrawn(a.run, o));
    a.add({ kind: EventKind.runCancelled, body: { reason: "" } });
    expect(a.messagesTo(b.run).map(({ kind }) => kind)).toEqual(propagates ? [MessageKind.callCancelled] : []);
    b.take(a);
    expect(b.run.calls.get(1)?.cancelled).toBe(propagates);
    b.answer(1);
    a.take(b);
    expect(b.run.outbox.size).toBe(0);
  }
});

test("an answer that a restore lost is told as lost", () => {
  const [a, b] = [new Bench("a"), new Bench("b")];
  a.call(1, "b");
  const before = a.copy("a");
  b.take(a);
  expect(differenceOf(before, b).lostCalls).toEqual([]);
  b.answer(1);
  expect(differenceOf(before, b).lostCalls).toEqual([]);
  a.take(b);
  const [lost] = differenceOf(before, b).lostCalls;
  expect(lost).toMatchObject({ op: 1, name: "m" });
  if (lost !== undefined) before.add(decideAnswerLost(lost));
  expect(before.run.pending.size).toBe(0);
});
