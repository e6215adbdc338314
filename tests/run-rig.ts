/**
 * One shard that decides, one worker with real V8, and everything that Core asks for done by a test:
 * what is appended is committed at once.
 */
import { asRequestId, type Effect, type Partition, type Reply, type RequestId, type RunId } from "#core/base";
import { decodeBody } from "#core/run";
import type { Command, Input } from "#core/shard";
import {
  type Activate,
  type ActivateInit,
  decodeActivate,
  decodeEvent,
  decodeRecord,
  decodeWorkerItem,
  type Envelope,
  type Event,
  EventKind,
  encodeActivate,
  encodeWorkerItem,
  fromBytes,
  type Outcome,
  type QueryInit,
  toBytes,
} from "#proto";
import { Executor } from "../worker/executor.ts";
import type { V8Host } from "../worker/host/v8/v8-host.ts";
import { joining, lead, makeShard, RecordLog } from "./shard-maker.ts";

type Untimed = Input extends infer I ? (I extends { readonly nowMs: number } ? Omit<I, "nowMs"> : never) : never;

const text = (value: unknown) =>
  value === undefined ? undefined : { data: new TextEncoder().encode(JSON.stringify(value)), ref: undefined };
const jsonOf = (payload: { readonly data: Uint8Array } | undefined): unknown =>
  payload === undefined || payload.data.length === 0 ? undefined : JSON.parse(new TextDecoder().decode(payload.data));

/** Keys are unique over all executors of a host. */
let lastKey = 0;

export class RunRig {
  readonly log = new RecordLog();
  /** Answers an activity; left out, none is offered. */
  onTask: ((name: string, input: unknown) => unknown) | undefined;
  nowMs = 1_800_000_000_000;
  private readonly machine = makeShard({ log: this.log });
  private readonly executor: Executor;
  private readonly bundle: Uint8Array;
  private readonly waiting = new Map<RequestId, (reply: Reply) => void>();
  private readonly envelopes = new Map<RequestId, Envelope>();
  private nextRequest = 1;

  constructor(parts: { readonly host: V8Host; readonly bundle: Uint8Array; readonly activities?: readonly string[] }) {
    this.bundle = parts.bundle;
    this.executor = new Executor({
      host: parts.host,
      blobs: async () => new Uint8Array(0),
      runSlots: () => 100,
      nextKey: () => ++lastKey,
      send: (item) => {
        const read = fromBytes(decodeWorkerItem, toBytes(encodeWorkerItem, item));
        if (read.kind === "activated") this.step({ kind: "activated", session: this.session, message: read.value });
        if (read.kind === "queryAnswer") this.step({ kind: "query-answered", session: this.session, message: read.value });
      },
    });
    lead(this.machine, { nowMs: this.nowMs });
    const { nowMs: _, ...joined } = joining(1, this.nowMs);
    const { activities = [] } = parts;
    this.step({ ...joined, hello: { ...joined.hello, activities: [...activities] } });
  }

  private readonly session = joining(1, 0).session;

  step(input: Untimed): void {
    this.nowMs += 1;
    for (const effect of this.machine.step({ ...input, nowMs: this.nowMs } as Input)) this.run(effect);
  }

  /** Steps that an effect causes come after the rest of its step. */
  private later(input: Untimed): void {
    queueMicrotask(() => this.step(input));
  }

  private run(effect: Effect): void {
    switch (effect.kind) {
      case "activate": {
        const { handle, activation, start } = effect;
        const events = effect.events.map((bytes) => bytes.slice());
        return this.activate({ handle, activation, events, ...start, fromStart: start !== undefined });
      }
      case "replay": {
        const { handle, activation, bundle, type, readOnly, partition, firstSeq, endSeq } = effect;
        const events = this.eventsOf(partition)
          .filter(({ event }) => event.seq >= firstSeq && event.seq < endSeq)
          .map(({ bytes }) => bytes);
        return this.activate({ handle, activation, bundle, type, readOnly, events, run: partition.slice(4), fromStart: true });
      }
      case "query": {
        const { query, handle, name, input } = effect;
        const message: QueryInit = { query, handle, name, input, shard: 1 };
        queueMicrotask(() => this.executor.query(message as Parameters<Executor["query"]>[0]));
        return;
      }
      case "task": {
        const { token, name, input } = effect;
        const result = text(this.onTask?.(name, jsonOf(input)));
        return this.later({ kind: "task-done", session: effect.session, message: { token, result, failure: undefined } });
      }
      case "drop":
        return this.executor.drop({ shard: 1, handle: effect.handle });
      case "send": {
        const request = asRequestId(this.nextRequest++);
        this.envelopes.set(request, effect.envelope);
        return this.later({ kind: "envelope", request, envelope: effect.envelope });
      }
      case "reply": {
        const { reply, request } = effect;
        const envelope = this.envelopes.get(request);
        const [from, to] = [envelope?.from as Partition, envelope?.to as Partition];
        if (reply.kind === "enveloped") this.later({ kind: "envelope-answered", from, to, answer: reply.answer });
        this.waiting.get(request)?.(reply);
        return;
      }
      case "arm-timer":
        return;
      default:
        throw new Error(`The test can't do ${effect.kind}`);
    }
  }

