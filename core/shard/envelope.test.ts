/** What one envelope may hold, and how those that can't be taken are answered. */
import { expect, test } from "bun:test";
import { asRequestId, asShardId, type Effect, limits, noBytes, type Partition, type RunId } from "#core/base";
import { blankMessage } from "#core/run";
import type { Input } from "#core/shard";
import {
  type CommandInit,
  CommandKind,
  decodeActivated,
  type Envelope,
  encodeActivated,
  fromBytes,
  type Message,
  MessageKind,
  toBytes,
} from "#proto";
import { joining, lead, makeShard, RecordLog } from "../../tests/shard-maker.ts";

type Untimed = Input extends infer I ? (I extends { readonly nowMs: number } ? Omit<I, "nowMs"> : never) : never;
type Sent = Extract<Effect, { kind: "send" }>;

const nowMs = 1_800_000_000_000;
const partition = (name: string) => `run/test:${name}` as Partition;
const bytes = (count: number) => ({ data: new Uint8Array(count).fill(1), ref: undefined });
const client = { issuer: "local", subject: "ann", verified: false, causeSeq: 0 };

/** A shard in which runs `a` and `b` are live, and what it asked for last. */
function bench() {
  const machine = makeShard({ log: new RecordLog() });
  lead(machine, { nowMs });
  const step = (input: Untimed) => machine.step({ ...input, nowMs } as Input);
  machine.step(joining(1, nowMs));
  const start = (name: string) => {
    const command = {
      kind: "start",
      type: "t",
      bundle: noBytes,
      input: undefined,
      contention: "attach",
      idempotencyKey: "",
      deadlineMs: 0,
    } as const;
    return step({
      kind: "command",
      request: asRequestId(1),
      identity: client,
      command: { ...command, run: `test:${name}` as RunId, awaitResult: false },
    });
  };
  start("b");
  const activate = start("a").find((effect) => effect.kind === "activate");
  if (activate?.kind !== "activate") throw new Error("The run was not activated");
  const ask = (commands: CommandInit[]): Sent[] => {
    const { session, handle, activation } = activate;
    const message = fromBytes(decodeActivated, toBytes(encodeActivated, { handle, activation, commands }));
    return sent(step({ kind: "activated", session, message }));
  };
  const receive = (envelope: Partial<Envelope>) => {
    const whole = { from: partition("x"), to: partition("b"), settled: 0, offeredMs: nowMs, message: [], ...envelope };
    const reply = step({ kind: "envelope", request: asRequestId(2), envelope: whole }).find((effect) => effect.kind === "reply");
    return reply?.kind === "reply" ? reply.reply : undefined;
  };
  return { machine, step, ask, receive };
}

const sent = (effects: readonly Effect[]) => effects.filter((effect) => effect.kind === "send");
const signals = (count: number, payload: ReturnType<typeof bytes>, to = "test:b"): CommandInit[] =>
  Array.from({ length: count }, (_, i) => ({ kind: CommandKind.sendSignal, op: i + 1, to, name: "go", payload }));
const message = (number: number, kind: number = MessageKind.signal): Message => ({
  ...blankMessage,
  number,
  kind,
  op: 1,
  generation: 1,
  name: "go",
});

test("an envelope is bounded by messages and by bytes; the rest follows the answer, one envelope at a time", () => {
  const { ask, step } = bench();
  const count = limits.envelopeMessagesMax + 10;
  const [first, ...others] = ask(signals(count, bytes(1)));
  expect([first?.envelope.message.length, others.length]).toEqual([limits.envelopeMessagesMax, 0]);
  const answer = { taken: limits.envelopeMessagesMax, refusal: [], settled: 0, stale: false, retryAfterMs: 0 };
  const [second] = sent(step({ kind: "envelope-answered", from: partition("a"), to: partition("b"), answer }));
  expect(second?.envelope).toMatchObject({ settled: limits.envelopeMessagesMax });
  expect(second?.envelope.message.map(({ number }) => number)).toEqual(
    Array.from({ length: 10 }, (_, i) => limits.envelopeMessagesMax + 1 + i),
  );
  const large = limits.inlineBytesMax;
  const [heavy] = bench().ask(signals(40, bytes(large)));
  expect(heavy?.envelope.message.length).toBe(Math.floor(limits.envelopeBytesMax / large) - 1);
});

