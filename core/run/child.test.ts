import { expect, test } from "bun:test";
import { noBytes, type Partition, type RunId, runPartition } from "#core/base";
import {
  decodeRunStarted,
  decodeRunState,
  decodeStartOrder,
  encodeRunState,
  fromBytes,
  EventKind as Kind,
  type Message,
  MessageKind,
  ParentClosePolicy as Policy,
  RunStatus,
  toBytes,
} from "#proto";
import {
  applyEvent,
  applySettled,
  applyTaken,
  decideEnd,
  decideSendCancel,
  decideSettled,
  decideSpawn,
  decideStart,
  decideTake,
  emptyRun,
  loadRun,
  outgoing,
  type Run,
  type RunEvent,
  saveRun,
  startOf,
} from "./index.ts";

const bundle = new Uint8Array(32).fill(3);
const parentId = "shop:order" as RunId;
const childId = "shop:parcel" as RunId;
const [parent, child] = [parentId, childId].map(runPartition) as [Partition, Partition];

/** A run that events are added to, as a shard would. */
class Bench {
  readonly run: Run;
  seq = 0;

  constructor(id: RunId) {
    this.run = emptyRun(id);
  }

  add(event: RunEvent): void {
    applyEvent(this.run, event, { seq: this.seq, timeMs: 1_800_000_000_000 + this.seq++ }, new Uint8Array(32));
  }

  start(): this {
    const generation = this.run.generation + 1;
    this.add({ kind: Kind.runStarted, body: { ...fromBytes(decodeRunStarted, noBytes), generation, type: "order", bundle } });
    return this;
  }

  spawn(closePolicy: number = Policy.terminate, contention = "attach"): number {
    const op = this.run.nextOp;
    const start = { ...fromBytes(decodeStartOrder, noBytes), type: "parcel", bundle, contention };
    this.add(decideSpawn(this.run, { op, to: childId, start, input: undefined, closePolicy }));
    return op;
  }

  end(kind: typeof Kind.runCompleted | typeof Kind.runTimedOut = Kind.runCompleted): void {
    this.add(kind === Kind.runCompleted ? { kind, body: { result: undefined } } : { kind, body: { deadlineMs: 5 } });
  }

  /** What it has to tell the other, as it travels. */
  mailTo(to: Partition): Message[] {
    return (this.run.outbox.get(to)?.messages ?? []).map((one) => outgoing(this.run, one));
  }

  /** Takes a start as a shard does. */
  takeStart(message: Message): void {
    const request = startOf(parent, message);
    if (typeof request === "string") throw new Error(request);
    const decision = decideStart(this.run, request, noBytes);
    if (!("kind" in decision)) throw new Error(JSON.stringify(decision));
    this.add(decision);
  }

  take(from: Partition, message: Message): RunEvent {
    const decision = decideTake(this.run, from, message);
    if (decision === undefined || !("kind" in decision)) throw new Error(JSON.stringify(decision));
    this.add(decision);
    return decision;
  }

  settle(to: Partition): void {
    applySettled(this.run, { partition: "", receiver: to, through: this.run.outbox.get(to)?.messages.at(-1)?.number ?? 0 });
  }
}

function family(closePolicy: number = Policy.terminate) {
  const order = new Bench(parentId).start();
  const op = order.spawn(closePolicy);
  const parcel = new Bench(childId);
  parcel.takeStart(order.mailTo(child)[0] as Message);
  order.settle(child);
  return { order, parcel, op };
}

test("a child names who started it, and tells that it runs and how it ends", () => {
  const { order, parcel, op } = family();
  expect(parcel.run.startedBy).toEqual({ partition: parent, generation: 1, op, number: 1 });
  expect(parcel.run.inbox.get(parent)?.taken).toBe(1);
  const [started] = parcel.mailTo(parent);
  expect(started).toMatchObject({ kind: MessageKind.started, op, generation: 1, of: 1, attached: false });
  expect(order.take(child, started as Message)).toMatchObject({ kind: Kind.childStarted, body: { op, from: child, generation: 1 } });
  expect(order.run.pending.get(op)).toMatchObject({ kind: Kind.childSpawned, of: 1, started: true });
  parcel.settle(parent);
  parcel.end();
  const [ended] = parcel.mailTo(parent);
  expect(order.take(child, ended as Message)).toMatchObject({
    kind: Kind.childEnded,
    body: { op, generation: 1, status: RunStatus.completed },
  });
  expect(order.run.pending.size).toBe(0);
  // Nothing is left to be done to it.
  order.end();
  expect(order.mailTo(child)).toEqual([]);
});

