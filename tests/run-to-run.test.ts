/**
 * The guide's example of runs that signal each other, as it stands there: its code in real V8,
 * a shard that decides, and everything that Core asks for done by this test.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { asRequestId, type Effect, fromHex, type Partition, type RequestId, type RunId } from "#core/base";
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
  EventKind,
  encodeActivate,
  encodeWorkerItem,
  fromBytes,
  type Outcome,
  toBytes,
} from "#proto";
import { Executor } from "../worker/executor.ts";
import { openHost, TestBundles } from "../worker/host/v8/v8-fixture.ts";
import type { V8Host } from "../worker/host/v8/v8-host.ts";
import { joining, lead, makeShard, RecordLog } from "./shard-maker.ts";
import { readSource } from "./sources.ts";
import { until } from "./until.ts";

type Untimed = Input extends infer I ? (I extends { readonly nowMs: number } ? Omit<I, "nowMs"> : never) : never;

const bundles = new TestBundles();
let host: V8Host;
let bundle: Uint8Array;

beforeAll(async () => {
  const guide = await readSource("docs/GUIDE.md");
  const code = [...guide.matchAll(/^```ts\n([\s\S]*?)^```/gm)].map(([, text = ""]) => text).find((text) => text.includes("sendSignal("));
  host = openHost({ limits: { deliveryMs: 5000 } }, bundles);
  await host.start();
  bundle = fromHex(await bundles.ofText({ "wf.ts": code ?? "" })) as Uint8Array;
}, 60_000);
afterAll(() => host.close());

/** One shard and one worker; what is appended is committed at once. */
class Rig {
  readonly log = new RecordLog();
  private readonly machine = makeShard({ log: this.log });
  private readonly executor: Executor;
  private readonly waiting = new Map<RequestId, (outcome: Outcome | undefined) => void>();
  private readonly envelopes = new Map<RequestId, Envelope>();
  private nextRequest = 1;
  private nextKey = 1;
  private nowMs = 1_800_000_000_000;

  constructor() {
    this.executor = new Executor({
      host,
      blobs: async () => new Uint8Array(0),
      runSlots: () => 100,
      nextKey: () => this.nextKey++,
      send: (item) => {
        const read = fromBytes(decodeWorkerItem, toBytes(encodeWorkerItem, item));
        if (read.kind === "activated") this.step({ kind: "activated", session: this.session, message: read.value });
      },
    });
    lead(this.machine, { nowMs: this.nowMs });
    const { nowMs: _, ...joined } = joining(1, this.nowMs);
    this.step(joined);
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
        this.waiting.get(request)?.(reply.kind === "started" ? reply.outcome : undefined);
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

  command(command: Command): Promise<Outcome | undefined> {
    const request = asRequestId(this.nextRequest++);
    const answered = new Promise<Outcome | undefined>((done) => this.waiting.set(request, done));
    this.step({ kind: "command", request, identity: { issuer: "local", subject: "ann", verified: false, causeSeq: 0 }, command });
    return answered;
  }

  /** Starts a run and gives what it results in. */
  async result(instance: string, type: string, input: unknown): Promise<unknown> {
    const start = { type, bundle, contention: "attach", idempotencyKey: "", deadlineMs: 0, awaitResult: true } as const;
    const payload = { data: new TextEncoder().encode(JSON.stringify(input)), ref: undefined };
    const outcome = await this.command({ kind: "start", run: `shop:${instance}` as RunId, input: payload, ...start });
    return outcome?.failure ?? JSON.parse(new TextDecoder().decode(outcome?.result?.data));
  }

  /** What the history of a run holds. */
  kindsOf(instance: string): string[] {
    const names = new Map(Object.entries(EventKind).map(([name, kind]) => [kind as number, name]));
    const events = this.log.records.flatMap((body) => fromBytes(decodeRecord, body).event.map((bytes) => fromBytes(decodeEvent, bytes)));
    return events
      .filter((event) => event.partition === `run/shop:${instance}` && decodeBody(event.kind, event.payload) !== undefined)
      .map((event) => names.get(event.kind) ?? "");
  }
}

test("lines of an order reach their parcel, and get what became of it", async () => {
  const rig = new Rig();
  const parcel = rig.result("p-1", "parcel", { size: 3 });
  const lines = await Promise.all(["pen", "ink", "paper"].map((item, i) => rig.result(`line-${i}`, "line", { item, parcel: "p-1" })));
  const packed = { items: ["pen", "ink", "paper"] };
  expect(await parcel).toEqual(packed);
  expect(lines).toEqual([packed, packed, packed]);
  expect(rig.kindsOf("line-0")).toEqual(["runStarted", "signalSent", "signalSettled", "resultAwaited", "resultReceived", "runCompleted"]);
});

test("an address in another namespace, one that is nobody's, and a parcel that has gone", async () => {
  const rig = new Rig();
  expect(await rig.result("line-1", "line", { item: "pen", parcel: "nowhere:p-9" })).toEqual({ items: [] });
  expect(await rig.result("p-1", "parcel", { size: 0 })).toEqual({ items: [] });
  expect(await rig.result("line-2", "line", { item: "pen", parcel: "shop:p-1" })).toMatchObject({
    type: "RunError",
    message: "Cannot signal shop:p-1: it has ended",
    cause: { type: "RunClosedError" },
  });
});

test("a run that is terminated ends the waits for it", async () => {
  const rig = new Rig();
  const parcel = rig.result("p-1", "parcel", { size: 2 });
  const line = rig.result("line-1", "line", { item: "pen", parcel: "p-1" });
  await until(() => rig.kindsOf("line-1").includes("resultAwaited"));
  await rig.command({ kind: "terminate", run: "shop:p-1" as RunId, reason: "no stock" });
  expect(await line).toMatchObject({ type: "RunError", message: 'Run "shop:p-1" did not complete: Run shop:p-1 was terminated: no stock' });
  expect(await parcel).toMatchObject({ type: "TerminatedError" });
});
