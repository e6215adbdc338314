/**
 * Messages between partitions on their way: an envelope goes to the leader of the receiver's shard,
 * here or at another node, and its answer comes back.
 *
 * An envelope may be lost on the way, or come twice: the sender's shard offers it again, and the
 * receiver's takes each message once.
 */
import type { NodeId, Partition, Rejection, Reply } from "#core/base";
import { asShardId, HopError, limits } from "#core/base";
import {
  decodeEnvelopeReply,
  decodeForwardedEnvelope,
  type Envelope,
  type EnvelopeReply,
  encodeEnvelopeReply,
  encodeForwardedEnvelope,
  fromBytes,
  type Message,
  MessageKind,
  type Payload,
  toBytes,
} from "#proto";
import type { PeerNet } from "../peer/peer-net.ts";
import { asHopError } from "../service/status.ts";
import type { Mail } from "../shard/shard-host.ts";
import type { ShardPort } from "../shard/shard-port.ts";
import type { LocalShards } from "./local-shards.ts";
import type { Router } from "./router.ts";
import { type NewestBundles, withNewest } from "./start-bundles.ts";

export type EnvelopeAnswer = EnvelopeReply | { readonly rejection: Rejection };

export interface MailRoadParts {
  readonly self: NodeId;
  readonly net: PeerNet;
  readonly router: Router;
  readonly shards: Pick<LocalShards, "led">;
  readonly bundles: NewestBundles;
  /** Makes a blob, in place, of what a channel hands out, where that is large; left out: it stays as it is. */
  readonly storeBatch?: (batch: Payload) => Promise<void>;
}

const deliverCall = "mail.deliver";
/** The sender's shard offers again by itself: a silent receiver is not waited for long. */
const deliverMsMax = 5_000;

export class MailRoad implements Mail {
  private readonly parts: MailRoadParts;

  constructor(parts: MailRoadParts) {
    this.parts = parts;
    parts.net.serve(deliverCall, (_, body) => this.receive(body));
  }

  /** `done` is called once. */
  send(to: Partition, envelope: Envelope, done: (answer: EnvelopeAnswer) => void): void {
    const stored = this.storeBatches(envelope);
    if (stored === undefined) return this.carry(to, envelope, done);
    stored.then(
      () => this.carry(to, envelope, done),
      (error: unknown) => done({ rejection: rejectionOf(error) }),
    );
  }

  /** The receiver's event names a batch by its hash: the blob is durable before. Undefined: none is large. */
  private storeBatches({ message }: Envelope): Promise<unknown> | undefined {
    const { storeBatch } = this.parts;
    const isLarge = ({ kind, payload }: Message) =>
      kind === MessageKind.delivered && (payload?.data.length ?? 0) > limits.batchInlineBytesMax;
    if (storeBatch === undefined || !message.some(isLarge)) return undefined;
    return Promise.all(message.filter(isLarge).map(({ payload }) => storeBatch(payload as Payload)));
  }

  private carry(to: Partition, envelope: Envelope, done: (answer: EnvelopeAnswer) => void): void {
    try {
      const place = this.parts.router.place(to);
      const port = this.parts.shards.led(place.shard);
      if (port !== undefined) {
        this.deliver(port, envelope, done);
        return;
      }
      const node = this.parts.router.leaderOf(place);
      if (node === undefined || node === this.parts.self) throw notLed(place.shard);
      const body = toBytes(encodeForwardedEnvelope, { shard: place.shard, envelope });
      this.parts.net.call(node, deliverCall, body, { timeoutMs: deliverMsMax }).then(
        (answer) => done(fromBytes(decodeEnvelopeReply, answer)),
        (error: unknown) => done({ rejection: rejectionOf(error) }),
      );
    } catch (error) {
      const rejection = rejectionOf(error);
      queueMicrotask(() => done({ rejection }));
    }
  }

  private deliver(port: ShardPort, envelope: Envelope, done: (answer: EnvelopeAnswer) => void): void {
    const hand = (whole: Envelope) => void port.envelope(whole, (reply) => done(answerOf(reply)));
    const whole = withNewest(envelope, this.parts.bundles);
    if (whole instanceof Promise) whole.then(hand, (error: unknown) => done({ rejection: rejectionOf(error) }));
    else hand(whole);
  }

  private receive(body: Uint8Array): Promise<Uint8Array> {
    const { shard, envelope } = fromBytes(decodeForwardedEnvelope, body);
    return new Promise((resolve, reject) => {
      const port = this.parts.shards.led(asShardId(shard));
      if (port === undefined || envelope === undefined) {
        reject(envelope === undefined ? new HopError("BAD_REQUEST", "Cannot take an envelope: it is empty") : notLed(shard));
        return;
      }
      this.deliver(port, envelope, (answer) => {
        if ("rejection" in answer) reject(HopError.from(answer.rejection));
        else resolve(toBytes(encodeEnvelopeReply, answer));
      });
    });
  }
}

function answerOf(reply: Reply): EnvelopeAnswer {
  if (reply.kind === "enveloped") return reply.answer;
  if (reply.kind === "rejected") return { rejection: reply.rejection };
  return { rejection: { reject: "INTERNAL", message: `A shard answered an envelope with ${reply.kind}` } };
}

const notLed = (shard: number) =>
  new HopError("NOT_LEADER", `Cannot deliver to shard ${shard}: no node is known to lead it`, { retryAfterMs: 20 });

function rejectionOf(error: unknown): Rejection {
  const { reason, message, retryAfterMs, epoch } = asHopError(error);
  return { reject: reason, message, retryAfterMs, epoch };
}
