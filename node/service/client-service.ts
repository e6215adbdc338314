/**
 * WorkflowClient: what people and programs call. Each method checks, routes, and translates;
 * decisions are Core's.
 */
import type { Server } from "@grpc/grpc-js";
import type { Partition, Reply, RunAddress, RunId } from "#core/base";
import {
  asSeq,
  channelPartition,
  errorText,
  HopError,
  isChannel,
  isKey,
  isSchedule,
  keyPartition,
  limits,
  runOf,
  runPartition,
  schedulePartition,
} from "#core/base";
import type { Deploy, DeployedType, Route } from "#core/placement";
import type {
  BlobChunkInit,
  DeploymentInit,
  DeployReplyInit,
  DeployRequest,
  DescribeReply,
  HistoryChunkInit,
  HistoryRequest,
  Identity,
  ListReplyInit,
  ListRequest,
  RouteReplyInit,
  RouteRequest,
  StreamItemInit,
  StreamRequest,
} from "#proto";
import { liveStatuses, RunStatus } from "#proto";
import { type Connection, serveConnections, sessionCodec } from "#proto/connection";
import { clientMethods, sessionPath } from "#proto/descriptors";
import type { Router } from "../cluster/router.ts";
import type { Caller, Calls, Prepared } from "./calls.ts";
import type { NodeList } from "./cluster-control.ts";
import type { BlobStore } from "./payloads.ts";
import { startReplyOf, stateOf } from "./queued-starts.ts";
import { preview } from "./schedules.ts";
import { Session } from "./session.ts";
import { consumeStream, readMessages, type StreamSource } from "./streams.ts";
import { addServerStream, addUnary, type Call, callerOf, type Edge } from "./unary.ts";
import { checkAddress, checkBlobHash, checkDeploy, checkList, checkNamespace, checkRoute } from "./validate.ts";

/** Blobs as the service hands them out. */
export interface ReadableBlobs extends BlobStore {
  /** Whole blob, its hash checked. Rejects with `HopError` BLOB_NOT_FOUND or HASH_MISMATCH. */
  get(sha256: Uint8Array): Promise<Uint8Array>;
}

/** The index of runs that lists are answered from. */
export interface RunIndex {
  list(request: ListRequest): ListReplyInit | Promise<ListReplyInit>;
}

/** Deployments as the service reads and changes them. */
export interface DeploymentRegistry {
  deployments(namespace: string): DeployedType[];
  deploy(identity: Identity, namespace: string, deploy: Deploy): Promise<number>;
  route(identity: Identity, namespace: string, route: Route): Promise<DeployedType>;
}

export interface ClientServiceParts {
  readonly calls: Calls;
  readonly router: Router;
  readonly blobs: ReadableBlobs;
  readonly runs: RunIndex;
  readonly registry: DeploymentRegistry;
  /** Where else the cluster can be asked; left out: clients are told of no other node. */
  readonly nodes?: NodeList;
}

const blobChunkBytes = 1 << 20;
/** What a history that is followed may go on from. */
const live: ReadonlySet<number> = new Set(liveStatuses);

export class ClientService {
  private readonly parts: ClientServiceParts;
  private readonly edge: Edge;
  private readonly sessions = new Set<Session>();

  constructor(parts: ClientServiceParts, edge: Edge) {
    this.parts = parts;
    this.edge = edge;
  }

  get sessionCount(): number {
    return this.sessions.size;
  }

