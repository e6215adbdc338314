import { expect, test } from "bun:test";
import { HopError } from "#core/base";
import type { Context } from "../context.ts";
import { exit } from "../failure.ts";
import { Output } from "../output.ts";
import type { Remote } from "../remote.ts";
import { bufferSink } from "../sink-fixture.ts";
import { onAll } from "./workflow-act.ts";

const remote = {} as Remote;
const runs = Array.from({ length: 100 }, (_, i) => `default:o-${i}`);
const quiet = (): Context => ({
  output: new Output({ out: bufferSink(), err: bufferSink() }),
  interrupt: new AbortController().signal,
  env: {},
});

/** An act that fails for some runs, and the runs that it was begun for. */
function acting(fails: (run: string) => HopError | undefined) {
  const begun: string[] = [];
  const act = async (_: Remote, run: string) => {
    begun.push(run);
    await Promise.resolve();
    const failure = fails(run);
    if (failure !== undefined) throw failure;
    return { said: `Paused ${run}`, json: {} };
  };
  return { act, begun };
}

test("without a server nothing more is begun", async () => {
  const { act, begun } = acting((run) => (run === runs[0] ? new HopError("STORE_UNAVAILABLE", "no disk") : undefined));
  const said: number[] = [];
  await expect(onAll(quiet(), remote, runs, act, (done) => said.push(done))).rejects.toThrow("no disk");
  for (let turn = 0; turn < 1000; turn++) await Promise.resolve();
  expect(begun.length).toBeLessThan(runs.length);
});

test("what one run refuses is said, and the others go on", async () => {
  const { act, begun } = acting((run) => (run === runs[1] ? new HopError("RUN_CLOSED", "it has ended") : undefined));
  expect(await onAll(quiet(), remote, runs, act)).toBe(exit.conflict);
  expect(begun).toEqual(runs);
});