  private activate(init: ActivateInit): void {
    const message: Activate = fromBytes(decodeActivate, toBytes(encodeActivate, { shard: 1, ...init }));
    queueMicrotask(() => this.executor.activate(message));
  }

  command(command: Command): Promise<Reply> {
    const request = asRequestId(this.nextRequest++);
    const answered = new Promise<Reply>((done) => this.waiting.set(request, done));
    this.step({ kind: "command", request, identity: { issuer: "local", subject: "ann", verified: false, causeSeq: 0 }, command });
    return answered;
  }

  private start(instance: string, type: string, input: unknown, awaitResult: boolean): Promise<Reply> {
    const how = { type, bundle: this.bundle, contention: "attach", idempotencyKey: "", deadlineMs: 0, awaitResult } as const;
    return this.command({ kind: "start", run: `shop:${instance}` as RunId, input: text(input), ...how });
  }

  async begin(instance: string, type: string, input?: unknown): Promise<void> {
    await this.start(instance, type, input, false);
  }

  /** Starts a run and gives what it results in, or how it failed. */
  async result(instance: string, type: string, input?: unknown): Promise<unknown> {
    const reply = await this.start(instance, type, input, true);
    const outcome: Outcome | undefined = reply.kind === "started" ? reply.outcome : undefined;
    return outcome?.failure ?? jsonOf(outcome?.result);
  }

  /** Starts and signals in one step. */
  async signalWithStart(
    instance: string,
    type: string,
    signal: { readonly name: string; readonly value: unknown; readonly id?: string },
  ): Promise<Reply> {
    const how = { type, bundle: this.bundle, contention: "attach", idempotencyKey: "", deadlineMs: 0, awaitResult: false } as const;
    const { name, value, id = "" } = signal;
    return this.command({
      kind: "start",
      run: `shop:${instance}` as RunId,
      input: undefined,
      ...how,
      signal: { name, payload: text(value), id },
    });
  }

  async signal(instance: string, name: string, value?: unknown): Promise<void> {
    await this.command({ kind: "signal", run: `shop:${instance}` as RunId, name, payload: text(value), id: "" });
  }

  /** The value, the failure as `{ failure, rejected }`, or the refusal. */
  async call(instance: string, name: string, input?: unknown, id = ""): Promise<unknown> {
    const reply = await this.command({ kind: "call", run: `shop:${instance}` as RunId, name, input: text(input), id });
    if (reply.kind === "rejected") return reply.rejection;
    if (reply.kind !== "called") throw new Error(`A call was answered with ${reply.kind}`);
    return reply.failure === undefined ? jsonOf(reply.result) : { failure: reply.failure, rejected: reply.rejected };
  }

  async query(instance: string, name: string, input?: unknown): Promise<unknown> {
    const reply = await this.command({ kind: "query", run: `shop:${instance}` as RunId, name, input: text(input) });
    return reply.kind === "queried" ? jsonOf(reply.result) : reply;
  }

  /** The worker lets go of the run, as when its cache is full. */
  evict(instance: string): void {
    for (const live of this.machine.liveRuns()) {
      if (live.id !== `shop:${instance}` || live.session === undefined) continue;
      const { handle } = live;
      this.executor.drop({ shard: 1, handle });
      this.step({ kind: "evicted", session: this.session, handle });
    }
  }

  private eventsOf(partition: string): { readonly bytes: Uint8Array; readonly event: Event }[] {
    return this.log.records
      .flatMap((body) => fromBytes(decodeRecord, body).event.map((bytes) => ({ bytes, event: fromBytes(decodeEvent, bytes) })))
      .filter(({ event }) => event.partition === partition);
  }

  /** Bytes of a run's events. */
  history(instance: string): Uint8Array[] {
    return this.eventsOf(`run/shop:${instance}`).map(({ bytes }) => bytes);
  }

  /** What the history of a run holds. */
  kindsOf(instance: string): string[] {
    const names = new Map(Object.entries(EventKind).map(([name, kind]) => [kind as number, name]));
    return this.eventsOf(`run/shop:${instance}`)
      .filter(({ event }) => decodeBody(event.kind, event.payload) !== undefined)
      .map(({ event }) => names.get(event.kind) ?? "");
  }
}
