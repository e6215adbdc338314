/**
 * Frames between the worker and its child, little-endian, read by native/batch.cc.
 *
 * A delivery: u32 length of what follows, u8 kind, u8 flags, u16 0, u32 realm, u32 key, u32 op,
 * f64 nowMs, UTF-8 text. An answer: u32 length of what follows, u8 status, 3 bytes 0, u32 realm,
 * u32 key, UTF-8 text. Both travel in messages: u32 length of what follows, u8 channel, body.
 */
import type { Delivery, GuestRun } from "../guest-host.ts";
import { callOf } from "./kernel-call.ts";
import { deliveryFlag, deliveryKind } from "./protocol.ts";

export const channel = { frames: 1, command: 2 } as const;
/** `usage` is unasked for: `key` is then the realm's heap in KiB. */
export const answerStatus = { ok: 0, limit: 1, lost: 2, crowded: 3, fault: 4, usage: 5 } as const;

const frameHeaderBytes = 28;
const answerHeaderBytes = 16;
const messageHeaderBytes = 5;
const noBytes = new Uint8Array(0);

/** Messages on their way out, gathered in one buffer. */
export class Outbox {
  #bytes = Buffer.allocUnsafeSlow(64 * 1024);
  #length = 0;
  /** Where the message with the current frames begins; -1 = none is open. */
  #message = -1;

  get length(): number {
    return this.#length;
  }

  delivery(realm: number, run: GuestRun, delivery: Delivery, last: boolean): void {
    const { kind, op, head, payload } = callOf(run, delivery);
    const flags = (last ? deliveryFlag.last : 0) | (delivery.replay === true ? deliveryFlag.replay : 0);
    this.frame({ kind, flags, realm, key: run.key, op, nowMs: delivery.nowMs }, head, payload);
  }

  query(realm: number, key: number, name: string, input: Uint8Array): void {
    this.frame({ kind: deliveryKind.query, flags: deliveryFlag.last, realm, key, op: name.length, nowMs: 0 }, name, input);
  }

  drop(realm: number, key: number): void {
    this.frame({ kind: deliveryKind.drop, flags: deliveryFlag.silent, realm, key, op: 0, nowMs: 0 }, "", noBytes);
  }

  command(command: object, texts: readonly string[]): void {
    this.#closeMessage();
    const parts = texts.map((text) => Buffer.from(text));
    const json = Buffer.from(JSON.stringify({ ...command, texts: parts.map((part) => part.length) }));
    const body = parts.reduce((sum, part) => sum + part.length, 4 + json.length);
    this.#need(messageHeaderBytes + body);
    this.#u32(body + 1);
    this.#bytes[this.#length++] = channel.command;
    this.#u32(json.length);
    for (const part of [json, ...parts]) this.#append(part);
  }

  /** Hands the bytes over; they are valid until the next call of another method. */
  take(): Buffer {
    this.#closeMessage();
    const bytes = this.#bytes.subarray(0, this.#length);
    this.#length = 0;
    // A buffer that grew for one large payload is not kept.
    if (this.#bytes.length > 4 * 1024 * 1024) this.#bytes = Buffer.allocUnsafeSlow(64 * 1024);
    return bytes;
  }

  private frame(header: FrameHeader, head: string, payload: Uint8Array): void {
    this.#need(messageHeaderBytes + frameHeaderBytes + head.length * 3 + payload.length);
    if (this.#message < 0) {
      this.#message = this.#length;
      this.#length += messageHeaderBytes;
    }
    const at = this.#length;
    const bytes = this.#bytes;
    bytes[at + 4] = header.kind;
    bytes[at + 5] = header.flags;
    bytes[at + 6] = 0;
    bytes[at + 7] = 0;
    bytes.writeUInt32LE(header.realm, at + 8);
    bytes.writeUInt32LE(header.key, at + 12);
    bytes.writeUInt32LE(header.op, at + 16);
    bytes.writeDoubleLE(header.nowMs, at + 20);
    this.#length = at + frameHeaderBytes;
    if (head !== "") this.#length += bytes.write(head, this.#length);
    if (payload.length > 0) this.#append(payload);
    bytes.writeUInt32LE(this.#length - at - 4, at);
  }

  #closeMessage(): void {
    if (this.#message < 0) return;
    this.#bytes.writeUInt32LE(this.#length - this.#message - 4, this.#message);
    this.#bytes[this.#message + 4] = channel.frames;
    this.#message = -1;
  }

  #append(part: Uint8Array): void {
    this.#bytes.set(part, this.#length);
    this.#length += part.length;
  }

  #u32(value: number): void {
    this.#bytes.writeUInt32LE(value, this.#length);
    this.#length += 4;
  }

  #need(bytes: number): void {
    if (this.#length + bytes <= this.#bytes.length) return;
    const grown = Buffer.allocUnsafeSlow(Math.max(this.#bytes.length * 2, this.#length + bytes));
    this.#bytes.copy(grown, 0, 0, this.#length);
    this.#bytes = grown;
  }
}

interface FrameHeader {
  readonly kind: number;
  readonly flags: number;
  readonly realm: number;
  readonly key: number;
  readonly op: number;
  readonly nowMs: number;
}

export interface Answer {
  readonly status: number;
  readonly realm: number;
  readonly key: number;
  /** A view. */
  readonly text: Buffer;
}

/** Calls `each` for every answer in the body of a frames message. */
export function readAnswers(body: Buffer, each: (answer: Answer) => void): void {
  for (let at = 0; at < body.length; ) {
    const end = at + 4 + body.readUInt32LE(at);
    const status = body[at + 4]!;
    each({ status, realm: body.readUInt32LE(at + 8), key: body.readUInt32LE(at + 12), text: body.subarray(at + answerHeaderBytes, end) });
    at = end;
  }
}

/** Cuts a stream of chunks into messages. */
export class Inbox {
  #chunks: Buffer[] = [];
  #length = 0;
  #wanted = messageHeaderBytes;

  /** `chunk` may be reused by its owner afterwards. `each` gets the channel and the body. */
  push(chunk: Uint8Array, each: (channel: number, body: Buffer) => void): void {
    this.#chunks.push(Buffer.from(chunk));
    this.#length += chunk.length;
    if (this.#length < this.#wanted) return;
    let data = this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks, this.#length);
    while (data.length >= messageHeaderBytes) {
      const end = 4 + data.readUInt32LE(0);
      if (data.length < end) break;
      each(data[4]!, data.subarray(messageHeaderBytes, end));
      data = data.subarray(end);
    }
    this.#wanted = data.length < messageHeaderBytes ? messageHeaderBytes : 4 + data.readUInt32LE(0);
    this.#chunks = data.length === 0 ? [] : [data];
    this.#length = data.length;
  }
}