  addTo(server: Server): void {
    const m = clientMethods;
    const { calls } = this.parts;
    const { edge } = this;
    addUnary(server, edge, m.startWorkflow, async (value, call) => {
      const reply = await this.ask(call, calls.prepare({ kind: "start", value }), "started");
      return startReplyOf(reply);
    });
    addUnary(server, edge, m.sendChannelMessage, async (value, call) => {
      if (value.channel === "") return this.ask(call, calls.prepare({ kind: "signal", value }), "signalled");
      return (await this.ask(call, calls.prepare({ kind: "signal", value }), "channelled")).answer;
    });
    this.addChannels(server);
    addUnary(server, edge, m.queryWorkflow, (value, call) => this.ask(call, calls.prepare({ kind: "query", value }), "queried"));
    addUnary(server, edge, m.callMethod, (value, call) => this.ask(call, calls.prepare({ kind: "call", value }), "called"));
    addUnary(server, edge, m.getResult, (value, call) => this.ask(call, calls.prepare({ kind: "result", value }), "outcome"));
    addUnary(server, edge, m.cancelWorkflow, (value, call) => this.ask(call, calls.prepare({ kind: "cancel", value }), "done"));
    addUnary(server, edge, m.terminateWorkflow, (value, call) => this.ask(call, calls.prepare({ kind: "terminate", value }), "done"));
    addUnary(server, edge, m.pauseWorkflow, (value, call) => this.ask(call, calls.prepare({ kind: "pause", value }), "done"));
    addUnary(server, edge, m.unpauseWorkflow, (value, call) => this.ask(call, calls.prepare({ kind: "unpause", value }), "done"));
    addUnary(server, edge, m.replayDeadLetter, (value, call) => this.ask(call, calls.prepare({ kind: "replay-letter", value }), "done"));
    addUnary(server, edge, m.dropDeadLetter, (value, call) => this.ask(call, calls.prepare({ kind: "drop-letter", value }), "done"));
    addUnary(server, edge, m.resumeWorkflow, async (value, call) => this.ask(call, await calls.prepareResume(value), "resumed"));
    addUnary(server, edge, m.listWorkflows, (value) => this.parts.runs.list(checkList(value)));
    addUnary(server, edge, m.describeWorkflow, (value, call) => this.describe(checkAddress("describe a run", value.run), call));
    addUnary(server, edge, m.changeSchedule, async (value, call) => {
      const { answer } = await this.ask(call, calls.prepareSchedule(value), "scheduled");
      return answer;
    });
    addUnary(server, edge, m.describeSchedule, async (value, call) => {
      const { state } = await this.find(schedulePartition(checkAddress("describe a schedule", value.run).run), "describe", call);
      if (state.schedule === undefined && !value.deleted) throw lacking(schedulePartition(value.run as RunId), "describe");
      return state;
    });
    addUnary(server, edge, m.listSchedules, (value) => this.parts.runs.list({ ...checkList(value), schedules: true }));
    addUnary(server, edge, m.previewSchedule, (value) => preview(value, Date.now()));
    addUnary(server, edge, m.deploy, (value, call) => this.deploy(checkDeploy(value), call));
    addUnary(server, edge, m.routeDeployment, (value, call) => this.route(value, call));
    addUnary(server, edge, m.listDeployments, (value) => this.deployments(checkNamespace("list deployments", value.namespace)));
    addUnary(server, edge, m.listNodes, () => this.parts.nodes?.nodes() ?? {});
    addServerStream(server, edge, m.getHistory, (value, call) => this.history(value, call));
    addServerStream(server, edge, m.consumeStream, (value, call) => this.stream(value, call));
    addServerStream(server, edge, m.getBlob, (value) => this.blob(checkBlobHash(value.sha256)));
    this.serveSessions(server);
  }

  private addChannels(server: Server): void {
    const { calls, runs } = this.parts;
    const { edge } = this;
    addUnary(server, edge, clientMethods.changeChannel, async (value, call) => {
      const { answer } = await this.ask(call, calls.prepareChannel(value), "channelled");
      return answer;
    });
    addUnary(server, edge, clientMethods.describeChannel, async (value, call) => {
      const partition = channelPartition(checkAddress("describe a channel", value.run, "channel").run);
      return (await this.find(partition, "describe", call)).state;
    });
    addUnary(server, edge, clientMethods.listChannels, (value) => runs.list({ ...checkList(value), channels: true }));
  }