test("each receiver has an envelope of its own", () => {
  const envelopes = bench().ask(
    ["b", "c", "d"].flatMap((to, i) => signals(i + 1, bytes(1), `test:${to}`)).map((one, i) => ({ ...one, op: i + 1 })),
  );
  expect(envelopes.map(({ to, envelope }) => [to, envelope.message.length])).toEqual([
    [partition("b"), 1],
    [partition("c"), 2],
    [partition("d"), 3],
  ]);
});

test("a gap, and a message of a later version, are not taken, nor what follows them", () => {
  const { receive } = bench();
  expect(receive({ message: [message(2), message(3)] })).toMatchObject({ kind: "enveloped", answer: { taken: 0 } });
  expect(receive({ message: [message(1), message(2, 99), message(3)] })).toMatchObject({ answer: { taken: 1, retryAfterMs: 10_000 } });
  expect(receive({ message: [message(2), message(3)] })).toMatchObject({ answer: { taken: 3, retryAfterMs: 0 } });
});

test("a receiver that knows nothing of the sender goes on behind what is settled, unless the offer is old", () => {
  const { receive } = bench();
  const old = { offeredMs: nowMs - limits.dedupRetentionMs - 1, settled: 6, message: [message(7)] };
  expect(receive(old)).toMatchObject({ answer: { stale: true } });
  expect(receive({ ...old, offeredMs: nowMs })).toMatchObject({ answer: { taken: 7, stale: false } });
  // It knows the sender now.
  expect(receive({ ...old, message: [message(7), message(8)] })).toMatchObject({ answer: { taken: 8, stale: false } });
});

test("an envelope that is not for this shard, or names no run, is refused and changes nothing", () => {
  const { machine, receive } = bench();
  const before = machine.lastIndex;
  for (const wrong of [{ from: "x" }, { from: "run/nospace" }, { to: "gate/test:b" }])
    expect(receive({ ...wrong, message: [message(1)] })).toMatchObject({ kind: "rejected", rejection: { reject: "BAD_REQUEST" } });
  machine.freeze({ into: asShardId(9) }, nowMs);
  expect(receive({ message: [message(1)] })).toMatchObject({ kind: "rejected", rejection: { reject: "STALE_EPOCH" } });
  expect(machine.lastIndex).toBe(before + 1);
});

test("an answer that comes while the shard is frozen counts when it comes again", () => {
  const { machine, ask, step } = bench();
  ask(signals(1, bytes(1)));
  const answered: Untimed = {
    kind: "envelope-answered",
    from: partition("a"),
    to: partition("b"),
    answer: { taken: 1, refusal: [], settled: 0, stale: false, retryAfterMs: 0 },
  };
  machine.freeze({ into: asShardId(9) }, nowMs);
  const frozen = machine.lastIndex;
  step(answered);
  expect(machine.lastIndex).toBe(frozen);
  machine.thaw(nowMs);
  step(answered);
  expect(machine.lastIndex).toBe(frozen + 2);
});

test("more messages than a run may have unsettled fail it", () => {
  const { ask, machine } = bench();
  const many = signals(limits.unsettledMessagesMax, bytes(1)).flatMap((one) => [one, { kind: CommandKind.cancelOp, op: one.op as number }]);
  ask([...many, ...signals(1, bytes(1)).map((one) => ({ ...one, op: limits.unsettledMessagesMax + 1 }))]);
  const { outcome } = machine.describe(partition("a")) ?? {};
  expect(outcome?.failure).toMatchObject({
    type: "LimitError",
    message: expect.stringContaining("messages that other partitions have not taken"),
  });
});
