/**
 * The client of a Hopskip cluster.
 *
 * Starts, signals, results, cancellations and queries share one stream (`session.ts`); the rest
 * are calls. It connects when it is first used and again after a loss, at any member of the
 * cluster, and whatever may safely be sent twice is, until `retryMs` of an outage have passed.
 */
import { Metadata } from "@grpc/grpc-js";
import type {
  Deployment,
  DeployReply,
  DescribeReply,
  HistoryChunk,
  ListDeploymentsReply,
  ListReply,
  ListRequestInit,
  RouteRequestInit,
  StartReply,
  StartRequestInit,
  StreamItem,
  StreamRequest,
} from "#proto";
import { clientMethods } from "#proto/descriptors";
import { ChannelClient } from "./channels.ts";
import { ClusterClient } from "./cluster-client.ts";
import { addressList, Endpoints } from "./endpoints.ts";
import { HopError, MethodFailedError } from "./errors.ts";
import { nameOf, type SignalType } from "./message-types.ts";
import { milliseconds } from "./milliseconds.ts";
import { completedValue, type Outcome, readOutcome } from "./outcome.ts";
import { fromPayload, toPayload } from "./payload.ts";
import { Pulse } from "./pulse.ts";
import { backoffMs, isRetryable, withRetry } from "./retry.ts";
import { type Channel, call, learnNodes, stream } from "./rpc.ts";
import { type Chunk, type HistoryOptions, RunHandle, type WaitOptions } from "./run-handle.ts";
import { ScheduleClient } from "./schedules.ts";
import { type Answer, type Ask, type AskKind, ClientSession, type ConnectionState } from "./session.ts";
import { type InputOf, type OutputOf, typeName, type WorkflowRef } from "./workflow.ts";

export interface ClientOptions {
  /**
   * host:port or unix:path of a node, or of several: "a:7070,b:7070" is a list too. The first that
   * answers is used and tells of the others. Left out: 127.0.0.1:7070.
   */
  readonly address?: string | readonly string[];
  /** Left out: "default". */
  readonly namespace?: string;
  /** Name of the caller, kept with what it does; a development cluster believes it. */
  readonly identity?: string;
  /** How long an outage may last before what waits for its end fails; left out: 30 s. */
  readonly retryMs?: number;
  /** Told once when the stream that carries requests is lost, and once when it is back. */
  readonly onConnection?: (state: ConnectionState) => void;
  /** Told what is in the way, and again when that changes, while something has been tried again for a while. */
  readonly onWaiting?: (problem: string) => void;
}

export interface StartOptions {
  /** Business name of the run; left out: a unique one is made. */
  readonly instance?: string;
  /**
   * What to do where a run of the instance is live: "attach" to it (so where left out), "reject" the start,
   * "queue" behind it and those that wait already, or "supersede" it, which ends it at once.
   */
  readonly contention?: "attach" | "reject" | "queue" | "supersede";
  /** Why the live run is ended: "supersede" demands it, and it is kept in that run's history. */
  readonly overrideReason?: string;
  /** Longest time in the queue in milliseconds, from when the start was taken; then its run never begins. */
  readonly budgetMs?: number;
  /**
   * Received by the run that the start makes or meets, in one step with it: never one without the other.
   * `id`: the same one twice is one signal; left out, one is made.
   */
  readonly signal?: StartedSignal;
  /** Starts with the same key, type and input are one start. */
  readonly idempotencyKey?: string;
  /** Time the run may take in all, in milliseconds. */
  readonly deadlineMs?: number;
  /** SHA-256 of the bundle to run on; left out: the newest deployment of the type. */
  readonly bundle?: Uint8Array;
}

export interface StartedSignal {
  readonly name: string;
  readonly value?: unknown;
  readonly id?: string;
}

const alphabet = "0123456789abcdefghjkmnpqrstvwxyz";

/** 80 random bits in base32. */
function randomName(): string {
  let out = "";
  for (const byte of crypto.getRandomValues(new Uint8Array(16))) out += alphabet[byte & 31];
  return out;
}

export class HopClient {
  /** What was given, as a list with commas. */
  readonly address: string;
  readonly namespace: string;
  /** For those who run the cluster. */
  readonly cluster: ClusterClient;
  /** What starts runs at its times. */
  readonly schedules: ScheduleClient;
  /** Messages between any senders and any readers. */
  readonly channels: ChannelClient;
  private readonly endpoints: Endpoints;
  private readonly session: ClientSession;
  private readonly channel: Channel;
  /** It was asked once where the other nodes are: a session is told of changes. */
  private hasLearned = false;

