/** A channel of a test environment, seen from outside. */
import type { Reply, RunId } from "#core/base";
import {
  type ChannelCommandInit,
  decodeChannelCommand,
  encodeChannelCommand,
  fromBytes,
  type ReducerName,
  reducers,
  toBytes,
} from "#proto";
import type { Driver } from "./driver.ts";
import { refusalOf, toPayload } from "./test-run.ts";
import type { VirtualCore } from "./virtual-core.ts";

export interface TestChannelOptions {
  /** Left out: "none", which keeps each message. */
  readonly reducer?: ReducerName;
  readonly expireMs?: number;
  readonly messagesMax?: number;
  readonly bytesMax?: number;
}

type Asked = ChannelCommandInit extends infer C ? (C extends { kind: string } ? Omit<C, "channel"> : never) : never;

export class TestChannel<T = unknown> {
  /** `namespace:name` */
  readonly id: string;
  private readonly parts: { readonly core: VirtualCore; readonly driver: Driver; readonly nextId: () => number };

  /** @internal */
  constructor(parts: TestChannel["parts"], id: string) {
    this.parts = parts;
    this.id = id;
  }

  /** Resolves with the message's offset, when those that read have gone on as far as they can without time. */
  send(message: T): Promise<number> {
    return this.sendAll([message]);
  }

  /** All in one step. Resolves with the offset of the first. */
  sendAll(messages: readonly T[]): Promise<number> {
    const value = { message: messages.map((one) => toPayload(one) ?? {}), id: `message-${this.parts.nextId()}` };
    return this.ask({ kind: "send", value });
  }

  async open({ reducer = "none", ...rest }: TestChannelOptions = {}): Promise<void> {
    await this.ask({ kind: "open", value: { ...rest, reducer: reducers[reducer] } });
  }

  async close(reason = ""): Promise<void> {
    await this.ask({ kind: "close", value: { reason } });
  }

  private async ask(asked: Asked): Promise<number> {
    const { core, driver } = this.parts;
    await driver.settle();
    const ask = fromBytes(decodeChannelCommand, toBytes(encodeChannelCommand, { ...asked, channel: this.id } as ChannelCommandInit));
    const reply: Promise<Reply> = core.command({ kind: "channel", run: this.id as RunId, ask });
    await driver.settle();
    const done = await reply;
    if (done.kind !== "channelled") throw refusalOf(done);
    return done.answer.offset;
  }
}
