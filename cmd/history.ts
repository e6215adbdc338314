/**
 * Events for the eye: what happened, who did it, and what the event says, from its own bytes.
 *
 * An event of a kind that this version does not know is still shown, with its number.
 */

import {
  type ActivityOptions,
  decodeActivityCancelled,
  decodeActivityCompleted,
  decodeActivityFailed,
  decodeActivityRetried,
  decodeActivityScheduled,
  decodeBundleDeployed,
  decodeCancelRequested,
  decodeChunkYielded,
  decodeDeploymentRouted,
  decodeHistoryExpired,
  decodeResultAwaited,
  decodeResultReceived,
  decodeResultWaitCancelled,
  decodeRunBlocked,
  decodeRunCancelled,
  decodeRunCompleted,
  decodeRunFailed,
  decodeRunPaused,
  decodeRunResumed,
  decodeRunStarted,
  decodeRunTerminated,
  decodeRunTimedOut,
  decodeRunUnpaused,
  decodeSearchableSet,
  decodeSignalAwaited,
  decodeSignalQueued,
  decodeSignalReceived,
  decodeSignalSendCancelled,
  decodeSignalSent,
  decodeSignalSettled,
  decodeSignalWaitCancelled,
  decodeStartCancelled,
  decodeStartExpired,
  decodeStartQueued,
  decodeStreamConnected,
  decodeStreamDisconnected,
  decodeSupersedeRequested,
  decodeTimerCancelled,
  decodeTimerFired,
  decodeTimerStarted,
  type Event,
  EventKind,
  fromBytes,
  type HistoryExpired,
  type Identity,
} from "#proto";
import { channelKinds } from "./channel/events.ts";
import { childKinds, starterText } from "./child-events.ts";
import { compensationKinds } from "./compensation-events.ts";
import { formatDuration } from "./duration.ts";
import { type Kind, kind, words } from "./event-kind.ts";
import { failureText, payloadText, runText, shortHash, timeText } from "./event-text.ts";
import { claimantText, keyKinds } from "./key-events.ts";
import { methodKinds } from "./method-events.ts";
import { placementKinds } from "./placement-events.ts";
import { scheduleKinds } from "./schedule/events.ts";
import { statusWord } from "./status.ts";

/** Name and meaning of an event. */
export interface Described {
  readonly name: string;
  readonly summary: string;
  /** The kind's own message, decoded; undefined when the kind is not known. */
  readonly message: object | undefined;
}