  private constructor(options: ClientOptions) {
    const { address = "127.0.0.1:7070", namespace = "default", identity, retryMs = 30_000, onConnection = () => {} } = options;
    const given = addressList(address);
    this.address = given.join(",");
    this.namespace = namespace;
    const metadata = new Metadata();
    if (identity !== undefined) metadata.set("hop-user", encodeURIComponent(identity));
    const endpoints = new Endpoints(given);
    this.endpoints = endpoints;
    const pulse = new Pulse(endpoints, (endpoint, heard) => learnNodes({ endpoints, metadata }, endpoint, heard));
    const onAnswered = () => {
      if (this.hasLearned) return;
      this.hasLearned = true;
      learnNodes(this.channel);
    };
    let shown = "";
    const onWaiting = (problem: string) => {
      if (problem !== shown) options.onWaiting?.(problem);
      shown = problem;
    };
    this.channel = { endpoints, metadata, pulse, retryMs, onAnswered, onWaiting };
    this.cluster = new ClusterClient(this.channel);
    this.schedules = new ScheduleClient(this.channel, namespace);
    this.session = new ClientSession({ endpoints, metadata, pulse, retryMs, onConnection, onWaiting });
    this.channels = new ChannelClient({
      road: this.channel,
      namespace,
      ask: (value) => this.session.ask<"channel">({ kind: "channel", value }, true),
      messages: (channel, given) => this.chunks(channel, { ...given, channel: true }),
      freshId: () => `m_${randomName()}`,
    });
  }

  /** A client of the cluster with a node at `address`. Nothing is sent before the first use. */
  static connect(options: ClientOptions = {}): HopClient {
    return new HopClient(options);
  }

  /** Ends the connection; what is open fails. */
  close(): void {
    this.session.close();
    this.endpoints.close();
  }

  /**
   * Starts a run and resolves when the start is durable. A start that is sent again after a lost
   * connection meets its own run. Rejects with `WorkflowNotDeployedError`, `InstanceLiveError` or
   * another `HopError`.
   */
  async start<W extends WorkflowRef>(workflow: W, input?: InputOf<W>, options: StartOptions = {}): Promise<RunHandle<OutputOf<W>>> {
    const reply = await this.send(workflow, input, { ...options, awaitResult: false });
    const { run: id, generation, attached: isAttached, place: queuePlace } = reply;
    return new RunHandle<OutputOf<W>>(this, { id, generation, isAttached, queuePlace });
  }

  /** Signals the run of an instance, and starts it where none is live, in one step. Throws like `start`. */
  async signalWithStart<W extends WorkflowRef, T>(
    workflow: W,
    start: { readonly instance: string; readonly input?: InputOf<W>; readonly options?: Omit<StartOptions, "instance" | "signal"> },
    named: string | SignalType<T>,
    value?: T,
  ): Promise<RunHandle<OutputOf<W>>> {
    const { instance, input, options } = start;
    return this.start(workflow, input, { ...options, instance, signal: { name: nameOf(named), value } });
  }

  /** Starts a run and waits for its value, in one request. Throws like `start` and `RunHandle.result`. */
  async execute<W extends WorkflowRef>(workflow: W, input?: InputOf<W>, options: StartOptions = {}): Promise<OutputOf<W>> {
    const reply = await this.send(workflow, input, { ...options, awaitResult: true });
    const outcome = await readOutcome(reply.outcome, this.fetchBlob);
    return completedValue(reply.run, outcome) as OutputOf<W>;
  }

  /** A handle of a run by its id (namespace:instance), or by its instance in this client's namespace. */
  handle<Output = unknown>(run: string | { readonly instance: string }): RunHandle<Output> {
    const id = typeof run === "string" ? run : `${this.namespace}:${run.instance}`;
    return new RunHandle<Output>(this, { id });
  }

  async outcome(run: string, options: WaitOptions & { readonly generation?: number } = {}): Promise<Outcome> {
    const { generation = 0 } = options;
    const waitMs = milliseconds("waitMs", options.waitMs);
    const reply = await this.session.ask<"result">({ kind: "result", value: { run, waitMs, generation } }, true);
    return readOutcome(reply.outcome, this.fetchBlob);
  }

