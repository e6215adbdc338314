/**
 * Compensations that failed for good: kept until somebody has them executed again with success, or
 * drops them, whatever runs of the name follow.
 *
 * A dead letter is named by the sequence of the event that made it. A replay is an operation beside
 * those of runs, with a number that no run issues and no replay has twice: that fences it.
 */
import { asSeq, type Rejection } from "#core/base";
import { type Compensation, type CompensationFailed, type DeadLetter, EventKind, type Failure } from "#proto";
import type { RunEvent } from "./event.ts";
import { firstReplayOp, openOperation, type Run } from "./state.ts";

/** Compensations of a name that are owed or dead letters, at one time. */
export const compensationCount = (run: Run): number => run.compensations.length + run.deadLetters.length;

export function addDeadLetter(run: Run, entry: Compensation, body: CompensationFailed, at: { seq: number; timeMs: number }): void {
  const { op, name, input, options } = entry;
  const { generation, type } = run;
  const { attempt: attempts, failure } = body;
  const letter = asSeq(at.seq);
  run.deadLetters.push({ letter, generation, op, type, name, input, options, failure, failedMs: at.timeMs, attempts, replay: 0 });
}

function find(run: Run, verb: string, letter: number): DeadLetter | Rejection {
  const found = run.deadLetters.find((one) => one.letter === letter);
  if (found !== undefined) return found;
  const message = `Cannot ${verb} dead letter ${letter} of ${run.run}: it has none of this number, or it was replayed or dropped`;
  return { reject: "DEAD_LETTER_NOT_FOUND", message };
}

/** "already": it is being executed. */
export function decideReplayLetter(run: Run, letter: number): RunEvent | "already" | Rejection {
  const found = find(run, "replay", letter);
  if ("reject" in found) return found;
  if (found.replay > 0) return "already";
  return { kind: EventKind.deadLetterReplayed, body: { letter, op: firstReplayOp + run.replays } };
}

export function decideDropLetter(run: Run, letter: number, reason: string): RunEvent | Rejection {
  const found = find(run, "drop", letter);
  if ("reject" in found) return found;
  const { generation } = found;
  return { kind: EventKind.deadLetterDropped, body: { letter, reason, generation, deadLetters: countOf(run, generation) - 1 } };
}

export function applyLetterReplayed(run: Run, { letter, op }: { letter: number; op: number }, at: { seq: number; timeMs: number }): void {
  run.replays = op - firstReplayOp + 1;
  const found = run.deadLetters.find((one) => one.letter === letter);
  if (found === undefined) return;
  found.replay = op;
  const { nextOp } = run;
  const { name, input, options } = found;
  openOperation(run, at, { op, kind: EventKind.deadLetterReplayed, name, input, options, attempt: 1, delivery: 1 });
  run.nextOp = nextOp;
}

const countOf = (run: Run, of: number) => run.deadLetters.filter(({ generation }) => generation === of).length;

/** What an event says of the letter that a compensation's operation is about. */
export interface LetterPlace {
  /** 0 = the operation is no replay. */
  readonly letter: number;
  readonly generation: number;
  /** Of that generation, once the event is applied. */
  readonly deadLetters: number;
}

/** The letter that this operation replays. */
export function replayed(run: Run, op: number): LetterPlace {
  const found = run.deadLetters.find(({ replay }) => replay === op && op > 0);
  if (found === undefined) return { letter: 0, generation: 0, deadLetters: 0 };
  const { letter, generation } = found;
  return { letter, generation, deadLetters: countOf(run, generation) };
}

/** The letter after a success of this operation, or a failure for good. */
export function letterAfter(run: Run, op: number, hasFailed: boolean): LetterPlace {
  const place = replayed(run, op);
  if (place.letter > 0) return hasFailed ? place : { ...place, deadLetters: place.deadLetters - 1 };
  return hasFailed ? { letter: 0, generation: run.generation, deadLetters: countOf(run, run.generation) + 1 } : place;
}

/** It was executed with success, or is not wanted any more. */
export function settleLetter(run: Run, letter: number): void {
  const replay = run.deadLetters.find((one) => one.letter === letter)?.replay;
  if (replay !== undefined) run.pending.delete(replay);
  run.deadLetters = run.deadLetters.filter((one) => one.letter !== letter);
}

export function failReplay(
  run: Run,
  { letter, attempt, failure }: { letter: number; attempt: number; failure: Failure | undefined },
  timeMs: number,
): void {
  run.deadLetters = run.deadLetters.map((one) =>
    one.letter === letter ? { ...one, replay: 0, failure, failedMs: timeMs, attempts: one.attempts + attempt } : one,
  );
}