const kinds: Record<number, Kind> = {
  [EventKind.runStarted]: kind("RunStarted", decodeRunStarted, (m) =>
    words(
      m.type,
      payloadText(m.input),
      m.generation > 1 && `generation ${m.generation}`,
      m.deadlineMs > 0 && `within ${formatDuration(m.deadlineMs)}`,
      m.ticket > 0 && `queued as ${m.ticket}`,
      m.startedBy !== undefined && `by ${starterText(m.startedBy)}`,
    ),
  ),
  [EventKind.startQueued]: kind("StartQueued", decodeStartQueued, (m) =>
    words(
      m.type,
      payloadText(m.input),
      m.deadlineMs > 0 && `within ${formatDuration(m.deadlineMs)}`,
      m.budgetMs > 0 && `waits at most ${formatDuration(m.budgetMs)}`,
      m.startedBy !== undefined && `by ${starterText(m.startedBy)}`,
    ),
  ),
  [EventKind.startExpired]: kind(
    "StartExpired",
    decodeStartExpired,
    (m) => `queued as ${m.ticket}, not begun within ${formatDuration(m.budgetMs)}`,
  ),
  [EventKind.startCancelled]: kind("StartCancelled", decodeStartCancelled, (m) => words(`queued as ${m.ticket}`, m.reason)),
  [EventKind.supersedeRequested]: kind("SupersedeRequested", decodeSupersedeRequested, (m) =>
    words(`by the start queued as ${m.ticket}:`, m.reason),
  ),
  [EventKind.runCompleted]: kind("RunCompleted", decodeRunCompleted, (m) => payloadText(m.result)),
  [EventKind.runFailed]: kind("RunFailed", decodeRunFailed, (m) => failureText(m.failure)),
  [EventKind.runCancelled]: kind("RunCancelled", decodeRunCancelled, (m) => m.reason),
  [EventKind.runTerminated]: kind("RunTerminated", decodeRunTerminated, (m) => m.reason),
  [EventKind.runTimedOut]: kind("RunTimedOut", decodeRunTimedOut, (m) => `after ${formatDuration(m.deadlineMs)}`),
  [EventKind.runBlocked]: kind("RunBlocked", decodeRunBlocked, (m) => `${m.cause}: ${m.message}`),
  [EventKind.runResumed]: kind("RunResumed", decodeRunResumed, (m) => `on bundle ${shortHash(m.bundle)}`),
  [EventKind.runPaused]: kind("RunPaused", decodeRunPaused, (m) => m.reason),
  [EventKind.runUnpaused]: kind("RunUnpaused", decodeRunUnpaused, (m) => m.reason),
  [EventKind.searchableSet]: kind("SearchableSet", decodeSearchableSet, (m) => `#${m.op} ${m.name} ${m.value}`),
  [EventKind.chunkYielded]: kind("ChunkYielded", decodeChunkYielded, (m) =>
    words(`#${m.op}`, payloadText(m.chunk), m.refused && "(nobody is there)"),
  ),
  [EventKind.streamConnected]: kind("StreamConnected", decodeStreamConnected, () => ""),
  [EventKind.streamDisconnected]: kind(
    "StreamDisconnected",
    decodeStreamDisconnected,
    (m) => `nobody consumes it since ${formatDuration(m.afterMs)}`,
  ),
  [EventKind.cancelRequested]: kind("CancelRequested", decodeCancelRequested, (m) => m.reason),
  [EventKind.historyExpired]: kind("HistoryExpired", decodeHistoryExpired, (m) => expiredText(m)),
  [EventKind.activityScheduled]: kind("ActivityScheduled", decodeActivityScheduled, (m) =>
    words(`#${m.op}`, m.name, payloadText(m.input), optionsText(m.options), m.claim !== undefined && `claims ${m.claim.to}`),
  ),
  [EventKind.activityCompleted]: kind("ActivityCompleted", decodeActivityCompleted, (m) =>
    words(
      `#${m.op}`,
      payloadText(m.result),
      m.by === undefined && attemptText(m.attempt),
      m.worker !== "" && `by ${m.worker}`,
      m.by !== undefined && `executed by ${claimantText(m.by)}`,
    ),
  ),
  [EventKind.activityFailed]: kind("ActivityFailed", decodeActivityFailed, (m) =>
    words(`#${m.op}`, failureText(m.failure), attemptText(m.attempt), m.worker !== "" && `by ${m.worker}`),
  ),
  [EventKind.activityRetried]: kind("ActivityRetried", decodeActivityRetried, (m) =>
    words(`#${m.op}`, failureText(m.failure), attemptText(m.attempt), `again at ${timeText(m.nextMs)}`),
  ),
  [EventKind.activityCancelled]: kind("ActivityCancelled", decodeActivityCancelled, (m) => `#${m.op}`),
  [EventKind.timerStarted]: kind(
    "TimerStarted",
    decodeTimerStarted,
    (m) => `#${m.op} ${formatDuration(m.durationMs)}, due ${timeText(m.dueMs)}`,
  ),
  [EventKind.timerFired]: kind("TimerFired", decodeTimerFired, (m) => `#${m.op}`),
  [EventKind.timerCancelled]: kind("TimerCancelled", decodeTimerCancelled, (m) => `#${m.op}`),
  [EventKind.signalReceived]: kind("SignalReceived", decodeSignalReceived, (m) =>
    words(m.name, payloadText(m.payload), m.id !== "" && `id ${m.id}`, m.from !== "" && `from ${runText(m.from)}`),
  ),
  [EventKind.signalQueued]: kind("SignalQueued", decodeSignalQueued, (m) =>
    words(m.name, payloadText(m.payload), m.id !== "" && `id ${m.id}`, `for the start queued as ${m.ticket}`),
  ),
  [EventKind.signalAwaited]: kind("SignalAwaited", decodeSignalAwaited, (m) => `#${m.op} ${m.name}`),
  [EventKind.signalWaitCancelled]: kind("SignalWaitCancelled", decodeSignalWaitCancelled, (m) => `#${m.op}`),
  [EventKind.signalSent]: kind("SignalSent", decodeSignalSent, (m) => words(`#${m.op}`, `${m.name} to ${m.to}`, payloadText(m.payload))),
  [EventKind.signalSettled]: kind("SignalSettled", decodeSignalSettled, (m) =>
    words(`#${m.op}`, m.failure !== undefined && failureText(m.failure)),
  ),
  [EventKind.signalSendCancelled]: kind("SignalSendCancelled", decodeSignalSendCancelled, (m) => `#${m.op}`),
  [EventKind.resultAwaited]: kind("ResultAwaited", decodeResultAwaited, (m) => `#${m.op} of ${m.to}`),
  [EventKind.resultReceived]: kind("ResultReceived", decodeResultReceived, (m) =>
    words(`#${m.op}`, m.failure === undefined ? payloadText(m.result) : failureText(m.failure), `from ${runText(m.from)}`),
  ),
  [EventKind.resultWaitCancelled]: kind("ResultWaitCancelled", decodeResultWaitCancelled, (m) => `#${m.op} of ${m.to}`),
  ...childKinds,
  ...compensationKinds,
  [EventKind.deploymentRouted]: kind("DeploymentRouted", decodeDeploymentRouted, (m) =>
    words(`${m.type} to version ${m.version}`, m.rampPercent > 0 && `${m.rampPercent} % to version ${m.rampVersion}`, m.reason),
  ),
  [EventKind.bundleDeployed]: kind("BundleDeployed", decodeBundleDeployed, (m) =>
    words(m.types.join(", "), `version ${m.version}`, shortHash(m.bundle)),
  ),
  ...methodKinds,
  ...placementKinds,
  ...scheduleKinds,
  ...channelKinds,
  ...keyKinds,
};

