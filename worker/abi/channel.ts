/** What a run does with channels, as its history has it; and what it has read, as its guest is told: JSON, made of the messages as they are. */
import {
  type ChannelReceived,
  decodeChannelAwaited,
  decodeChannelSent,
  decodeMessageBatch,
  EventKind,
  fromBytes,
  type Payload,
} from "#proto";

/** An operation on a channel. */
export type RecordedUse =
  | { readonly kind: "send-channel"; readonly op: number; readonly to: string; readonly payload: Payload | undefined }
  | {
      readonly kind: "read-channel";
      readonly op: number;
      readonly to: string;
      readonly messagesMax: number;
      readonly lingerMs: number;
    };

/** Undefined for events of other kinds. Throws `CodecError`. */
export function recordedUse(kind: number, body: Uint8Array): RecordedUse | undefined {
  if (kind === EventKind.channelSent) {
    const { op, to, payload } = fromBytes(decodeChannelSent, body);
    return { kind: "send-channel", op, to, payload };
  }
  if (kind !== EventKind.channelAwaited) return undefined;
  const { op, to, messagesMax, lingerMs } = fromBytes(decodeChannelAwaited, body);
  return { kind: "read-channel", op, to, messagesMax, lingerMs };
}

const encoder = new TextEncoder();
const empty = encoder.encode("null");
const comma = encoder.encode(",");
const end = encoder.encode("]}");

/** Puts the parts of one read together as they come: the batch, and those of its messages that are blobs. */
export class ReadParts {
  private readonly received: ChannelReceived;
  private readonly done: (value: Uint8Array) => void;
  private batch: Uint8Array | undefined;
  private readonly large: Uint8Array[] = [];
  private missing: number;

  /** `done` is called once, with JSON. */
  constructor(received: ChannelReceived, done: (value: Uint8Array) => void) {
    this.received = received;
    this.done = done;
    this.missing = (received.batch === undefined ? 0 : 1) + received.large.length;
    this.finish();
  }

  /** Throws `CodecError` once all is there and can't be read. */
  putBatch(bytes: Uint8Array): void {
    this.batch = bytes;
    this.missing--;
    this.finish();
  }

  putLarge(at: number, bytes: Uint8Array): void {
    this.large[at] = bytes;
    this.missing--;
    this.finish();
  }

  private finish(): void {
    if (this.missing > 0) return;
    const { received, batch, large } = this;
    const { offset, count, missed, closed, reduced } = received;
    const head = `{"offset":${offset},"count":${reduced?.count ?? count},"missed":${missed},"closed":${closed}`;
    if (reduced !== undefined) return this.done(encoder.encode(`${head},"value":${reduced.value || "null"},"messages":[]}`));
    const messages = batch === undefined ? [] : fromBytes(decodeMessageBatch, batch).message;
    this.done(join(encoder.encode(`${head},"messages":[`), messages, large));
  }
}

function join(head: Uint8Array, messages: readonly Payload[], large: readonly Uint8Array[]): Uint8Array {
  const parts = [head];
  let next = 0;
  for (const [i, { data, ref }] of messages.entries()) {
    if (i > 0) parts.push(comma);
    const bytes = ref === undefined ? data : (large[next++] ?? data);
    parts.push(bytes.length === 0 ? empty : bytes);
  }
  parts.push(end);
  return new Uint8Array(Buffer.concat(parts));
}
