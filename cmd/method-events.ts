/** Events of method calls for the eye: of the run that is called, and of the run that calls. */
import {
  decodeMethodAnswered,
  decodeMethodCallAnswered,
  decodeMethodCallCancelled,
  decodeMethodCalled,
  decodeMethodCallSent,
  decodeMethodCallWithdrawn,
  EventKind,
} from "#proto";
import { type Kind, kind, words } from "./event-kind.ts";
import { failureText, payloadText, runText } from "./event-text.ts";

export const methodKinds: Record<number, Kind> = {
  [EventKind.methodCalled]: kind("MethodCalled", decodeMethodCalled, (m) =>
    words(`call ${m.call}`, m.name, payloadText(m.input), m.id !== "" && `id ${m.id}`, m.from !== "" && `from ${runText(m.from)}`),
  ),
  [EventKind.methodAnswered]: kind("MethodAnswered", decodeMethodAnswered, (m) =>
    words(`call ${m.call}`, m.rejected && "rejected:", m.failure === undefined ? payloadText(m.result) : failureText(m.failure)),
  ),
  [EventKind.methodCallCancelled]: kind("MethodCallCancelled", decodeMethodCallCancelled, (m) =>
    words(`call ${m.call}`, m.reason, `from ${runText(m.from)}`),
  ),
  [EventKind.methodCallSent]: kind("MethodCallSent", decodeMethodCallSent, (m) =>
    words(`#${m.op}`, `${m.name} of ${m.to}`, payloadText(m.input), m.propagates && "cancelled with it"),
  ),
  [EventKind.methodCallAnswered]: kind("MethodCallAnswered", decodeMethodCallAnswered, (m) =>
    words(`#${m.op}`, m.failure === undefined ? payloadText(m.result) : failureText(m.failure), `from ${runText(m.from)}`),
  ),
  [EventKind.methodCallWithdrawn]: kind("MethodCallWithdrawn", decodeMethodCallWithdrawn, (m) =>
    words(`#${m.op} of ${m.to}`, m.number > 0 && "cancelled there"),
  ),
};