  /** Ends all sessions; their clients come back elsewhere or later. */
  closeSessions(reason: string): void {
    // Closing one takes it out of the set, which a walk over a set allows.
    for (const session of this.sessions) session.close(reason);
  }

  private serveSessions(server: Server): void {
    serveConnections(server, sessionPath, sessionCodec, limits, (connection, peer) => {
      try {
        return this.openSession(connection, callerOf(this.edge, peer.metadata));
      } catch (error) {
        connection.close(errorText(error));
        return { item() {}, ended() {}, closed() {} };
      }
    });
  }

  /** A session over any kind of connection. */
  openSession(connection: Connection<Parameters<Connection<never>["send"]>[0]>, caller: Caller): Session {
    const session = new Session(connection, caller, {
      calls: this.parts.calls,
      nodes: this.parts.nodes,
      onClosed: (closed) => this.sessions.delete(closed),
      onFault: (error) => this.edge.fault(sessionPath, error),
    });
    this.sessions.add(session);
    return session;
  }

  /** Runs one command to its reply, or until the caller is gone. */
  private async ask<Kind extends Reply["kind"]>(call: Call, prepared: Prepared, kind: Kind): Promise<Extract<Reply, { kind: Kind }>> {
    await prepared.ready;
    const reply = await new Promise<Reply>((resolve, reject) => {
      const gone = (): void => {
        forget();
        reject(new HopError("BUDGET_EXPIRED", "The caller stopped waiting"));
      };
      if (call.gone.aborted) {
        reject(new HopError("BUDGET_EXPIRED", "The caller stopped waiting"));
        return;
      }
      let forget = (): void => {};
      forget = this.parts.calls.issue(call, prepared, (answered) => {
        call.gone.removeEventListener("abort", gone);
        resolve(answered);
      });
      call.gone.addEventListener("abort", gone);
    });
    if (reply.kind === "rejected") throw HopError.from(reply.rejection);
    if (reply.kind !== kind) throw new HopError("INTERNAL", `Core answered ${reply.kind}, want ${kind}`);
    return reply as Extract<Reply, { kind: Kind }>;
  }

  private async describe(address: RunAddress, call: Call): Promise<DescribeReply> {
    return stateOf((await this.find(runPartition(address.run), "describe", call)).state, address);
  }

  private async find(partition: Partition, verb: string, caller: Caller) {
    const state = await this.parts.router.describe(partition, caller);
    if (state === undefined) throw lacking(partition, verb);
    return { partition, state };
  }

  private async deploy(request: DeployRequest, call: Call): Promise<DeployReplyInit> {
    const { blobs, registry } = this.parts;
    const { sha256, size } = await blobs.put(request.code);
    const version = await registry.deploy(call.identity, request.namespace, {
      bundle: sha256,
      size,
      types: request.types,
      held: request.held,
    });
    return { bundle: sha256, version };
  }

  private deployments(namespace: string) {
    return { deployment: this.parts.registry.deployments(namespace).map(deploymentOf) };
  }

  private async route(request: RouteRequest, call: Call): Promise<RouteReplyInit> {
    const { namespace, route } = checkRoute(request);
    return { deployment: deploymentOf(await this.parts.registry.route(call.identity, namespace, route)) };
  }

  private async *history(request: HistoryRequest, call: Call): AsyncIterable<HistoryChunkInit> {
    const { run } = checkAddress("read a history", request.run);
    const wanted = partitionOf(run, request);
    let seq = request.fromSeq;
    for (;;) {
      const { partition, state } = await this.find(wanted, "read the history of", call);
      // Of what expired, the event that says so is left.
      seq = Math.max(seq, state.expiredEnd);
      yield* this.historyUntil(partition, seq, state);
      seq = Math.max(seq, state.size);
      const status = state.summary?.status ?? RunStatus.unspecified;
      const isLive = live.has(status);
      if (!request.follow || !isLive || call.gone.aborted) return;
      await this.parts.router.changed(partition, asSeq(seq), call.gone);
      if (call.gone.aborted) return;
    }
  }

