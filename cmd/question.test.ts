import { expect, test } from "bun:test";
import { PassThrough } from "node:stream";
import { type Context, InterruptedError } from "./context.ts";
import { UsageError } from "./failure.ts";
import { Output } from "./output.ts";
import { agreed } from "./question.ts";
import { bufferSink } from "./sink-fixture.ts";

/** Somebody who types `text`, and then presses Ctrl-D. */
function person(text: string) {
  const input = Object.assign(new PassThrough(), { isTTY: true });
  input.end(text);
  return input;
}

const atTerminal = (interrupt = new AbortController().signal): Context => ({
  output: new Output({ out: bufferSink(), err: bufferSink({ columns: 80 }) }),
  interrupt,
  env: {},
});

test.each([
  ["y\n", true],
  ["Yes\n", true],
  ["\n", false],
  ["yesterday\n", false],
])("an answer of %j agrees: %p", async (text, agrees) => {
  expect(await agreed(atTerminal(), "Cancel 3 runs?", person(text))).toBe(agrees);
});

test("without an answer the command ends: at the end of the input, and when it is interrupted", async () => {
  const failureOf = (asked: Promise<boolean>) => asked.catch((error: unknown) => error);
  expect(await failureOf(agreed(atTerminal(), "Cancel 3 runs?", person("")))).toBeInstanceOf(InterruptedError);
  const silent = Object.assign(new PassThrough(), { isTTY: true });
  expect(await failureOf(agreed(atTerminal(AbortSignal.timeout(10)), "Cancel 3 runs?", silent))).toBeInstanceOf(InterruptedError);
});

test("without a terminal nobody is asked", async () => {
  await expect(agreed(atTerminal(), "Cancel 3 runs?", new PassThrough())).rejects.toThrow(UsageError);
});
