/** A run's state to and from the bytes that a checkpoint keeps. */
import type { Partition, RunId } from "#core/base";
import { MessageKind, type RunState, type RunStateInit, type RunStatus, type StreamState } from "#proto";
import { loadChannel, saveChannel } from "./channel-state.ts";
import { loadAwaiters } from "./inbox.ts";
import { emptyRun, type Operation, type Run } from "./state.ts";

/** Raised with every change of meaning: another number is rebuilt from the log. */
export const stateFormat = 2;

export function saveRun(run: Run): RunStateInit {
  return {
    format: stateFormat,
    generation: run.generation,
    type: run.type,
    bundle: run.bundle,
    status: run.status,
    seed: run.seed,
    startedMs: run.startedMs,
    deadlineAtMs: run.deadlineAtMs,
    closedMs: run.closedMs,
    usedKeys: run.usedKeys,
    ticket: run.ticket,
    startedBy: run.startedBy,
    schedule: run.schedule,
    channel: saveChannel(run.channel),
    reads: [...run.reads].map(([channel, offset]) => ({ channel, offset })),
    key: run.key,
    queue: run.queue,
    ending: run.endings,
    cancelRequested: run.cancelRequested,
    compensation: run.compensations,
    decided: run.decided,
    deadLetter: run.deadLetters,
    replays: run.replays,
    nextOp: run.nextOp,
    firstSeq: run.firstSeq,
    pending: [...run.pending.values()],
    result: run.result,
    failure: run.failure,
    note: run.note,
    recentSignalIds: run.signalIds,
    searchable: [...run.searchable].map(([name, value]) => ({ name, value })),
    stream: run.stream,
    unclaimed: [...run.unclaimed].map(([name, count]) => ({ name, count })),
    openCall: [...run.calls.values()],
    answeredCall: run.answeredCalls,
    lastCall: run.lastCall,
    ...saveMessages(run),
    deliveredSeq: run.deliveredSeq,
    deliverableEnd: run.deliverableEnd,
    expiredEnd: run.expiredEnd,
  };
}

function saveMessages(run: Run): RunStateInit {
  const unsettled = [...run.outbox].map(([receiver, { next, messages }]) => ({ receiver, next, message: messages }));
  const settled = [...run.settledTo].map(([receiver, next]) => ({ receiver, next }));
  return {
    outbox: [...unsettled, ...settled],
    numberFloor: run.numberFloor,
    messagesSent: run.messagesSent,
    inbox: [...run.inbox].map(([sender, { taken, refused }]) => ({ sender, taken, refusal: refused })),
    awaiter: [...run.awaiters.values()],
    owed: [...run.owed.values()].map(({ result }) => result),
  };
}

function loadMessages(saved: RunState): Partial<Run> {
  const pairs = saved.outbox.map(({ receiver, next, message }) => ({ receiver: receiver as Partition, next, messages: message }));
  const told = pairs.flatMap(({ messages }) => messages);
  const results = told.filter(({ kind }) => kind === MessageKind.result);
  return {
    outbox: new Map(pairs.filter((p) => p.messages.length > 0).map(({ receiver, next, messages }) => [receiver, { next, messages }])),
    settledTo: new Map(pairs.filter((p) => p.messages.length === 0).map(({ receiver, next }) => [receiver, next])),
    unsettled: told.length,
    numberFloor: saved.numberFloor,
    messagesSent: saved.messagesSent,
    inbox: new Map(saved.inbox.map(({ sender, taken, refusal }) => [sender as Partition, { taken, refused: refusal }])),
    awaiters: loadAwaiters(saved.awaiter),
    owed: new Map(
      saved.owed.map((result) => [result.generation, { result, count: results.filter((m) => m.of === result.generation).length }]),
    ),
  };
}

/** The saved state must be of `stateFormat`. */
export function loadRun(run: RunId, saved: RunState): Run {
  const copy = emptyRun(run);
  const pending = saved.pending.map((o): [number, Operation] => [
    o.op,
    { ...o, kind: o.kind as Operation["kind"], key: o.key as Operation["key"] },
  ]);
  return Object.assign(copy, {
    generation: saved.generation,
    type: saved.type,
    bundle: saved.bundle.slice(),
    status: saved.status as RunStatus,
    seed: saved.seed,
    startedMs: saved.startedMs,
    deadlineAtMs: saved.deadlineAtMs,
    closedMs: saved.closedMs,
    usedKeys: saved.usedKeys.map((used) => ({ ...used, inputHash: used.inputHash.slice() })),
    ticket: saved.ticket,
    startedBy: saved.startedBy,
    schedule: saved.schedule,
    channel: loadChannel(saved.channel),
    reads: new Map(saved.reads.map(({ channel, offset }) => [channel, offset])),
    key: saved.key,
    queue: saved.queue,
    endings: saved.ending,
    cancelRequested: saved.cancelRequested,
    compensations: saved.compensation,
    decided: saved.decided,
    deadLetters: saved.deadLetter,
    replays: saved.replays,
    nextOp: saved.nextOp,
    firstSeq: saved.firstSeq,
    pending: new Map(pending),
    result: saved.result,
    failure: saved.failure,
    note: saved.note,
    signalIds: saved.recentSignalIds,
    searchable: new Map(saved.searchable.map(({ name, value }) => [name, value])),
    stream: saved.stream as StreamState,
    unclaimed: new Map(saved.unclaimed.map((u) => [u.name, u.count])),
    calls: new Map(saved.openCall.map((one) => [one.call, one])),
    answeredCalls: saved.answeredCall,
    lastCall: saved.lastCall,
    ...loadMessages(saved),
    deliveredSeq: saved.deliveredSeq,
    deliverableEnd: saved.deliverableEnd,
    expiredEnd: saved.expiredEnd,
  });
}
