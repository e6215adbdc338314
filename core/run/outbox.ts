/**
 * What a run has told other partitions and not yet heard to be taken: the sender's half of
 * messages between partitions.
 *
 * Messages to one receiver are numbered from 1 without gaps over all generations of the run. Each
 * follows from an event of this partition (a signal sent, a result awaited, a run ended) or from a
 * wait that was registered here after the run's end, so that the log alone makes the outbox anew;
 * it shrinks by `OutboxSettled`. Messages outlive the operation, and the run, that sent them.
 *
 * Numbers of receivers with which all is settled are kept for the latest of them only. A receiver
 * that is met again later begins at `numberFloor`, above every number that was dropped: numbers
 * between two partitions only grow, and an envelope says which of them are settled.
 */
import { limits, noBytes, type Partition, type RunId, runPartition } from "#core/base";
import { decodeMessage, fromBytes, type Message, MessageKind, type OutboxSettled, type OwedResult } from "#proto";
import { withBatch } from "./channel-state.ts";
import type { Run } from "./state.ts";

/** Messages that were not settled, in order; there is at least one. */
export interface Pair {
  next: number;
  readonly messages: Message[];
}

/** How a generation ended, and how many messages are to tell it. */
export interface Owed {
  readonly result: OwedResult;
  count: number;
}

/** Of a run by its address, `namespace:instance`. */
export const partitionOf = (address: string): Partition => runPartition(address as RunId);

/** Number that the next message to `to` has. */
export function nextNumber(run: Run, to: Partition): number {
  return run.outbox.get(to)?.next ?? run.settledTo.get(to) ?? run.numberFloor;
}

/** All messages to `to` up to this number are settled. */
export function settledThrough(run: Run, to: Partition): number {
  return (run.outbox.get(to)?.messages[0]?.number ?? nextNumber(run, to)) - 1;
}

/** A message that says nothing. */
export const blankMessage: Message = fromBytes(decodeMessage, noBytes);

export function enqueue(run: Run, to: Partition, message: Pick<Message, "kind" | "op" | "generation"> & Partial<Message>): void {
  const number = nextNumber(run, to);
  const pair = run.outbox.get(to) ?? { next: number, messages: [] };
  pair.messages.push({ ...blankMessage, ...message, number });
  pair.next = number + 1;
  run.settledTo.delete(to);
  run.outbox.set(to, pair);
  run.messagesSent++;
  run.unsettled++;
}

/** A wait of a run elsewhere for this one's result. */
export interface ResultWaiter {
  readonly partition: Partition;
  readonly generation: number;
  readonly op: number;
}

export const waiterKey = (waiter: ResultWaiter) => `${waiter.partition}#${waiter.generation}.${waiter.op}`;

/** Owes a waiter how the generation ended. What is said is kept once, however many are told. */
export function owe(run: Run, to: ResultWaiter, result: OwedResult): void {
  const of = result.generation;
  const owed = run.owed.get(of);
  if (owed === undefined) run.owed.set(of, { result, count: 1 });
  else owed.count++;
  enqueue(run, to.partition, { kind: MessageKind.result, op: to.op, generation: to.generation, of });
}

/** The message as it travels. */
export function outgoing(run: Run, message: Message): Message {
  if (message.kind === MessageKind.delivered) return withBatch(run.channel, message);
  if (message.kind !== MessageKind.result) return message;
  const owed = run.owed.get(message.of)?.result;
  return owed === undefined ? message : { ...message, payload: owed.result, status: owed.status, failure: owed.failure, by: owed.by };
}

/** The receiver has taken all messages up to `through`, be it that a restore made this run forget that it sent them. */
export function applySettled(run: Run, fact: OutboxSettled): void {
  const receiver = fact.receiver as Partition;
  const pair = run.outbox.get(receiver);
  if (pair === undefined) {
    if (fact.through >= nextNumber(run, receiver)) keepNumber(run, receiver, fact.through + 1);
    return;
  }
  let count = 0;
  for (const message of pair.messages) {
    if (message.number > fact.through) break;
    count++;
    if (message.kind === MessageKind.result) release(run, message.of);
  }
  pair.messages.splice(0, count);
  run.unsettled -= count;
  if (pair.messages.length > 0) return;
  run.outbox.delete(receiver);
  keepNumber(run, receiver, pair.next);
}

function release(run: Run, generation: number): void {
  const owed = run.owed.get(generation);
  if (owed !== undefined && --owed.count === 0) run.owed.delete(generation);
}

function keepNumber(run: Run, receiver: Partition, next: number): void {
  run.settledTo.set(receiver, next);
  if (run.settledTo.size <= limits.settledReceiversKept) return;
  const [oldest] = run.settledTo;
  if (oldest === undefined) return;
  run.settledTo.delete(oldest[0]);
  run.numberFloor = Math.max(run.numberFloor, oldest[1]);
}
