/** What became of a run's operations that reach beyond it, as its guest is told. */
import {
  decodeCancelSettled,
  decodeChannelSendSettled,
  decodeChildEnded,
  decodeChildStarted,
  decodeChunkYielded,
  decodeMethodCallAnswered,
  decodeResultReceived,
  decodeSignalSettled,
  EventKind,
  type Failure,
  fromBytes,
  type Payload,
} from "#proto";
import { startPayload } from "./child.ts";

export interface Settlement {
  readonly op: number;
  readonly result: Payload | undefined;
  readonly failure: Failure | undefined;
}

const disconnected: Failure = {
  type: "StreamDisconnectedError",
  message: "Those who consumed the run's stream have left it: nobody is given the chunk",
  stack: "",
  details: undefined,
  nonRetryable: false,
  cause: undefined,
};

/** Undefined for events of other kinds. Throws `CodecError`. */
export function settlementOf(kind: number, body: Uint8Array): Settlement | undefined {
  switch (kind) {
    case EventKind.signalSettled:
      return { ...fromBytes(decodeSignalSettled, body), result: undefined };
    case EventKind.chunkYielded: {
      const { op, refused } = fromBytes(decodeChunkYielded, body);
      return { op, result: undefined, failure: refused ? disconnected : undefined };
    }
    case EventKind.channelSendSettled:
      return { ...fromBytes(decodeChannelSendSettled, body), result: undefined };
    case EventKind.cancelSettled:
      return { ...fromBytes(decodeCancelSettled, body), result: undefined };
    case EventKind.resultReceived:
      return fromBytes(decodeResultReceived, body);
    case EventKind.methodCallAnswered:
      return fromBytes(decodeMethodCallAnswered, body);
    case EventKind.childEnded:
      return fromBytes(decodeChildEnded, body);
    case EventKind.childStarted: {
      const started = fromBytes(decodeChildStarted, body);
      return { op: started.op, result: startPayload(started), failure: started.failure };
    }
    default:
      return undefined;
  }
}
