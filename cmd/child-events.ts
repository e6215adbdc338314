/** Events about children, for the eye. */
import {
  closePolicyNames,
  decodeCancelSendCancelled,
  decodeCancelSent,
  decodeCancelSettled,
  decodeChildEnded,
  decodeChildSpawned,
  decodeChildStarted,
  EventKind,
  type StartedBy,
} from "#proto";
import { type Kind, kind, words } from "./event-kind.ts";
import { failureText, payloadText, runText } from "./event-text.ts";

const policies: Readonly<Record<number, string>> = closePolicyNames;

/** What becomes of a child when its parent ends, in the words of the SDK. */
export const policyWord = (policy: number): string => policies[policy] ?? `policy ${policy}`;

/** Who started a run, where it was another one. */
export const starterText = ({ partition, generation, op }: StartedBy): string => `${runText(partition)}#${generation}, operation ${op}`;

export const childKinds: Record<number, Kind> = {
  [EventKind.childSpawned]: kind("ChildSpawned", decodeChildSpawned, (m) =>
    words(
      `#${m.op}`,
      `${m.start?.type ?? ""} as ${m.to}`,
      payloadText(m.input),
      m.start !== undefined && m.start.contention !== "" && `contention ${m.start.contention}`,
      `when its parent ends: ${policyWord(m.closePolicy)}`,
    ),
  ),
  [EventKind.childStarted]: kind("ChildStarted", decodeChildStarted, (m) =>
    words(
      `#${m.op}`,
      runText(m.from),
      m.generation > 0 && `generation ${m.generation}`,
      m.generation === 0 && m.ticket > 0 && `queued as ${m.ticket}`,
      m.attached && "attached",
      m.failure !== undefined && failureText(m.failure),
    ),
  ),
  [EventKind.childEnded]: kind("ChildEnded", decodeChildEnded, (m) =>
    words(`#${m.op}`, m.failure === undefined ? payloadText(m.result) : failureText(m.failure), `from ${runText(m.from)}`),
  ),
  [EventKind.cancelSent]: kind("CancelSent", decodeCancelSent, (m) => words(`#${m.op} to ${m.to}`, m.reason)),
  [EventKind.cancelSettled]: kind("CancelSettled", decodeCancelSettled, (m) =>
    words(`#${m.op}`, m.failure !== undefined && failureText(m.failure)),
  ),
  [EventKind.cancelSendCancelled]: kind("CancelSendCancelled", decodeCancelSendCancelled, (m) => `#${m.op}`),
};