  async signal(run: string, signal: { readonly name: string; readonly value?: unknown; readonly id?: string }): Promise<void> {
    const { name, value, id = `s_${randomName()}` } = signal;
    await this.session.ask<"signal">({ kind: "signal", value: { run, name, payload: toPayload(value), id } }, true);
  }

  async query(run: string, query: { readonly name: string; readonly input?: unknown }): Promise<unknown> {
    const value = { run, name: query.name, input: toPayload(query.input) };
    const reply = await this.session.ask<"query">({ kind: "query", value }, true);
    return fromPayload(reply.result, this.fetchBlob);
  }

  async call(run: string, call: { readonly method: string; readonly input?: unknown; readonly id?: string }): Promise<unknown> {
    const { method: name, input, id = `c_${randomName()}` } = call;
    const reply = await this.session.ask<"call">({ kind: "call", value: { run, name, input: toPayload(input), id } }, true);
    if (reply.failure !== undefined) throw new MethodFailedError(run, { method: name, failure: reply.failure, isRejected: reply.rejected });
    return fromPayload(reply.result, this.fetchBlob);
  }

  async cancel(run: string, reason = ""): Promise<void> {
    await this.session.ask<"cancel">({ kind: "cancel", value: { run, reason } }, true);
  }

  /** Has a compensation that failed for good executed again; `letter` is number@namespace:instance. */
  async replayDeadLetter(letter: string): Promise<void> {
    await call(this.channel, clientMethods.replayDeadLetter, { letter });
  }

  /** Gives a compensation that failed for good up: `reason` is kept in the run's history. */
  async dropDeadLetter(letter: string, reason: string): Promise<void> {
    await call(this.channel, clientMethods.dropDeadLetter, { letter, reason });
  }

  async terminate(run: string, reason = ""): Promise<void> {
    await call(this.channel, clientMethods.terminateWorkflow, { run, reason });
  }

  async pause(run: string, reason = ""): Promise<void> {
    await call(this.channel, clientMethods.pauseWorkflow, { run, reason });
  }

  async unpause(run: string, reason = ""): Promise<void> {
    await call(this.channel, clientMethods.unpauseWorkflow, { run, reason });
  }

  async resume(run: string, options: { readonly bundle?: Uint8Array; readonly newest?: boolean } = {}): Promise<Uint8Array> {
    const reply = await call(this.channel, clientMethods.resumeWorkflow, { run, ...options });
    return reply.bundle;
  }

  describe(run: string): Promise<DescribeReply> {
    return call(this.channel, clientMethods.describeWorkflow, { run });
  }

  /** One page of runs, newest first; `nextPageToken` asks for the next one. Left-out namespace: this client's. */
  list(request: ListRequestInit = {}): Promise<ListReply> {
    return call(this.channel, clientMethods.listWorkflows, { namespace: this.namespace, ...request });
  }

  /** Canonical event bytes of a run in order. Goes on after a lost connection where it stopped. */
  async *history(run: string, options: HistoryOptions = {}): AsyncGenerator<HistoryChunk> {
    const { follow = false, schedule = false, channel = false, key = false } = options;
    let fromSeq = options.fromSeq ?? 0;
    for await (const chunk of this.resuming(() =>
      stream(this.channel, clientMethods.getHistory, { run, fromSeq, follow, schedule, channel, key }),
    )) {
      fromSeq += chunk.event.length;
      yield chunk;
    }
  }

  /**
   * What a run yields, and at last how it ended: as it was sent. With `channel`, messages of a channel. For as long as this is iterated the client is a consumer
   * of the run's stream. Goes on after a lost connection behind the last chunk.
   */
  async *stream(run: string, options: Partial<Omit<StreamRequest, "run">> = {}): AsyncGenerator<StreamItem> {
    const { generation = 0, channel = false, untilNow = false } = options;
    let fromOffset = options.fromOffset ?? 0;
    const open = () => stream(this.channel, clientMethods.consumeStream, { run, fromOffset, generation, channel, untilNow });
    for await (const item of this.resuming(open)) {
      if (item.kind === "chunk") fromOffset = item.value.offset + 1;
      yield item;
    }
  }

  /** Values that a run yields, see `RunHandle.stream`; messages of a channel, see `ChannelHandle.messages`. */
  async *chunks(run: string, options: Partial<Omit<StreamRequest, "run">> = {}): AsyncGenerator<Chunk> {
    for await (const item of this.stream(run, options)) {
      if (item.kind !== "chunk") continue;
      const { offset, chunk } = item.value;
      yield { offset, value: await fromPayload(chunk, this.fetchBlob) };
    }
  }

