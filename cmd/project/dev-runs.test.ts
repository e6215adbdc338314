import { expect, test } from "bun:test";
import {
  type DescribeReply,
  decodeDescribeReply,
  decodeListReply,
  encodeDescribeReply,
  encodeListReply,
  fromBytes,
  RunStatus,
  toBytes,
} from "#proto";
import { Output } from "../output.ts";
import { bufferSink } from "../sink-fixture.ts";
import { DevRuns } from "./dev-runs.ts";

test("what failed, what is blocked and what nobody offers is said once, in one line each", async () => {
  const closedMs = Date.now() + 60_000;
  const list = async ({ status = 0 }: { status?: number }) =>
    fromBytes(
      decodeListReply,
      toBytes(encodeListReply, {
        run: [
          { run: "d:old", type: "t", status: RunStatus.failed, startedMs: 1, closedMs: 2 },
          { run: "d:new", type: "t", status: RunStatus.failed, startedMs: 1, closedMs },
          { run: "d:stuck", type: "t", status: RunStatus.blocked, note: "loops for ever\nat x" },
          { run: "d:waits", type: "t", status: RunStatus.running, startedMs: 1 },
        ].filter((run) => run.status === status),
      }),
    );
  const describe = async (run: string): Promise<DescribeReply> =>
    fromBytes(
      decodeDescribeReply,
      toBytes(encodeDescribeReply, {
        outcome: { status: RunStatus.failed, failure: { type: "ZodError", message: "bad\nworse" } },
        pending: run === "d:waits" ? [{ op: 1, waitsFor: "a worker that offers mail" }] : [],
      }),
    );
  const err = bufferSink();
  const runs = new DevRuns({ remote: { list, describe }, namespace: "d", output: new Output({ err, env: {} }) });
  await runs.look();
  await runs.look();
  await runs.close();
  expect(err.text()).toBe(
    "! d:new (t) failed: ZodError: bad\n! d:stuck is blocked: loops for ever\n! d:waits waits for a worker that offers mail: none is connected\n",
  );
});
