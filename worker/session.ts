/**
 * A worker's lasting relation to one node: streams follow each other until `close`.
 *
 * Whatever ends a stream (a reset, a clean end, a node that goes away or comes back), the next
 * one is tried, for ever. Only the worker itself ends the session.
 */
import type { HelloInit, Nodes, ServerItem, Task, Welcome, WorkerItemInit } from "#proto";
import type { Closing, Connection, Open } from "#proto/connection";
import type { ActivityHost, Road } from "./activity/activity-host.ts";
import { Backoff } from "./backoff.ts";
import type { Executor } from "./executor.ts";
import type { OnLog } from "./log.ts";
import type { Room } from "./shares.ts";
import { Stream, type StreamParts } from "./stream.ts";

/** Opens a stream to a node. One that can't be reached shows as a lost stream. */
export type Connect = (open: Open<WorkerItemInit, ServerItem>) => Connection<WorkerItemInit>;

export interface SessionParts {
  readonly connect: Connect;
  /** Opens streams over a unix socket of this machine; left out: the worker does not ask for one. */
  readonly connectLocal?: ((socket: string) => Connect) | undefined;
  /** All of the hello but what the session itself knows; asked for at each stream. */
  readonly hello: () => Omit<HelloInit, "held" | "wantsLocal" | "activitySlots" | "runSlots">;
  readonly openExecutor: ((send: (item: WorkerItemInit) => void, runSlots: () => number) => Executor) | undefined;
  readonly activities: ActivityHost;
  readonly onLog: OnLog;
  readonly random?: (() => number) | undefined;
  /** What the node may use of the worker. */
  readonly room: Room;
  /** What is wrong with the node, or undefined: it may join. */
  readonly admit: (session: Session, welcome: Welcome) => string | undefined;
  readonly onJoined: (session: Session, welcome: Welcome) => void;
  readonly onNodes: (nodes: Nodes) => void;
  /** A stream is over, or none could be opened; false = the session is not wanted any more. */
  readonly onOver: (session: Session, wasJoined: boolean) => boolean;
}

/** A stream that carried nothing and lived shorter than this did not work out: the next wait is longer. */
const healthyMs = 2_000;

export class Session implements Road {
  /** Address of the node as the cluster has it; empty = not known, or no cluster of several. */
  address = "";
  /** What the node was last told that it may use. */
  room: Room;
  private readonly parts: SessionParts;
  private readonly backoff: Backoff;
  private stream: Stream | undefined;
  private joinedMs = 0;
  private retryTimer: ReturnType<typeof setTimeout> | undefined;
  private lastProblem = "";
  /** Unix socket that the node named for the next stream; empty = none. */
  private localSocket = "";
  /** The socket it named could not be used: the next stream asks for none. */
  private isLocalRefused = false;
  private isEnded = false;

  constructor(parts: SessionParts, address = "") {
    this.parts = parts;
    this.address = address;
    this.room = parts.room;
    this.backoff = new Backoff(parts.random ?? Math.random);
  }

  get isJoined(): boolean {
    return this.stream?.isJoined ?? false;
  }

  /** No stream is there, joined or not. */
  get isIdle(): boolean {
    return this.stream === undefined;
  }

  /** Runs and activities that the node has given and the worker holds. */
  get used(): Room {
    return { activitySlots: this.parts.activities.countOf(this), runSlots: this.stream?.runCount ?? 0 };
  }

  /** Sends on the current stream; false where there is none that is welcome. */
  readonly send = (item: WorkerItemInit): boolean => {
    const { stream } = this;
    if (stream === undefined || !stream.isJoined) return false;
    stream.send(item);
    return true;
  };

  /** Tells the node what it may use from now on. */
  give(room: Room): void {
    if (room.activitySlots === this.room.activitySlots && room.runSlots === this.room.runSlots) return;
    this.room = room;
    this.send({ kind: "capacity", value: room });
    this.stream?.makeRoom();
  }