  /** A server stream, opened again after a lost connection: `open` knows what has come. */
  private async *resuming<T>(open: () => AsyncIterable<T>): AsyncGenerator<T> {
    let failedMs: number | undefined;
    for (let tries = 1; ; tries++) {
      try {
        for await (const message of open()) {
          tries = 0;
          failedMs = undefined;
          yield message;
        }
        return;
      } catch (error) {
        failedMs ??= performance.now();
        if (!isRetryable(error) || performance.now() - failedMs >= this.channel.retryMs) throw error;
        const waitMs = backoffMs(Math.max(tries, 1), error.retryAfterMs);
        await new Promise((resolve) => setTimeout(resolve, waitMs));
      }
    }
  }

  /**
   * Makes code known under the types it declares, and what new runs of them start on; `held`: types that have a current
   * version keep it, until `route` says otherwise. Deploying the same code again changes nothing.
   */
  deploy(deployment: {
    readonly code: Uint8Array;
    readonly types: readonly string[];
    readonly namespace?: string;
    readonly held?: boolean;
  }): Promise<DeployReply> {
    return call(this.channel, clientMethods.deploy, { namespace: this.namespace, ...deployment });
  }

  /**
   * Sends new runs of a type to one of its versions: all of them, or with `ramp` so many `percent` (0 to 99, 0 ends it). A
   * name always falls on the same side. Live runs stay where they are.
   */
  async route(request: RouteRequestInit): Promise<Deployment> {
    const { deployment } = await call(this.channel, clientMethods.routeDeployment, { namespace: this.namespace, ...request });
    if (deployment === undefined) throw new HopError("INTERNAL", "The server answered a routing without the deployment");
    return deployment;
  }

  deployments(namespace = this.namespace): Promise<ListDeploymentsReply> {
    return call(this.channel, clientMethods.listDeployments, { namespace });
  }

  /** A whole blob, checked against its hash. Rejects with `HopError` BLOB_NOT_FOUND or HASH_MISMATCH. */
  blob(sha256: Uint8Array): Promise<Uint8Array> {
    return withRetry(this.channel.retryMs, async () => {
      const chunks: Uint8Array[] = [];
      for await (const chunk of stream(this.channel, clientMethods.getBlob, { sha256 })) chunks.push(chunk.data);
      const data = new Uint8Array(Buffer.concat(chunks));
      const got = Buffer.from(await crypto.subtle.digest("SHA-256", data));
      if (got.equals(sha256)) return data;
      throw new HopError(
        "HASH_MISMATCH",
        `Cannot take blob ${Buffer.from(sha256).toString("hex")}: its bytes have the hash ${got.toString("hex")}`,
      );
    });
  }

  /**
   * One request as the wire has it, its payloads as bytes: for programs that carry values without
   * reading them. `isIdempotent`: sent twice it does nothing that it does not do sent once, so it
   * may be sent again after a loss.
   */
  ask<K extends AskKind>(asked: Ask<K>, isIdempotent: boolean): Promise<Answer<K>> {
    return this.session.ask<K>(asked, isIdempotent);
  }

  private readonly fetchBlob = (sha256: Uint8Array) => this.blob(sha256);

  private send(workflow: WorkflowRef, input: unknown, options: StartOptions & { readonly awaitResult: boolean }): Promise<StartReply> {
    const { instance, contention, overrideReason, budgetMs, deadlineMs, bundle, awaitResult, signal } = options;
    let { idempotencyKey } = options;
    // Sent twice, a start must be one start. A made-up name belongs to it alone; where the caller
    // chose the name, a later start of the same name is told apart by a key.
    const name = instance ?? (idempotencyKey === undefined ? `wf_${randomName()}` : "");
    if (instance !== undefined) idempotencyKey ??= `k_${randomName()}`;
    const value: StartRequestInit = {
      namespace: this.namespace,
      type: typeName(workflow),
      input: toPayload(input),
      instance: name,
      contention,
      overrideReason,
      requestBudgetMs: milliseconds("budgetMs", budgetMs),
      idempotencyKey,
      deadlineMs: milliseconds("deadlineMs", deadlineMs),
      awaitResult,
      bundle,
      signal: signal && { name: signal.name, payload: toPayload(signal.value), id: signal.id ?? `s_${randomName()}` },
    };
    return this.session.ask<"start">({ kind: "start", value }, true);
  }
}
