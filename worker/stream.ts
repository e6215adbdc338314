/** One stream to a server, from hello to its end. */
import type { HelloInit, Nodes, ServerItem, Task, TaskToken, Welcome, WorkerItemInit } from "#proto";
import type { Closing, Connection, Receiver } from "#proto/connection";
import type { Executor } from "./executor.ts";

export interface StreamParts {
  readonly hello: HelloInit;
  /** Runs workflow code for this stream; undefined where the worker has none to offer. */
  readonly openExecutor: ((send: (item: WorkerItemInit) => void) => Executor) | undefined;
  /** Says what is wrong with the server, or undefined. */
  readonly admit: (welcome: Welcome) => string | undefined;
  readonly onJoined: (stream: Stream, welcome: Welcome) => void;
  /** The server would have the worker say hello on a unix socket instead. */
  readonly onSentAway: (socket: string) => void;
  readonly onTask: (task: Task) => void;
  readonly onCancel: (token: TaskToken, reason: string) => void;
  /** The cluster has other live members than before. */
  readonly onNodes: (nodes: Nodes) => void;
  /** The node leads the shard now and asks what the worker executes. */
  readonly onRecall: (shard: number) => void;
  readonly onOver: (stream: Stream, closing: Closing) => void;
}

const welcomeMsMax = 10_000;
const ackMsMax = 100;

export class Stream implements Receiver<ServerItem> {
  isJoined = false;
  /** The server sent something to do. */
  isUsed = false;
  private readonly connection: Connection<WorkerItemInit>;
  private readonly parts: StreamParts;
  private readonly executor: Executor | undefined;
  private readonly welcomeTimer: ReturnType<typeof setTimeout>;
  /** Highest task number that arrived, and what of it was acknowledged. */
  private arrived = 0;
  private acked = 0;
  private ackTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(connection: Connection<WorkerItemInit>, parts: StreamParts) {
    this.connection = connection;
    this.parts = parts;
    this.executor = parts.openExecutor?.((item) => this.send(item));
    connection.send({ kind: "hello", value: parts.hello });
    this.welcomeTimer = setTimeout(() => connection.close(`The server did not answer the hello within ${welcomeMsMax} ms`), welcomeMsMax);
  }

  /** Runs that are held for this stream. */
  get runCount(): number {
    return this.executor?.size ?? 0;
  }

  /** The room for runs has changed. */
  makeRoom(): void {
    this.executor?.makeRoom();
  }

  /** Sends the item, and with it the acknowledgement that is due. */
  send(item: WorkerItemInit): void {
    if (this.acked < this.arrived) this.sendAck();
    this.connection.send(item);
  }

  /** Ends the stream in order. */
  end(): void {
    this.connection.end();
  }

  close(reason: string): void {
    this.connection.close(reason);
  }

  item(item: ServerItem): void {
    if (this.isJoined) this.take(item);
    else this.join(item);
  }

  ended(): void {
    this.connection.end();
  }

  closed(closing: Closing): void {
    clearTimeout(this.welcomeTimer);
    clearTimeout(this.ackTimer);
    this.executor?.close();
    this.parts.onOver(this, closing);
  }

  private join(item: ServerItem): void {
    if (item.kind !== "welcome") return this.close(`The server's first item is ${item.kind}, want welcome`);
    const problem = this.parts.admit(item.value);
    if (problem !== undefined) return this.close(problem);
    clearTimeout(this.welcomeTimer);
    if (item.value.localSocket !== "") {
      this.parts.onSentAway(item.value.localSocket);
      return this.end();
    }
    this.isJoined = true;
    this.parts.onJoined(this, item.value);
  }

  private take(item: ServerItem): void {
    this.isUsed = true;
    switch (item.kind) {
      case "activate":
        if (this.executor === undefined) this.close("The server sent a run to a worker that runs no workflows");
        else this.executor.activate(item.value);
        return;
      case "task":
        this.noteTask(item.value.number);
        this.parts.onTask(item.value);
        return;
      case "cancelTask":
        if (item.value.token !== undefined) this.parts.onCancel(item.value.token, item.value.reason);
        return;
      case "query":
        this.executor?.query(item.value);
        return;
      case "drop":
        this.executor?.drop(item.value);
        return;
      case "nodes":
        this.parts.onNodes(item.value);
        return;
      case "recall":
        this.parts.onRecall(item.value.shard);
        return;
      // What a later version adds is not meant for this one.
      case "welcome":
      case "unknown":
    }
  }

  private noteTask(number: number): void {
    if (number > this.arrived) this.arrived = number;
    this.ackTimer ??= setTimeout(this.onAckDue, ackMsMax);
  }

  private readonly onAckDue = (): void => {
    this.ackTimer = undefined;
    if (this.acked < this.arrived) this.sendAck();
  };

  private sendAck(): void {
    this.acked = this.arrived;
    this.connection.send({ kind: "ack", value: { number: this.acked } });
  }
}
