/**
 * One connected worker: hello, then its items in order to the shards it joined.
 *
 * The first item must be the hello; anything else ends the stream with the reason. An item whose
 * payloads have to be stored holds up the later ones of the stream, and the stream itself.
 */
import { asShardId, HopError, nameProblem, namespaceProblem } from "#core/base";
import type { Hello, NodesInit, ServerItemInit, WorkerItem } from "#proto";
import type { Closing, Connection, Receiver } from "#proto/connection";
import type { LocalShards } from "../cluster/local-shards.ts";
import type { NodeList } from "../service/cluster-control.ts";
import { OrderedIntake } from "../service/intake.ts";
import type { PayloadEdge } from "../service/payloads.ts";
import { asHopError } from "../service/status.ts";
import type { Timing } from "../timing.ts";
import type { WorkerRegistry } from "./registry.ts";
import { ShardSessions } from "./shard-sessions.ts";
import type { TaskRoad } from "./task-road.ts";
import { activatedProblem, brokenActivation, recordedPayloads, refusedItem } from "./worker-items.ts";

export interface WorkerStreamParts {
  readonly clusterId: string;
  /** Version of this node, told to the worker. */
  readonly version: string;
  readonly epoch: () => number;
  /** This node's number; 0 = not part of a cluster. */
  readonly node: number;
  readonly shards: Pick<LocalShards, "led" | "ledShards">;
  readonly tasks: TaskRoad;
  readonly timing: Timing;
  /** Nodes that the worker is to hold a stream to; left out: this one alone. */
  readonly nodes?: NodeList | undefined;
  /** gRPC address of this node as others know it. */
  readonly advertised?: (() => string) | undefined;
  /** Unix socket that workers on this machine may use instead; empty = none. */
  readonly localSocket: () => string;
  readonly edge: PayloadEdge;
  readonly registry: WorkerRegistry;
  /** Told of connects, refusals and ends. */
  readonly note: (what: string, fields: Record<string, string | number>) => void;
  readonly onFault: (error: unknown) => void;
}

const heldMax = 100_000;
const typesMax = 10_000;

