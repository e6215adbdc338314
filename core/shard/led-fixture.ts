/** One shard that is led, with its log and what its node has saved, for tests of what happens to a shard. */
import { asRequestId, asSessionId, asShardId, type Effect, type Partition, type RunId, type TaskEffect } from "#core/base";
import type { SessionCapacity } from "#core/dispatch";
import { type Command, changeOf, type Input, type ShardMachine } from "#core/shard";
import { ActivatedStatus, type CommandInit, CommandKind, decodeWorkerItem, encodeWorkerItem, fromBytes, toBytes } from "#proto";
import { joining, lead, RecordLog, StateTable, soleShard, wholeBirth } from "../../tests/shard-maker.ts";
import { keyOf } from "./shards-fixture.ts";

export const second = asShardId(2);
export const session = asSessionId(1);
const identity = { issuer: "local", subject: "case", verified: false, causeSeq: 0 };
export const epochMs = 1_800_000_000_000;
export const half = 2 ** 47;

type Untimed = Input extends infer I ? (I extends { readonly nowMs: number } ? Omit<I, "nowMs"> : never) : never;

/** A led shard with its log and what its node has saved. */
export class Led {
  nowMs = epochMs;
  readonly machine: ShardMachine;
  readonly log: RecordLog;
  private requests = 0;

  constructor(
    at: { readonly shard?: typeof second; readonly table?: StateTable; readonly log?: RecordLog; readonly birth?: typeof wholeBirth } = {},
  ) {
    const { shard = soleShard, table = new StateTable(), birth = wholeBirth } = at;
    this.log = at.log ?? new RecordLog();
    const { machine, appliedIndex } = table.open(shard, { log: this.log, birth, idleMs: 1000, orphanGraceMs: 500 });
    this.machine = machine;
    this.log.feed(machine, Math.max(appliedIndex, this.log.base) + 1);
  }

  lead(epoch = 1): this {
    lead(this.machine, { nowMs: this.nowMs, appliedIndex: this.log.lastIndex, epoch });
    return this;
  }

  step(input: Untimed): Effect[] {
    return this.machine.step({ ...input, nowMs: this.nowMs } as Input);
  }

  command(command: Command): Effect[] {
    return this.step({ kind: "command", request: asRequestId(++this.requests), identity, command });
  }

  start(run: RunId, awaitResult = false): Effect[] {
    const more = { input: undefined, contention: "reject", idempotencyKey: "", deadlineMs: 0 } as const;
    return this.command({ kind: "start", run, type: "t", bundle: new Uint8Array(32), awaitResult, ...more });
  }

  join(capacity: SessionCapacity, at = session): Effect[] {
    return this.step({ ...joining(at, this.nowMs, { activitySlots: capacity.activitySlots }), capacity });
  }

  joinAs(at: typeof session, capacity: SessionCapacity, hello: { readonly activities: string[]; readonly workerId: string }): Effect[] {
    return this.step({ ...joining(at, this.nowMs, { activitySlots: capacity.activitySlots, ...hello }), capacity });
  }

  /** Answers the activation among the effects. */
  answer(effects: readonly Effect[], ...commands: CommandInit[]): Effect[] {
    const to = effects.find((each) => each.kind === "activate" || each.kind === "replay");
    if (to === undefined || !("handle" in to)) throw new Error("There is no activation");
    const value = { handle: to.handle, activation: "activation" in to ? to.activation : 0, status: ActivatedStatus.ok, commands };
    const item = fromBytes(decodeWorkerItem, toBytes(encodeWorkerItem, { kind: "activated", value }));
    return item.kind === "activated" ? this.step({ kind: "activated", session: to.session, message: item.value }) : [];
  }

  /** Starts a run that waits for one activity. */
  busy(run: RunId): TaskEffect | undefined {
    const effects = this.answer(this.start(run), { kind: CommandKind.activity, op: 1, name: "a" });
    return effects.find((each) => each.kind === "task");
  }

  done(task: TaskEffect, epoch = task.token.epoch): Effect[] {
    const message = { token: { ...task.token, epoch }, result: undefined, failure: undefined };
    return this.step({ kind: "task-done", session: task.session, message });
  }

  advance(ms: number): Effect[] {
    this.nowMs += ms;
    return this.step({ kind: "tick" });
  }

  change(index = this.log.lastIndex) {
    return changeOf(this.log.record(index));
  }
}

function names(count: number, isWanted: (key: number) => boolean): RunId[] {
  const found: RunId[] = [];
  for (let i = 0; found.length < count; i++) if (isWanted(keyOf(`run/n:r${i}` as Partition))) found.push(`n:r${i}` as RunId);
  return found;
}
export const [left, left2] = names(2, (key) => key < half) as [RunId, RunId];
export const [right, right2, right3] = names(3, (key) => key >= half) as [RunId, RunId, RunId];

export const done = (result: readonly Effect[] | { readonly reject: string; readonly message: string }): readonly Effect[] => {
  if ("reject" in result) throw new Error(result.message);
  return result;
};
export const refusal = (effects: readonly Effect[]) => {
  const reply = effects.find((each) => each.kind === "reply");
  return reply?.kind === "reply" && reply.reply.kind === "rejected" ? reply.reply : undefined;
};
export const split = (led: Led, at = half) => done(led.machine.split({ at, child: second }, led.nowMs));
export const birthOf = (led: Led) => {
  const [change] = led.machine.takeChanges().filter(({ change: { kind } }) => kind === "split");
  if (change?.child === undefined) throw new Error("Nothing was born");
  return change.child;
};
