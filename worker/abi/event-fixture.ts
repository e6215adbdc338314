/** Event bytes for tests, as a server would send them. */
import * as p from "#proto";
import { EventKind, toBytes } from "#proto";

const encoder = new TextEncoder();
export const json = (value: unknown): Uint8Array => encoder.encode(JSON.stringify(value));

/** Builds the events of one run, in order; each call gives the event's bytes. */
export class EventLog {
  readonly events: Uint8Array[] = [];
  timeMs = 1_700_000_000_000;

  add<T>(kind: number, encode: p.Encode<T>, body: T): Uint8Array {
    this.timeMs += 1;
    const event = {
      partition: "run/default:r1",
      seq: this.events.length,
      timeMs: this.timeMs,
      kind,
      schemaId: 1,
      payload: toBytes(encode, body),
    };
    const bytes = toBytes(p.encodeEvent, event);
    this.events.push(bytes);
    return bytes;
  }

  started(type: string, input: unknown): Uint8Array {
    return this.add(EventKind.runStarted, p.encodeRunStarted, { generation: 1, type, input: { data: json(input) }, seed: 7 });
  }

  completed(op: number, result: unknown): Uint8Array {
    return this.add(EventKind.activityCompleted, p.encodeActivityCompleted, { op, attempt: 1, result: { data: json(result) } });
  }

  failed(op: number, failure: p.FailureInit): Uint8Array {
    return this.add(EventKind.activityFailed, p.encodeActivityFailed, { op, attempt: 1, failure });
  }

  fired(op: number): Uint8Array {
    return this.add(EventKind.timerFired, p.encodeTimerFired, { op });
  }

  signalled(name: string, value: unknown): Uint8Array {
    return this.add(EventKind.signalReceived, p.encodeSignalReceived, { name, payload: { data: json(value) } });
  }

  cancelRequested(reason: string): Uint8Array {
    return this.add(EventKind.cancelRequested, p.encodeCancelRequested, { reason });
  }

  /** Records a command as Core does. */
  record(command: p.CommandInit, open: ReadonlySet<number>): void {
    const { op = 0, name = "", payload, durationMs = 0, failure } = command;
    switch (command.kind ?? 0) {
      case p.CommandKind.activity:
        this.add(EventKind.activityScheduled, p.encodeActivityScheduled, { op, name, input: payload });
        return;
      case p.CommandKind.spawn: {
        const { to = "", start, closePolicy = 0 } = command;
        this.add(EventKind.childSpawned, p.encodeChildSpawned, { op, to, start: { ...start, type: name }, input: payload, closePolicy });
        return;
      }
      case p.CommandKind.cancelRun: {
        const { to = "", child = 0, reason = "" } = command;
        this.add(EventKind.cancelSent, p.encodeCancelSent, { op, to, child, reason });
        return;
      }
      case p.CommandKind.timer:
        this.add(EventKind.timerStarted, p.encodeTimerStarted, { op, durationMs, dueMs: this.timeMs + durationMs });
        return;
      case p.CommandKind.awaitSignal:
        this.add(EventKind.signalAwaited, p.encodeSignalAwaited, { op, name });
        return;
      case p.CommandKind.sendSignal:
        this.add(EventKind.signalSent, p.encodeSignalSent, { op, to: command.to ?? "", name, payload, number: 1 });
        return;
      case p.CommandKind.yieldChunk:
        this.add(EventKind.chunkYielded, p.encodeChunkYielded, { op, chunk: payload });
        return;
      case p.CommandKind.awaitResult:
        this.add(EventKind.resultAwaited, p.encodeResultAwaited, { op, to: command.to ?? "", number: 1 });
        return;
      case p.CommandKind.answerCall:
        this.add(EventKind.methodAnswered, p.encodeMethodAnswered, { call: op, result: payload, failure });
        return;
      case p.CommandKind.compensate:
        this.add(EventKind.compensationRegistered, p.encodeCompensationRegistered, {
          op,
          name,
          input: payload,
          trigger: command.trigger ?? 0,
        });
        return;
      case p.CommandKind.withdrawCompensation:
        this.add(EventKind.compensationWithdrawn, p.encodeCompensationWithdrawn, { op });
        return;
      case p.CommandKind.cancelOp:
        if (open.has(op)) this.add(EventKind.activityCancelled, p.encodeActivityCancelled, { op });
        return;
      case p.CommandKind.complete:
        this.add(EventKind.runCompleted, p.encodeRunCompleted, { result: payload });
        return;
      case p.CommandKind.fail:
        this.add(EventKind.runFailed, p.encodeRunFailed, { failure });
        return;
      case p.CommandKind.cancelled:
        this.add(EventKind.runCancelled, p.encodeRunCancelled, { reason: failure?.message ?? "" });
    }
  }
}
