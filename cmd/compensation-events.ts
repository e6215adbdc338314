/** Events about compensations, for the eye. */
import {
  CompensationTrigger,
  decodeCompensationCompleted,
  decodeCompensationFailed,
  decodeCompensationRegistered,
  decodeCompensationRetried,
  decodeCompensationStarted,
  decodeCompensationWithdrawn,
  decodeDeadLetterDropped,
  decodeDeadLetterReplayed,
  decodeUnwindEnded,
  decodeUnwindStarted,
  EventKind,
} from "#proto";
import { type Kind, kind, words } from "./event-kind.ts";
import { failureText, payloadText, runText, timeText } from "./event-text.ts";
import { statusWord } from "./status.ts";

export const compensationKinds: Record<number, Kind> = {
  [EventKind.compensationRegistered]: kind("CompensationRegistered", decodeCompensationRegistered, (m) =>
    words(`#${m.op}`, m.name, payloadText(m.input), m.trigger === CompensationTrigger.always && "always"),
  ),
  [EventKind.compensationWithdrawn]: kind("CompensationWithdrawn", decodeCompensationWithdrawn, (m) => `#${m.op}`),
  [EventKind.unwindStarted]: kind("UnwindStarted", decodeUnwindStarted, (m) =>
    words(
      `to be ${statusWord(m.status)}`,
      m.failure !== undefined && failureText(m.failure),
      m.reason,
      m.from !== "" && `asked by ${runText(m.from)}`,
      `with ${countText(m.owed)}`,
    ),
  ),
  [EventKind.compensationStarted]: kind("CompensationStarted", decodeCompensationStarted, (m) => `#${m.op} key ${m.idempotencyKey}`),
  [EventKind.compensationCompleted]: kind("CompensationCompleted", decodeCompensationCompleted, (m) =>
    words(undoText(m), payloadText(m.result), attemptText(m.attempt), m.worker !== "" && `by ${m.worker}`),
  ),
  [EventKind.compensationRetried]: kind("CompensationRetried", decodeCompensationRetried, (m) =>
    words(undoText(m), failureText(m.failure), attemptText(m.attempt), `again at ${timeText(m.nextMs)}`),
  ),
  [EventKind.compensationFailed]: kind("CompensationFailed", decodeCompensationFailed, (m) =>
    words(undoText(m), failureText(m.failure), attemptText(m.attempt), m.worker !== "" && `by ${m.worker}`),
  ),
  [EventKind.unwindEnded]: kind("UnwindEnded", decodeUnwindEnded, (m) =>
    words(`${countText(m.completed)} executed`, m.failed > 0 && `${m.failed} left as dead letters`),
  ),
  [EventKind.deadLetterReplayed]: kind("DeadLetterReplayed", decodeDeadLetterReplayed, (m) => `dead letter ${m.letter}`),
  [EventKind.deadLetterDropped]: kind("DeadLetterDropped", decodeDeadLetterDropped, (m) => words(`dead letter ${m.letter}:`, m.reason)),
};

const countText = (count: number) => (count === 1 ? "1 compensation" : `${count} compensations`);
/** In an unwind, or in the replay of what it left. */
const undoText = ({ op, letter }: { readonly op: number; readonly letter: number }) => (letter === 0 ? `#${op}` : `dead letter ${letter}`);

const attemptText = (attempt: number) => attempt > 1 && `attempt ${attempt}`;
