import { expect, test } from "bun:test";
import { asIndex, asRequestId, asSessionId, type Effect, type Partition } from "#core/base";
import { EffectRunner } from "./effect-runner.ts";

const reply = (request: number, index: number): Effect => ({
  kind: "reply",
  request: asRequestId(request),
  reply: { kind: "done" },
  after: { until: "committed", index: asIndex(index) },
});
const send = (index: number): Effect => ({
  kind: "send",
  to: "run/n:b" as Partition,
  envelope: { from: "run/n:a", to: "run/n:b", message: [], epoch: 0 } as never,
  after: { until: "committed", index: asIndex(index) },
});

/** `onMail` may bring the next step. */
function runner(onMail: (runner: EffectRunner) => void) {
  const left: string[] = [];
  const made: EffectRunner = new EffectRunner({
    links: new Map([[asSessionId(1), { send: () => {} } as never]]),
    reply: (request) => void left.push(`reply ${request}`),
    replay: () => {},
    dropped: () => {},
    armTimer: () => {},
    mail: () => {
      left.push("mail");
      onMail(made);
    },
  });
  return { made, left };
}

test("effects leave as they were asked for, also where one of them brings the next step", () => {
  const { made, left } = runner((own) => void own.take([reply(3, 2)], 2));
  expect(made.take([send(1), reply(1, 1), reply(2, 2)], 0)).toBe(true);
  expect([left, made.waiting]).toEqual([[], 3]);
  made.release(2);
  expect([left, made.waiting]).toEqual([["mail", "reply 1", "reply 2", "reply 3"], 0]);
});

test("what waits for a commit leaves at its commit", () => {
  const { made, left } = runner(() => {});
  made.take([reply(1, 1), reply(2, 3)], 1);
  made.release(2);
  expect(left).toEqual(["reply 1"]);
  made.release(3);
  expect(left).toEqual(["reply 1", "reply 2"]);
});
