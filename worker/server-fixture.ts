/** A server for tests of workers: real gRPC on a port of its own, with what it says left to the test. */
import { constants, type ServerHttp2Stream } from "node:http2";
import * as grpc from "@grpc/grpc-js";
import { decodeWorkerFrame, encodeServerFrame, fromBytes, type Hello, type ServerItemInit, toBytes, type WorkerItem } from "#proto";
import { dispatchPath } from "#proto/connection";

type Call = grpc.ServerDuplexStream<Buffer, Buffer>;

/** One stream of a worker, from the server's side. */
export class ServedStream {
  readonly hello: Hello;
  readonly items: WorkerItem[] = [];
  /** Kinds of the items of each frame. */
  readonly frames: string[][] = [];
  isEnded = false;
  isOver = false;
  private readonly call: Call;

  constructor(call: Call, hello: Hello) {
    this.call = call;
    this.hello = hello;
  }

  send(...item: ServerItemInit[]): void {
    this.raw(toBytes(encodeServerFrame, { item }));
  }

  raw(bytes: Uint8Array): void {
    this.call.write(Buffer.from(bytes));
  }

  end(): void {
    this.call.end();
  }

  fail(code: grpc.status, details: string): void {
    this.call.emit("error", { code, details });
  }

  reset(): void {
    this.http2.close(constants.NGHTTP2_CANCEL);
  }

  goAway(): void {
    this.http2.session?.goaway();
    this.http2.session?.close();
    this.call.end();
  }

  destroy(): void {
    this.http2.session?.destroy();
  }

  of<K extends WorkerItem["kind"]>(kind: K): Extract<WorkerItem, { kind: K }>[] {
    return this.items.filter((item): item is Extract<WorkerItem, { kind: K }> => item.kind === kind);
  }

  private get http2(): ServerHttp2Stream {
    return (this.call as unknown as { call: { stream: ServerHttp2Stream } }).call.stream;
  }
}

export class TestServer {
  readonly streams: ServedStream[] = [];
  clusterId = "c1";
  /** Said to each stream after its hello. */
  greet: (stream: ServedStream) => void = (stream) =>
    stream.send({ kind: "welcome", value: { clusterId: this.clusterId, session: this.streams.length } });
  onItem: ((stream: ServedStream, item: WorkerItem) => void) | undefined;
  private server: grpc.Server | undefined;
  private port = 0;
  private readonly waiters: (() => void)[] = [];

  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  get latest(): ServedStream {
    return this.streams.at(-1) as ServedStream;
  }

  /** Listens; after a stop, on the same port again. */
  async start(): Promise<void> {
    const server = new grpc.Server();
    const identity = (bytes: Buffer) => bytes;
    server.register(dispatchPath, ((call: Call) => this.accept(call)) as never, identity as never, identity as never, "bidi");
    this.port = await new Promise<number>((done, fail) => {
      server.bindAsync(this.address, grpc.ServerCredentials.createInsecure(), (error, port) => (error === null ? done(port) : fail(error)));
    });
    this.server = server;
  }

  stop(): void {
    this.server?.forceShutdown();
    this.server = undefined;
  }

  async until(claim: () => boolean): Promise<void> {
    while (!claim()) await new Promise<void>((look) => this.waiters.push(look));
  }

  private accept(call: Call): void {
    let stream: ServedStream | undefined;
    call.on("error", () => {});
    call.on("data", (bytes: Buffer) => {
      const { item: items } = fromBytes(decodeWorkerFrame, bytes);
      stream?.frames.push(items.map((item) => item.kind));
      for (const item of items) {
        if (stream === undefined) stream = this.open(call, item);
        else {
          stream.items.push(item);
          this.onItem?.(stream, item);
        }
      }
      this.look();
    });
    call.on("end", () => {
      if (stream !== undefined) stream.isEnded = true;
      call.end();
      this.look();
    });
    call.on("cancelled", () => {
      if (stream !== undefined) stream.isOver = true;
      this.look();
    });
  }

  private open(call: Call, item: WorkerItem): ServedStream {
    if (item.kind !== "hello") throw new Error(`The worker's first item is ${item.kind}, want hello`);
    const stream = new ServedStream(call, item.value);
    this.streams.push(stream);
    this.greet(stream);
    return stream;
  }

  private look(): void {
    for (const look of this.waiters.splice(0)) look();
  }
}