  private stream(request: StreamRequest, call: Call): AsyncIterable<StreamItemInit> {
    if (request.channel) return this.messages(request, call);
    const address = checkAddress("consume a stream", request.run);
    const partition = runPartition(address.run);
    const { router } = this.parts;
    const source: StreamSource = {
      gone: call.gone,
      state: async () => stateOf((await this.find(partition, "consume the stream of", call)).state, address),
      history: (fromSeq) => router.history(partition, fromSeq),
      changed: (seq, signal) => router.changed(partition, seq, signal),
      consume: (generation) => {
        const command = { kind: "consume", run: address.run, generation } as const;
        return this.ask(call, { command, ready: undefined, waitMs: 0 }, "outcome");
      },
    };
    return consumeStream(source, request);
  }

  private messages(request: StreamRequest, call: Call): AsyncIterable<StreamItemInit> {
    const partition = channelPartition(checkAddress("read a channel", request.run, "channel").run);
    const { router } = this.parts;
    return readMessages(
      {
        gone: call.gone,
        state: async () => (await this.find(partition, "read", call)).state,
        history: (fromSeq) => router.history(partition, fromSeq),
        changed: (seq, signal) => router.changed(partition, seq, signal),
      },
      request,
    );
  }

  /** Events [seq, state.size), the last chunk with the chain head that they lead to. */
  private async *historyUntil(partition: Partition, seq: number, state: DescribeReply): AsyncIterable<HistoryChunkInit> {
    const { size, peaks } = state;
    let at = seq;
    if (at < size) {
      for await (const chunk of this.parts.router.history(partition, asSeq(at))) {
        // Later events may be there by now: they come with the next head.
        const event = chunk.slice(0, size - at);
        at += event.length;
        if (at >= size) {
          yield { event, size, peaks };
          return;
        }
        yield { event };
      }
      throw new HopError("STORE_UNAVAILABLE", `Cannot read all of ${partition}: got ${at} events, want ${size}; try again`);
    }
    yield { event: [], size, peaks };
  }

  private async *blob(sha256: Uint8Array): AsyncIterable<BlobChunkInit> {
    const data = await this.parts.blobs.get(sha256);
    for (let at = 0; at < data.length; at += blobChunkBytes) yield { data: data.subarray(at, at + blobChunkBytes) };
  }
}

function partitionOf(run: RunId, { schedule, channel, key }: HistoryRequest): Partition {
  if (schedule) return schedulePartition(run);
  if (channel) return channelPartition(run);
  return key ? keyPartition(run) : runPartition(run);
}

function lacking(partition: Partition, verb: string): HopError {
  const name = runOf(partition);
  if (isChannel(partition)) return new HopError("CHANNEL_NOT_FOUND", `Cannot ${verb} channel ${name}: there is no such channel`);
  if (isKey(partition)) return new HopError("RUN_NOT_FOUND", `Cannot ${verb} idempotency key ${name}: no activity ever claimed it`);
  return isSchedule(partition)
    ? new HopError("SCHEDULE_NOT_FOUND", `Cannot ${verb} schedule ${name}: there is no such schedule`)
    : new HopError("RUN_NOT_FOUND", `Cannot ${verb} ${name}: there is no such run`);
}

function deploymentOf({ type, bundle, version, deployedMs, previous, versions, ramp }: DeployedType): DeploymentInit {
  const known = versions.map((one) => ({ version: one.version, bundle: one.bundle, deployedMs: one.deployedMs, identity: one.identity }));
  return { type, bundle, version, deployedMs, previous, known, rampVersion: ramp?.version, rampPercent: ramp?.percent };
}
