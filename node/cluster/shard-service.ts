/**
 * What other nodes ask of the shards that are led here.
 *
 * The identity of a forwarded command is believed, since only peers reach this. Where the shard is
 * not led here the answer says who leads it, as far as this node knows.
 */
import type { Partition, Reply, SessionId, ShardId } from "#core/base";
import { asSeq, asSessionId, asShardId, HopError, parseRunId, runPartition } from "#core/base";
import { type Command, partitionOfCommand } from "#core/shard";
import {
  decodeForwardedCommand,
  decodeForwardedRead,
  decodeForwardedTask,
  encodeForwardedReply,
  encodeForwardedState,
  encodeHistoryChunk,
  fromBytes,
  type Identity,
  toBytes,
} from "#proto";
import type { PeerNet } from "../peer/peer-net.ts";
import { asHopError } from "../service/status.ts";
import type { ShardPort } from "../shard/shard-port.ts";
import { commandOf, forwardedReplyOf, type LeaderHint } from "./forward-codec.ts";
import type { LocalShards } from "./local-shards.ts";
import { shardCalls } from "./remote-shard.ts";
import type { Router } from "./router.ts";

export interface ShardServiceParts {
  readonly net: PeerNet;
  readonly shards: Pick<LocalShards, "led">;
  readonly router: Pick<Router, "leaseOf" | "isComing" | "arrivals">;
  /** Session in the shard of a worker that is connected here. */
  readonly sessionOf: (workerId: string, shard: ShardId) => SessionId | undefined;
}

interface Forwarded {
  readonly shard: ShardId;
  readonly identity: Identity;
  readonly command: Command;
  /** Aborts when nobody waits for the answer. */
  readonly gone: AbortSignal;
}

/** Where tasks of other nodes' workers come in. */
export const taskCall = "task.done";

const unknownIdentity: Identity = { issuer: "", subject: "", verified: false, causeSeq: 0 };
const noBody = new Uint8Array(0);

export class ShardService {
  private readonly parts: ShardServiceParts;

  constructor(parts: ShardServiceParts) {
    this.parts = parts;
    const { net } = parts;
    net.serve(shardCalls.command, (_, body, gone) => this.command(body, gone));
    net.serve(shardCalls.describe, (_, body) => this.describe(body));
    net.serve(shardCalls.changed, (_, body, gone) => this.changed(body, gone));
    net.serveStream(shardCalls.history, (_, body) => this.history(body));
    net.serve(taskCall, (_, body) => this.task(body));
  }

  private command(body: Uint8Array, gone: AbortSignal): Promise<Uint8Array> {
    const message = fromBytes(decodeForwardedCommand, body);
    const shard = asShardId(message.shard);
    return new Promise((resolve, reject) => {
      const answer = (reply: Reply): void =>
        resolve(
          toBytes(
            encodeForwardedReply,
            forwardedReplyOf(reply, () => this.hint(shard)),
          ),
        );
      const attempt = (work: () => void): void => {
        try {
          work();
        } catch (error) {
          const refused = asHopError(error);
          if (refused.reason === "INTERNAL") reject(refused);
          else answer({ kind: "rejected", rejection: { reject: refused.reason, message: refused.message, epoch: refused.epoch } });
        }
      };
      attempt(() => {
        const command = commandOf(message);
        const carryOut = () => this.carryOut({ shard, identity: message.identity ?? unknownIdentity, command, gone }, answer);
        const { router } = this.parts;
        const partition = partitionOfCommand(command);
        const isComing = () => router.isComing(shard, partition, message.epoch);
        if (!isComing()) return carryOut();
        const stop = router.arrivals.wait(
          () => !isComing(),
          () => attempt(carryOut),
        );
        gone.addEventListener("abort", stop, { once: true });
      });
    });
  }

  private carryOut({ shard, identity, command, gone }: Forwarded, answer: (reply: Reply) => void): void {
    const port = this.port(shard);
    let isAnswered = false;
    const request = port.command(identity, command, (reply) => {
      isAnswered = true;
      answer(reply);
    });
    const forget = (): void => {
      if (!isAnswered) port.forget(request);
    };
    if (gone.aborted) forget();
    else if (!isAnswered) gone.addEventListener("abort", forget, { once: true });
  }

  private async describe(body: Uint8Array): Promise<Uint8Array> {
    const { shard, partition } = fromBytes(decodeForwardedRead, body);
    const port = this.port(asShardId(shard));
    const state = port.describe(partition as Partition);
    if (state !== undefined) await port.settled(partition as Partition);
    return toBytes(encodeForwardedState, { state });
  }

  private async changed(body: Uint8Array, gone: AbortSignal): Promise<Uint8Array> {
    const { shard, partition, seq } = fromBytes(decodeForwardedRead, body);
    await this.port(asShardId(shard)).changed(partition as Partition, asSeq(seq), gone);
    return noBody;
  }

  private async *history(body: Uint8Array): AsyncIterable<Uint8Array> {
    const { shard, partition, seq } = fromBytes(decodeForwardedRead, body);
    for await (const event of this.port(asShardId(shard)).history(partition as Partition, asSeq(seq))) {
      if (event.length > 0) yield toBytes(encodeHistoryChunk, { event });
    }
  }

  /** What a worker said of a task to another node. Its token fences it, so it may come late or twice. */
  private task(body: Uint8Array): Uint8Array {
    const { shard: number, worker, done, heartbeat } = fromBytes(decodeForwardedTask, body);
    const shard = asShardId(number);
    const port = this.port(shard);
    const run = parseRunId((done ?? heartbeat)?.token?.run ?? "");
    if (typeof run !== "string") throw new HopError("BAD_REQUEST", `Cannot take word of a task: its run ${run.problem}`);
    if (!port.owns(runPartition(run))) throw new HopError("STALE_EPOCH", `Cannot take word of a task: ${run} is not of shard ${shard}`);
    const session = this.parts.sessionOf(worker, shard) ?? asSessionId(0);
    if (done !== undefined) port.receive(session, { kind: "taskDone", value: done });
    else if (heartbeat !== undefined) port.receive(session, { kind: "heartbeat", value: heartbeat });
    return noBody;
  }

  private port(shard: ShardId): ShardPort {
    const port = this.parts.shards.led(shard);
    if (port !== undefined) return port;
    throw new HopError("NOT_LEADER", `Cannot serve shard ${shard}: this node does not lead it`, { retryAfterMs: 20 });
  }

  private hint(shard: ShardId): LeaderHint {
    return this.parts.router.leaseOf(shard);
  }
}
