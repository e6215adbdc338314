/**
 * A worker's lasting relation to a server: streams follow each other until `close`.
 *
 * Whatever ends a stream (a reset, a clean end, a server that goes away or comes back), the next
 * one is tried, for ever. Only the worker's own `close` ends the session.
 */
import type { HelloInit, ServerItem, Task, TaskToken, Welcome, WorkerItemInit } from "#proto";
import type { Closing, Connection, Open } from "#proto/connection";
import type { ActivityHost } from "./activity/activity-host.ts";
import { Backoff } from "./backoff.ts";
import type { Executor } from "./executor.ts";
import type { OnLog } from "./log.ts";
import { Stream, type StreamParts } from "./stream.ts";

/** Opens a stream to a server. A server that can't be reached shows as a lost stream. */
export type Connect = (open: Open<WorkerItemInit, ServerItem>) => Connection<WorkerItemInit>;

export interface SessionParts {
  readonly connect: Connect;
  /** Opens streams over a unix socket of this machine; left out: the worker does not ask for one. */
  readonly connectLocal?: (socket: string) => Connect;
  /** All of the hello but what the session itself knows; asked for at each stream. */
  readonly hello: () => Omit<HelloInit, "held" | "clusterId" | "wantsLocal">;
  readonly openExecutor: ((send: (item: WorkerItemInit) => void) => Executor) | undefined;
  readonly activities: ActivityHost;
  readonly onLog: OnLog;
  /** How long `close` waits for activities to end. */
  readonly graceMs: number;
  readonly random?: () => number;
}

/** A stream that carried nothing and lived shorter than this did not work out: the next wait is longer. */
const healthyMs = 2_000;
/** How long the server may take to end the last stream. */
const partingMsMax = 1_000;

export class Session {
  private readonly parts: SessionParts;
  private readonly backoff: Backoff;
  private stream: Stream | undefined;
  private joinedMs = 0;
  private retryTimer: ReturnType<typeof setTimeout> | undefined;
  private clusterId = "";
  private lastProblem = "";
  /** Unix socket that the server named for the next stream; empty = none. */
  private localSocket = "";
  /** The socket it named could not be used: the next stream asks for none. */
  private isLocalRefused = false;
  private closing: Promise<void> | undefined;
  private isLeaving = false;
  private wake: (() => void) | undefined;
  /** Resolves when a server welcomed the worker for the first time, or the session was closed before. */
  readonly ready: Promise<void>;
  private onReady!: () => void;

  constructor(parts: SessionParts) {
    this.parts = parts;
    this.backoff = new Backoff(parts.random ?? Math.random);
    this.ready = new Promise((done) => {
      this.onReady = done;
    });
    this.dial();
  }

  get isJoined(): boolean {
    return this.stream?.isJoined ?? false;
  }

  /** Sends on the current stream; false where there is none that is welcome. */
  send(item: WorkerItemInit): boolean {
    const { stream } = this;
    if (stream === undefined || !stream.isJoined) return false;
    stream.send(item);
    return true;
  }

  /** Begins a new stream, whose hello says what the worker is now. What is executing goes on. */
  renew(): void {
    this.backoff.reset();
    this.stream?.close("The worker has changed and connects again");
  }

  /** Takes nothing new, waits for activities up to the grace time, delivers their results, and leaves. */
  close(): Promise<void> {
    this.closing ??= this.leave();
    return this.closing;
  }

  private dial(): void {
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
    return {
      hello: { ...parts.hello(), clusterId: this.clusterId, held: parts.activities.held(), wantsLocal },
      openExecutor: parts.openExecutor,
      admit: (welcome) => this.admit(welcome),
      onJoined: (stream, welcome) => this.onJoined(stream, welcome),
      onSentAway: (socket) => {
        this.localSocket = socket;
      },
      onTask: (task: Task) => parts.activities.take(task),
      onCancel: (token: TaskToken, reason: string) => parts.activities.cancel(token, reason),
      onOver: (stream, closing) => this.onOver(stream, closing),
    };
  }

  /** Results belong to the cluster that asked for them. */
  private admit(welcome: Welcome): string | undefined {
    if (this.clusterId === "" || welcome.clusterId === this.clusterId) return undefined;
    return (
      `The server belongs to cluster ${JSON.stringify(welcome.clusterId)}, this worker to ${JSON.stringify(this.clusterId)}. ` +
      "Check the address, or restart the worker if the cluster was set up anew"
    );
  }

  private onJoined(stream: Stream, welcome: Welcome): void {
    this.clusterId = welcome.clusterId;
    this.isLocalRefused = false;
    this.joinedMs = performance.now();
    this.lastProblem = "";
    this.parts.onLog({
      level: "info",
      message: "Connected",
      fields: { cluster: welcome.clusterId, session: welcome.session, version: welcome.version },
    });
    this.parts.activities.resend();
    if (this.closing !== undefined) stream.send({ kind: "draining", value: {} });
    this.onReady();
    this.wake?.();
  }

  private onOver(stream: Stream | undefined, closing: Closing): void {
    this.stream = undefined;
    this.wake?.();
    if (this.isLeaving) return;
    if (this.localSocket !== "") return this.dial();
    const wasJoined = stream?.isJoined ?? false;
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

  private async leave(): Promise<void> {
    const { activities, graceMs } = this.parts;
    const graceOver = performance.now() + graceMs;
    this.send({ kind: "draining", value: {} });
    while (!activities.isSettled && performance.now() < graceOver) {
      await within(activities.count > 0 ? activities.idle() : this.change(), graceOver);
    }
    activities.abandon();
    this.isLeaving = true;
    clearTimeout(this.retryTimer);
    await this.part();
    this.onReady();
  }

  private async part(): Promise<void> {
    const { stream } = this;
    if (stream === undefined) return;
    const until = performance.now() + partingMsMax;
    if (stream.isJoined) stream.end();
    else stream.close("The worker was closed");
    while (this.stream !== undefined && performance.now() < until) await within(this.change(), until);
    this.stream?.close("The worker was closed");
  }

  /** Resolves at the next beginning or end of a stream. */
  private change(): Promise<void> {
    return new Promise((done) => {
      this.wake = done;
    });
  }
}

/** Waits for `promise`, but not beyond the time (of `performance.now`). */
async function within(promise: Promise<void>, untilMs: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<void>((done) => {
    timer = setTimeout(done, Math.max(0, untilMs - performance.now()));
  });
  await Promise.race([promise, timeout]);
  clearTimeout(timer);
}
