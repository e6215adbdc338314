/**
 * Core alone: CPU a step of the machine with a log that only keeps the buffer.
 *
 * Usage: bun scripts/bench-core.ts [RUNS]
 */
import { asRequestId, asSessionId, type Effect, type LogWriter, noBytes } from "#core/base";
import type { Input } from "#core/shard";
import { ActivatedStatus, CommandKind, decodeCommand, fromBytes, Writer } from "#proto";
import { joining, lead, makeShard, soleShard } from "../tests/shard-maker.ts";

const blank = fromBytes(decodeCommand, noBytes);

class BufferLog implements LogWriter {
  readonly writer = new Writer(8 << 20);
  bytes = 0;
  begin(): Writer {
    if (this.writer.at > 4 << 20) this.writer.at = 0;
    this.start = this.writer.at;
    return this.writer;
  }
  private start = 0;
  end(): void {
    this.bytes += this.writer.at - this.start;
  }
}

const runs = Number(process.argv[2] ?? 20_000);
const steps = 10;
const log = new BufferLog();
const machine = makeShard({ log });
let nowMs = 1_000_000;
lead(machine, { nowMs });
const session = asSessionId(1);
const step = (input: Input): Effect[] => machine.step(input);
const payload = { data: new TextEncoder().encode(JSON.stringify("x".repeat(100))), ref: undefined };
step(joining(session, nowMs, { namespace: "default", activities: ["echo"], runSlots: 1e6 }));
const identity = { issuer: "local", subject: "bench", verified: false, causeSeq: 0 };
const bundle = new Uint8Array(32);

function runOne(i: number): void {
  nowMs++;
  let effects = step({
    kind: "command",
    nowMs,
    request: asRequestId(i),
    identity,
    command: {
      kind: "start",
      run: `default:wf_${i}` as never,
      type: "steps",
      bundle,
      input: payload,
      contention: "attach",
      idempotencyKey: "",
      deadlineMs: 0,
      awaitResult: true,
    },
  });
  for (let op = 1; op <= steps + 1; op++) {
    const activate = effects.find((e) => e.kind === "activate");
    if (activate?.kind !== "activate") throw new Error("no activation");
    const command =
      op <= steps ? { ...blank, kind: CommandKind.activity, op, name: "echo", payload } : { ...blank, kind: CommandKind.complete, payload };
    effects = step({
      kind: "activated",
      nowMs,
      session,
      message: {
        shard: soleShard,
        handle: activate.handle,
        activation: activate.activation,
        status: ActivatedStatus.ok,
        commands: [command],
        problem: "",
      },
    });
    const task = effects.find((e) => e.kind === "task");
    if (task?.kind === "task") {
      effects = step({
        kind: "task-done",
        nowMs,
        session,
        message: { token: task.token, result: payload, failure: undefined },
      });
    }
  }
}

for (let round = 0; round < 3; round++) {
  const before = process.cpuUsage();
  for (let i = 0; i < runs; i++) runOne(round * runs + i);
  const used = process.cpuUsage(before);
  const events = runs * (2 * steps + 2);
  const us = (used.user + used.system) / events;
  for (;;) {
    const { rows } = machine.capture(5000);
    if (rows.length === 0) break;
  }
  nowMs += 60_000;
  machine.evictIdle(nowMs);
  process.stdout.write(
    `${us.toFixed(2)} µs of CPU an event (${events} events, ${(log.bytes / events / (round + 1)).toFixed(0)} bytes each), ${machine.figures().residentRuns} runs left\n`,
  );
}