test("however a parent ends, its children are ended, asked to cancel or left, as their policies say", () => {
  for (const [policy, kind] of [
    [Policy.terminate, MessageKind.terminate],
    [Policy.cancel, MessageKind.cancel],
    [0, MessageKind.terminate],
  ] as const) {
    const { order, parcel, op } = family(policy);
    order.end(Kind.runTimedOut);
    const [message] = order.mailTo(child);
    expect(message).toMatchObject({
      kind,
      op,
      generation: 1,
      child: op,
      reason: "its parent, generation 1 of shop:order, passed its deadline",
    });
    const end = decideEnd(parcel.run, parent, message as Message);
    expect(end).toMatchObject({
      event: { kind: kind === MessageKind.cancel ? Kind.cancelRequested : Kind.runTerminated, body: { from: parent, number: 2 } },
    });
  }
  const { order } = family(Policy.abandon);
  order.end();
  expect(order.mailTo(child)).toEqual([]);
});

test("a parent that was started again leaves the children of the generation before alone, and another run of a child's name too", () => {
  const { order, parcel, op } = family();
  order.end();
  order.start();
  order.end();
  expect(order.mailTo(child).map(({ generation, child }) => [generation, child])).toEqual([[1, op]]);
  const [message] = order.mailTo(child);
  parcel.end();
  // Somebody else starts a run of the name before the word of the parent's end arrives.
  parcel.start();
  expect(decideEnd(parcel.run, parent, message as Message)).toEqual({ refusal: "RUN_CLOSED" });
  expect(decideTake(parcel.run, parent, { ...(message as Message), kind: MessageKind.signal, name: "go" })).toEqual({
    refusal: "RUN_CLOSED",
  });
});

test("a start that attaches is told so, is no child, and hears of the end", () => {
  const order = new Bench(parentId).start();
  const op = order.spawn();
  const parcel = new Bench(childId).start();
  const [message] = order.mailTo(child);
  const request = startOf(parent, message as Message);
  expect(typeof request === "string" ? request : decideStart(parcel.run, request, noBytes)).toEqual({ attach: 1, ticket: 0 });
  const nothing = { offset: 0, count: 0, lingerMs: 0 };
  const fact = {
    partition: child,
    sender: parent,
    number: 1,
    settled: 0,
    refusal: "",
    kind: MessageKind.start,
    op,
    generation: 1,
    of: 1,
    ...nothing,
  };
  applyTaken(parcel.run, fact);
  order.take(child, parcel.mailTo(parent)[0] as Message);
  expect(order.run.pending.get(op)).toMatchObject({ of: 1, closePolicy: Policy.abandon });
  parcel.settle(parent);
  parcel.end();
  expect(parcel.mailTo(parent)).toMatchObject([{ kind: MessageKind.result, op, status: RunStatus.completed }]);
  order.end();
  expect(order.mailTo(child)).toMatchObject([{ kind: MessageKind.start }]);
});

test("a queued start is told its ticket at once, and its end where it leaves the queue", () => {
  const order = new Bench(parentId).start();
  const op = order.spawn(Policy.terminate, "queue");
  const parcel = new Bench(childId).start();
  parcel.takeStart(order.mailTo(child)[0] as Message);
  expect(parcel.run.queue).toMatchObject([{ ticket: 1, startedBy: { op } }]);
  order.take(child, parcel.mailTo(parent)[0] as Message);
  expect(order.run.pending.get(op)).toMatchObject({ of: 0, started: true });
  order.settle(child);
  parcel.settle(parent);
  order.add(decideSendCancel(order.run, { op: op + 1, to: childId, reason: "not wanted", child: op }));
  const end = decideEnd(parcel.run, parent, order.mailTo(child)[0] as Message);
  if (!("event" in end)) throw new Error("no event");
  expect(end.leaves?.ticket).toBe(1);
  parcel.add(end.event);
  expect(parcel.run.queue).toEqual([]);
  expect(parcel.mailTo(parent)).toMatchObject([
    { kind: MessageKind.result, op, of: 0, status: RunStatus.cancelled, failure: { type: "CancelledError" } },
  ]);
  expect(order.take(child, parcel.mailTo(parent)[0] as Message)).toMatchObject({ kind: Kind.childEnded });
});

test("a refused start is told to the run's code, and is no child any more", () => {
  const order = new Bench(parentId).start();
  const op = order.spawn();
  const [message] = order.mailTo(child) as [Message];
  expect(startOf(parent, { ...message, start: message.start && { ...message.start, bundle: noBytes } })).toBe("WORKFLOW_NOT_DEPLOYED");
  const event = decideSettled(order.run, child, message, "WORKFLOW_NOT_DEPLOYED");
  expect(event).toMatchObject({
    kind: Kind.childStarted,
    body: {
      op,
      failure: {
        type: "WorkflowNotDeployedError",
        message: "Cannot start shop:parcel: no workflow of that type is deployed in its namespace",
      },
    },
  });
  order.add(event as RunEvent);
  expect(order.run.pending.size).toBe(0);
});

test("parent and child come out of a checkpoint as they went in", () => {
  const { order, parcel } = family(Policy.cancel);
  for (const { run } of [order, parcel]) {
    const bytes = toBytes(encodeRunState, saveRun(run));
    expect(toBytes(encodeRunState, saveRun(loadRun(run.run, fromBytes(decodeRunState, bytes))))).toEqual(bytes);
  }
});
