/** A server for tests of the client: real gRPC on a port of its own, with what it answers left to the test. */
import { Server, ServerCredentials, type ServerUnaryCall, type sendUnaryData, status } from "@grpc/grpc-js";
import type { ClientItem, NodesInit, ReplyItemInit } from "#proto";
import { type Connection, serveConnections, sessionCodec, sessionPath } from "#proto/connection";
import { clientMethods } from "#proto/descriptors";
import { bounds } from "./endpoints.ts";

/** The reply to a request, without its number; undefined = none yet. */
export type Answer = (item: ClientItem, stream: ServedSession) => ReplyItemInit | undefined;

export class ServedSession {
  readonly connection: Connection<ReplyItemInit>;
  readonly items: ClientItem[] = [];

  constructor(connection: Connection<ReplyItemInit>) {
    this.connection = connection;
  }
}

export class ClientTestServer {
  readonly sessions: ServedSession[] = [];
  /** Told to each session when it begins. */
  nodes: NodesInit = {};
  answer: Answer = () => undefined;
  /** Unary calls that came, by their path. */
  readonly calls: string[] = [];
  /** Why unary calls are refused; undefined = they are answered. */
  refuses: string | undefined;
  private server: Server | undefined;
  private port = 0;

  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  /** Items of all sessions. */
  get items(): ClientItem[] {
    return this.sessions.flatMap(({ items }) => items);
  }

  /** Listens; after a stop, on the same port again. */
  async start(): Promise<this> {
    const server = new Server();
    serveConnections(server, sessionPath, sessionCodec, bounds, (connection) => {
      const session = new ServedSession(connection);
      this.sessions.push(session);
      connection.send({ kind: "nodes", value: this.nodes });
      return {
        item: (item) => {
          session.items.push(item);
          const reply = this.answer(item, session);
          if (reply !== undefined) connection.send({ ...reply, request: item.request });
        },
        ended: () => connection.end(),
        closed() {},
      };
    });
    this.serveUnary(server, clientMethods.describeWorkflow.path, () =>
      clientMethods.describeWorkflow.responseSerialize({ summary: { run: this.address } }),
    );
    this.serveUnary(server, clientMethods.listNodes.path, () => clientMethods.listNodes.responseSerialize(this.nodes));
    this.port = await new Promise<number>((done, fail) => {
      server.bindAsync(this.address, ServerCredentials.createInsecure(), (error, port) => (error === null ? done(port) : fail(error)));
    });
    this.server = server;
    return this;
  }

  stop(): void {
    this.server?.forceShutdown();
    this.server = undefined;
  }

  private serveUnary(server: Server, path: string, reply: () => Buffer): void {
    const identity = (bytes: Buffer) => bytes;
    const handle = (_: ServerUnaryCall<Buffer, Buffer>, done: sendUnaryData<Buffer>) => {
      this.calls.push(path);
      if (this.refuses === undefined) done(null, reply());
      else done({ code: status.UNAVAILABLE, details: this.refuses });
    };
    server.register(path, handle as never, identity as never, identity as never, "unary");
  }
}
