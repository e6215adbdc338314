/** What the events of a run say of its rows. */
import { instanceOf, isCarriedByCore, keyOfDigest, limits, namespaceOf, type Partition, type RunId, runOf, runPartition } from "#core/base";
import {
  decodeCancelRequested,
  decodeChannelClosed,
  decodeChannelOpened,
  decodeCompensationCompleted,
  decodeCompensationFailed,
  decodeDeadLetterDropped,
  decodeHistoryExpired,
  decodeRunBlocked,
  decodeRunCancelled,
  decodeRunFailed,
  decodeRunPaused,
  decodeRunResumed,
  decodeRunStarted,
  decodeRunTerminated,
  decodeScheduleCreated,
  decodeScheduleDeleted,
  decodeSchedulePaused,
  decodeScheduleUpdated,
  decodeSearchableSet,
  decodeUnwindStarted,
  type Event,
  EventKind,
  type Failure,
  fromBytes,
  RunStatus,
  reducerName,
  runStatusNames,
} from "#proto";
import type { StoredRun } from "./schema.ts";

/** `searchable` is what is set, and null where it is taken away. */
export type Columns = Partial<StoredRun>;

/** What an event says goes into the row before it. */
export function changeRow(row: StoredRun, columns: Columns): void {
  const { searchable } = row;
  Object.assign(row, columns);
  if (columns.searchable !== undefined) row.searchable = patched(searchable, columns.searchable);
}

function patched(before: string, patch: string): string {
  const all = { ...(JSON.parse(before) as Record<string, unknown>), ...(JSON.parse(patch) as Record<string, unknown>) };
  return JSON.stringify(
    Object.fromEntries(
      Object.entries(all)
        .filter(([, value]) => value !== null)
        .sort(([a], [b]) => (a < b ? -1 : 1)),
    ),
  );
}

/** Events of other kinds change no row. */
export const changesRow = (kind: number) => (kind >= EventKind.runStarted && kind <= EventKind.historyExpired) || otherKinds.has(kind);

const otherKinds: ReadonlySet<number> = new Set([
  EventKind.channelOpened,
  EventKind.channelClosed,
  EventKind.scheduleCreated,
  EventKind.scheduleUpdated,
  EventKind.schedulePaused,
  EventKind.scheduleResumed,
  EventKind.scheduleDeleted,
  EventKind.runPaused,
  EventKind.runUnpaused,
  EventKind.searchableSet,
  EventKind.unwindStarted,
  EventKind.compensationCompleted,
  EventKind.compensationFailed,
  EventKind.deadLetterDropped,
]);

/** Whose row the partition has; undefined where it has none. A schedule's or a channel's row is named as its partition, so that it is no run's. */
export function rowName(partition: string): RunId | undefined {
  if (isCarriedByCore(partition)) return partition as RunId;
  return partition.startsWith("run/") ? runOf(partition as Partition) : undefined;
}

export const beginsRow = (kind: number) =>
  kind === EventKind.runStarted || kind === EventKind.scheduleCreated || kind === EventKind.channelOpened;

/** The row that a start in the record at `index` begins. */
export function startedRow(run: RunId, event: Event, index: number): StoredRun {
  const { generation, type, bundle, paused = false } = begunBy(event);
  const address = isCarriedByCore(run) ? runOf(run as string as Partition) : run;
  return {
    key: keyOf(run),
    run,
    generation,
    namespace: namespaceOf(address),
    instance: instanceOf(address),
    type,
    status: paused ? RunStatus.paused : RunStatus.running,
    started_ms: event.timeMs,
    closed_ms: 0,
    bundle,
    note: "",
    cancel_requested: 0,
    last_index: index,
    expired_ms: 0,
    searchable: "{}",
    dead_letters: 0,
  };
}

interface Begun {
  readonly generation: number;
  readonly type: string;
  readonly bundle: Uint8Array;
  readonly paused?: boolean;
}

function begunBy({ kind, payload }: Event): Begun {
  if (kind === EventKind.runStarted) return fromBytes(decodeRunStarted, payload);
  if (kind === EventKind.channelOpened) {
    const { generation, config } = fromBytes(decodeChannelOpened, payload);
    return { generation, type: reducerName(config?.reducer ?? 0), bundle: new Uint8Array(0) };
  }
  const { generation, config, paused } = fromBytes(decodeScheduleCreated, payload);
  return { generation, type: config?.action?.type ?? "", bundle: new Uint8Array(0), paused };
}