  /** Begins a new stream, whose hello says what the worker is now. What is executing goes on. */
  renew(): void {
    this.backoff.reset();
    this.stream?.close("The worker has changed and connects again");
  }

  /** No more streams after this one, which is ended in order where it joined. */
  end(): void {
    this.isEnded = true;
    clearTimeout(this.retryTimer);
    if (this.isJoined) this.stream?.end();
    else this.stream?.close("The worker was closed");
  }

  /** Ends what `end` could not. */
  close(reason: string): void {
    this.isEnded = true;
    clearTimeout(this.retryTimer);
    this.stream?.close(reason);
  }

  /** Opens the first stream. */
  dial(): void {
    this.retryTimer = undefined;
    const { connect, connectLocal } = this.parts;
    const socket = this.localSocket;
    this.localSocket = "";
    const road = socket !== "" && connectLocal !== undefined ? connectLocal(socket) : connect;
    // Until it has joined there.
    const wantsLocal = road === connect && connectLocal !== undefined && !this.isLocalRefused;
    this.isLocalRefused = road !== connect;
    try {
      road((connection) => {
        this.stream = new Stream(connection, this.streamParts(wantsLocal));
        return this.stream;
      });
    } catch (error) {
      this.onOver(undefined, { kind: "lost", message: error instanceof Error ? error.message : String(error) });
    }
  }

  private streamParts(wantsLocal: boolean): StreamParts {
    const { parts } = this;
    const { activities, openExecutor } = parts;
    return {
      hello: { ...parts.hello(), ...this.room, held: activities.held(), wantsLocal },
      openExecutor: openExecutor === undefined ? undefined : (send) => openExecutor(send, () => this.room.runSlots),
      admit: (welcome) => parts.admit(this, welcome),
      onJoined: (_, welcome) => this.onJoined(welcome),
      onSentAway: (socket) => {
        this.localSocket = socket;
      },
      onTask: (task: Task) => activities.take(task, this),
      onCancel: (token, reason) => activities.cancel(token, reason),
      onNodes: parts.onNodes,
      onRecall: (shard) => {
        this.send({ kind: "held", value: { shard, token: activities.held() } });
        activities.resend(this);
      },
      onOver: (stream, closing) => this.onOver(stream, closing),
    };
  }

  private onJoined(welcome: Welcome): void {
    this.isLocalRefused = false;
    this.joinedMs = performance.now();
    this.lastProblem = "";
    const { clusterId: cluster, session, version, node } = welcome;
    this.parts.onLog({
      level: "info",
      message: "Connected",
      fields: { cluster, session, version, ...(node === 0 ? {} : { node, address: this.address }) },
    });
    this.parts.activities.resend(this);
    this.parts.onJoined(this, welcome);
  }

  private onOver(stream: Stream | undefined, closing: Closing): void {
    this.stream = undefined;
    if (!this.isEnded && this.localSocket !== "") return this.dial();
    const wasJoined = stream?.isJoined ?? false;
    const isWanted = this.parts.onOver(this, wasJoined);
    if (this.isEnded || !isWanted) return;
    if (wasJoined && (stream?.isUsed || performance.now() - this.joinedMs >= healthyMs)) this.backoff.reset();
    const waitMs = this.backoff.next();
    this.report(closing, wasJoined, waitMs);
    this.retryTimer = setTimeout(() => this.dial(), waitMs);
  }

  /** The same trouble again and again is told once. */
  private report(closing: Closing, wasJoined: boolean, waitMs: number): void {
    const isNews = wasJoined || closing.message !== this.lastProblem;
    this.lastProblem = closing.message;
    const message = wasJoined ? "The stream ended, connecting again" : "Cannot connect, trying again";
    this.parts.onLog({ level: isNews ? "warn" : "debug", message, fields: { reason: closing.message, waitMs: Math.round(waitMs) } });
  }
}
