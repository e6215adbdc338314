/** Starts that were queued, as callers see them: their addresses, and what the state of their name says of one. */
import { addressText, HopError, type RunAddress, type Started } from "#core/base";
import { refuseUnknown } from "#core/run";
import type { DescribeReply, RunSummary, StartReplyInit } from "#proto";
import { RunStatus } from "#proto";

/** What a start is answered with. */
export function startReplyOf(reply: Started & Pick<StartReplyInit, "place" | "outcome">): StartReplyInit {
  const { run, generation, attached, ticket = 0, place, outcome } = reply;
  return { run: addressText({ run, ticket }), generation, attached, place, outcome };
}

/** State of what the address names. Throws `HopError` RUN_NOT_FOUND where a ticket is not known, or not any more. */
export function stateOf(state: DescribeReply, address: RunAddress): DescribeReply {
  const { run, ticket } = address;
  if (ticket === 0) return state;
  const id = addressText(address);
  if (ticket === state.ticket) return { ...state, summary: state.summary && { ...state.summary, run: id } };
  const blank = {
    run: id,
    generation: 0,
    startedMs: 0,
    closedMs: 0,
    bundle: new Uint8Array(0),
    note: "",
    expiredMs: 0,
    type: "",
    searchable: "{}",
    deadLetters: 0,
  };
  const of = (summary: RunSummary, outcome: DescribeReply["outcome"]): DescribeReply => {
    return { ...state, summary, outcome, pending: [], cancelRequested: false, deadlineAtMs: 0 };
  };
  const place = state.queue.findIndex((one) => one.ticket === ticket);
  const queued = state.queue[place];
  if (queued !== undefined) {
    const { type, bundle } = queued;
    return of({ ...blank, status: RunStatus.queued, type, bundle, note: `place ${place + 1} of the queue` }, undefined);
  }
  const ending = state.ending.find((one) => one.ticket === ticket);
  if (ending === undefined) {
    throw HopError.from(refuseUnknown({ run, generation: state.summary?.generation ?? 0 }, "describe", { ticket, generation: 0 }));
  }
  const { generation, outcome } = ending;
  return of({ ...blank, generation, status: outcome?.status ?? 0, note: outcome?.failure?.message ?? "" }, outcome);
}