/** The rows that are left of ended runs, when the event in the record at `index` gives their histories up. */
export function expiredRows(run: RunId, event: Event, index: number): StoredRun[] {
  return fromBytes(decodeHistoryExpired, event.payload).run.map(({ generation, type, status, startedMs, closedMs, bundle, note }) => ({
    key: keyOf(run),
    run,
    generation,
    namespace: namespaceOf(run),
    instance: instanceOf(run),
    type,
    status,
    started_ms: startedMs,
    closed_ms: closedMs,
    bundle: bundle.slice(),
    note,
    cancel_requested: 0,
    last_index: index,
    expired_ms: event.timeMs,
    searchable: "{}",
    dead_letters: 0,
  }));
}

/** What an event other than a start changes; of the newest row, unless it names a generation. */
export function changedBy(event: Event): Columns {
  switch (event.kind) {
    case EventKind.cancelRequested:
      return { cancel_requested: 1, note: cut(fromBytes(decodeCancelRequested, event.payload).reason) };
    case EventKind.runBlocked:
      return { status: RunStatus.blocked, note: cut(fromBytes(decodeRunBlocked, event.payload).message) };
    case EventKind.scheduleUpdated:
      return { type: fromBytes(decodeScheduleUpdated, event.payload).config?.action?.type ?? "" };
    case EventKind.schedulePaused:
      return { status: RunStatus.paused, note: cut(fromBytes(decodeSchedulePaused, event.payload).reason) };
    case EventKind.scheduleResumed:
      return { status: RunStatus.running, note: "" };
    case EventKind.runResumed:
      return { status: RunStatus.running, note: "", bundle: fromBytes(decodeRunResumed, event.payload).bundle };
    case EventKind.searchableSet: {
      const { name, value } = fromBytes(decodeSearchableSet, event.payload);
      return { searchable: `{${JSON.stringify(name)}:${value}}` };
    }
    case EventKind.runPaused:
      return { status: RunStatus.paused, note: cut(fromBytes(decodeRunPaused, event.payload).reason) };
    case EventKind.runUnpaused:
      return { status: RunStatus.running, note: "" };
    case EventKind.unwindStarted:
      return { status: RunStatus.compensating, note: cut(unwindNote(event.payload)) };
    case EventKind.compensationCompleted: {
      const { letter, generation, deadLetters } = fromBytes(decodeCompensationCompleted, event.payload);
      return letter === 0 ? {} : { generation, dead_letters: deadLetters };
    }
    case EventKind.compensationFailed: {
      const { generation, deadLetters } = fromBytes(decodeCompensationFailed, event.payload);
      return { generation, dead_letters: deadLetters };
    }
    case EventKind.deadLetterDropped: {
      const { generation, deadLetters } = fromBytes(decodeDeadLetterDropped, event.payload);
      return { generation, dead_letters: deadLetters };
    }
    default: {
      const { status, note } = endOf(event);
      return { status, note: cut(note), closed_ms: event.timeMs };
    }
  }
}

function endOf(event: Event): { status: number; note: string } {
  switch (event.kind) {
    case EventKind.runCompleted:
      return { status: RunStatus.completed, note: "" };
    case EventKind.runFailed:
      return { status: RunStatus.failed, note: failureText(event.payload) };
    case EventKind.runCancelled:
      return { status: RunStatus.cancelled, note: fromBytes(decodeRunCancelled, event.payload).reason };
    case EventKind.channelClosed:
      return { status: RunStatus.completed, note: fromBytes(decodeChannelClosed, event.payload).reason };
    case EventKind.scheduleDeleted:
      return { status: RunStatus.terminated, note: fromBytes(decodeScheduleDeleted, event.payload).reason };
    case EventKind.runTerminated:
      return { status: RunStatus.terminated, note: fromBytes(decodeRunTerminated, event.payload).reason };
    default:
      return { status: RunStatus.timedOut, note: "" };
  }
}

/** How it ends, once its compensations are executed. */
function unwindNote(payload: Uint8Array): string {
  const { status, failure, reason } = fromBytes(decodeUnwindStarted, payload);
  const name = runStatusNames[status as keyof typeof runStatusNames] ?? `status ${status}`;
  const why = textOf(failure) || reason;
  return why === "" ? `to be ${name}` : `to be ${name}: ${why}`;
}

function failureText(payload: Uint8Array): string {
  return textOf(fromBytes(decodeRunFailed, payload).failure);
}

function textOf(failure: Failure | undefined): string {
  return failure === undefined ? "" : `${failure.type}: ${failure.message}`;
}

/** A note is one line of a table; the whole text is in the history. */
const cut = (text: string) => text.slice(0, limits.noteCharsMax).toWellFormed();

export function keyOf(run: RunId): number {
  return keyOfDigest(new Uint8Array(Bun.SHA256.hash(isCarriedByCore(run) ? run : runPartition(run)).buffer));
}
