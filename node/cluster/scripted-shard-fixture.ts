/** A shard that answers as a test tells it to, and remembers what it was asked. */
import {
  asRequestId,
  asSessionId,
  HopError,
  type KeyRange,
  type Partition,
  type Reply,
  type RequestId,
  type Seq,
  type SessionId,
  wholeRange,
} from "#core/base";
import type { SessionCapacity } from "#core/dispatch";
import type { Command } from "#core/shard";
import type { DescribeReply, Envelope, Hello, Identity, WorkerItem } from "#proto";
import type { ShardPort, WorkerLink } from "../shard/shard-port.ts";
import { keyOf } from "./shard-map.ts";

export interface Asked {
  readonly identity: Identity;
  readonly command: Command;
  readonly done: (reply: Reply) => void;
  isForgotten: boolean;
}

export class ScriptedShard implements ShardPort {
  range: KeyRange = wholeRange;
  hasLease = true;
  readonly asked: Asked[] = [];
  readonly received: { readonly session: SessionId; readonly item: WorkerItem }[] = [];
  readonly joined: { readonly session: SessionId; readonly hello: Hello; readonly link: WorkerLink; readonly capacity: SessionCapacity }[] =
    [];
  readonly left: SessionId[] = [];
  readonly turns: SessionId[] = [];
  readonly envelopes: Envelope[] = [];
  /** Answers each command; left undefined, commands stay open. */
  answer: ((command: Command) => Reply | undefined) | undefined;
  /** Whether it takes the turn. */
  onTurn: (session: SessionId) => boolean = () => true;
  state: DescribeReply | undefined;
  events: Uint8Array[] = [];
  /** Thrown by reads, once each. */
  readonly failures: HopError[] = [];
  /** Chunks of a history before it fails. */
  chunksBeforeFailure = Number.POSITIVE_INFINITY;
  private nextRequest = 1;
  private nextSession = 1;

  command(identity: Identity, command: Command, done: (reply: Reply) => void): RequestId {
    const request = asRequestId(this.nextRequest++);
    this.asked.push({ identity, command, done, isForgotten: false });
    const reply = this.answer?.(command);
    if (reply !== undefined) done(reply);
    return request;
  }

  forget(request: RequestId): void {
    const asked = this.asked[request - 1];
    if (asked !== undefined) asked.isForgotten = true;
  }

  envelope(envelope: Envelope, done: (reply: Reply) => void): RequestId {
    this.envelopes.push(envelope);
    done({ kind: "enveloped", answer: { taken: envelope.message.length, refusal: [], settled: 0, stale: false, retryAfterMs: 0 } });
    return asRequestId(this.nextRequest++);
  }

  join(hello: Hello, link: WorkerLink, capacity: SessionCapacity): SessionId {
    const session = asSessionId(this.nextSession++);
    this.joined.push({ session, hello, link, capacity });
    return session;
  }

  capacityFreed(session: SessionId): boolean {
    this.turns.push(session);
    return this.onTurn(session);
  }

  leave(session: SessionId): void {
    this.left.push(session);
  }

  receive(session: SessionId, item: WorkerItem): void {
    this.received.push({ session, item });
  }

  isCurrent(): boolean {
    return this.hasLease;
  }

  owns(partition: Partition): boolean {
    const key = keyOf(partition);
    return key >= this.range.first && key <= this.range.last;
  }

  async *history(_: Partition, fromSeq: Seq): AsyncIterable<Uint8Array[]> {
    this.fail();
    let chunks = 0;
    for (let seq: number = fromSeq; seq < this.events.length; seq += 2) {
      if (chunks++ >= this.chunksBeforeFailure) throw notLed();
      yield this.events.slice(seq, seq + 2);
    }
  }

  changed(): Promise<void> {
    this.fail();
    return Promise.resolve();
  }

  describe(): DescribeReply | undefined {
    this.fail();
    return this.state;
  }

  settled(): Promise<void> {
    return Promise.resolve();
  }

  private fail(): void {
    const failure = this.failures.shift();
    if (failure !== undefined) throw failure;
  }
}

export const notLed = () => new HopError("NOT_LEADER", "Shard 1 is not led here now", { retryAfterMs: 20 });

export const rejected = (reject: HopError["reason"], more: object = {}): Reply => ({
  kind: "rejected",
  rejection: { reject, message: `refused with ${reject}` },
  ...more,
});