/** Whether a peer's address can only be of this machine. */
function isThisMachine(address: string): boolean {
  return /^(ipv4:|ipv6:)?(127\.|\[?::1\]?:|\[?::ffff:127\.)/.test(address) || address.startsWith("unix:");
}

/** Major versions must agree: the protocol may change between them. */
function majorOf(version: string): string {
  return version.split(".")[0] ?? "";
}

/** Why a hello can't be taken, or undefined. */
export function helloProblem(hello: Hello, node: { readonly clusterId: string; readonly version: string }): string | undefined {
  const id = nameProblem(hello.workerId);
  if (id !== undefined) return `its worker id ${id}`;
  const namespace = namespaceProblem(hello.namespace);
  if (namespace !== undefined) return `its namespace ${namespace}`;
  if (hello.clusterId !== "" && hello.clusterId !== node.clusterId)
    return `it belongs to cluster ${JSON.stringify(hello.clusterId.slice(0, 64))}, this is ${node.clusterId}`;
  if (majorOf(hello.version) !== majorOf(node.version))
    return `its version is ${JSON.stringify(hello.version.slice(0, 64))}, want ${majorOf(node.version)}.x`;
  if (hello.activities.length > typesMax) return `it names ${hello.activities.length} activities, want at most ${typesMax}`;
  for (const activity of hello.activities) {
    const problem = nameProblem(activity);
    if (problem !== undefined) return `one of its activity names ${problem}`;
  }
  return hello.held.length > heldMax ? `it holds ${hello.held.length} tasks, want at most ${heldMax}` : undefined;
}

export class WorkerStream implements Receiver<WorkerItem> {
  private readonly connection: Connection<ServerItemInit>;
  private readonly parts: WorkerStreamParts;
  private readonly address: string;
  private readonly intake: OrderedIntake;
  private sessions: ShardSessions | undefined;
  private session = 0;
  private workerId = "";
  private stopNodes: (() => void) | undefined;

  constructor(connection: Connection<ServerItemInit>, address: string, parts: WorkerStreamParts) {
    this.connection = connection;
    this.address = address;
    this.parts = parts;
    this.intake = new OrderedIntake((isWaiting) => (isWaiting ? connection.pause() : connection.resume()));
  }

  item(item: WorkerItem): void {
    try {
      if (this.sessions === undefined) this.hello(item);
      else this.take(item, this.sessions);
    } catch (error) {
      this.fail(error);
    }
  }

  /** The worker sends nothing more, so nothing that it holds will ever be finished here. */
  ended(): void {
    this.connection.end();
  }

  closed(closing: Closing): void {
    this.intake.close();
    this.stopNodes?.();
    const { sessions, session } = this;
    if (sessions === undefined) return;
    this.parts.registry.remove(session);
    sessions.end();
    this.parts.note("worker gone", { session, kind: closing.kind, reason: closing.message });
  }

  private hello(item: WorkerItem): void {
    if (item.kind !== "hello") return this.refuse(`its first item is ${item.kind}, want hello`);
    const hello = item.value;
    const problem = helloProblem(hello, this.parts);
    if (problem !== undefined) return this.refuse(problem);
    const localSocket = hello.wantsLocal && isThisMachine(this.address) ? this.parts.localSocket() : "";
    if (localSocket !== "") return this.sendAway(localSocket);
    const { clusterId, version, registry, shards, timing, nodes } = this.parts;
    const session = registry.nextSession();
    const close = (reason: string): void => this.connection.close(reason);
    const sessions = new ShardSessions({ hello, shards, timing, send: (out) => this.send(out), close });
    this.session = session;
    this.sessions = sessions;
    this.workerId = hello.workerId;
    registry.add({
      session,
      hello,
      address: this.address,
      sinceMs: Date.now(),
      isDraining: false,
      close,
      ledChanged: (shard, port) => sessions.ledChanged(shard, port),
      sessionIn: (shard) => sessions.sessionIn(shard),
    });
    const known: NodesInit | undefined = nodes?.nodes();
    const place = { node: this.parts.node, address: this.parts.advertised?.() ?? "" };
    this.send({ kind: "welcome", value: { clusterId, session, version, epoch: this.parts.epoch(), nodes: known, ...place } });
    this.stopNodes = nodes?.onNodes((value) => this.send({ kind: "nodes", value }));
    sessions.begin();
    this.parts.note("worker connected", {
      session,
      worker: hello.workerId,
      namespace: hello.namespace,
      version: hello.version,
      from: this.address,
    });
  }

  /** To the shorter road: the worker says hello there, or comes back if it can't. */
  private sendAway(localSocket: string): void {
    const { clusterId, version } = this.parts;
    this.connection.send({ kind: "welcome", value: { clusterId, version, localSocket } });
    this.connection.end();
  }

  private take(item: WorkerItem, sessions: ShardSessions): void {
    if (item.kind === "hello") return this.refuse("it said hello twice");
    // Items of kinds that a later version adds are left out, as unknown fields are.
    if (item.kind === "unknown") return;
    if (item.kind === "draining") {
      const worker = this.parts.registry.list().find((each) => each.session === this.session);
      if (worker !== undefined) worker.isDraining = true;
    }
    const fit = fitted(item);
    this.intake.add(
      this.parts.edge.admit(recordedPayloads(fit)),
      () => this.deliver(fit, sessions),
      (error) => {
        const refused = refusedItem(fit, asHopError(error));
        if (refused !== undefined) this.deliver(refused, sessions);
      },
    );
  }

  private deliver(item: WorkerItem, sessions: ShardSessions): void {
    try {
      this.pass(item, sessions);
    } catch (error) {
      this.fail(error);
    }
  }

  private pass(item: WorkerItem, sessions: ShardSessions): void {
    switch (item.kind) {
      case "activated":
      case "queryAnswer":
      case "evicted":
        return sessions.said(item);
      case "taskDone":
      case "heartbeat":
        return this.parts.tasks.bring(item, this.workerId, (shard, port, said) => sessions.ofTask(shard, port, said));
      case "draining":
        return sessions.drain();
      case "capacity":
        return sessions.resize(item.value.activitySlots);
      case "held":
        return this.recalled(item.value, sessions);
      default:
    }
  }

  private recalled(held: Extract<WorkerItem, { kind: "held" }>["value"], sessions: ShardSessions): void {
    if (held.token.length > heldMax) return this.refuse(`it holds ${held.token.length} tasks, want at most ${heldMax}`);
    sessions.held(asShardId(held.shard), held.token);
  }

  private send(item: ServerItemInit): void {
    try {
      this.connection.send(item);
    } catch (error) {
      this.fail(error);
    }
  }

  private fail(error: unknown): void {
    if (!(error instanceof HopError)) this.parts.onFault(error);
    this.connection.close(asHopError(error).message);
  }

  private refuse(problem: string): void {
    this.parts.note("worker refused", { address: this.address, reason: problem });
    this.connection.close(`Cannot take the worker: ${problem}`);
  }
}

/** The item, or a report of what its commands hold that Core can't record. */
function fitted(item: WorkerItem): WorkerItem {
  if (item.kind !== "activated") return item;
  const problem = activatedProblem(item.value);
  return problem === undefined ? item : { kind: "activated", value: brokenActivation(item.value, problem) };
}