/** What was taken away, and by whose word. */
export function expiredText({ run, policy, policyVersion, policyIdentity, retentionMs }: HistoryExpired): string {
  const last = run.at(-1);
  const runs = words(
    last !== undefined && `${last.type} ${statusWord(last.status)}, ended at ${timeText(last.closedMs)}`,
    run.length > 1 && `and ${run.length - 1} runs before it`,
  );
  return `${runs}; namespace ${policy} keeps histories ${formatDuration(retentionMs)} (version ${policyVersion}, set by ${whoText(policyIdentity)})`;
}

export const kindName = (number: number): string => kinds[number]?.name ?? `kind ${number}`;

/** Throws `CodecError` when the event's payload is damaged. */
export function describe(event: Event): Described {
  const known = kinds[event.kind];
  if (known === undefined) return { name: kindName(event.kind), summary: `${event.payload.length} bytes`, message: undefined };
  return { name: known.name, ...known.describe(event.payload) };
}

/** What an event of this kind says, decoded; undefined when the kind is not known. Throws `CodecError` when it is damaged. */
export function messageOf(kind: number, payload: Uint8Array): object | undefined {
  const known = kinds[kind];
  return known === undefined ? undefined : fromBytes(known.decode, payload);
}

/** Who caused an event: `ada`, `ada (unverified)`, `core after 4`. */
export function whoText(identity: Identity | undefined): string {
  if (identity === undefined) return "unknown";
  if (identity.issuer === "core") return `core after ${identity.causeSeq}`;
  const from = identity.issuer === "" || identity.issuer === "local" ? "" : `@${identity.issuer}`;
  return `${identity.subject}${from}${identity.verified ? "" : " (unverified)"}`;
}

const attemptText = (attempt: number) => attempt > 1 && `attempt ${attempt}`;
const optionsText = (options: ActivityOptions | undefined) => {
  const attempts = options?.retry?.attemptsMax ?? 0;
  return attempts > 0 && `at most ${attempts} attempts`;
};
