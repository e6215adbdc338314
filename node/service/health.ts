/** The standard health service: what load balancers and orchestrators ask. */

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { type Server, type ServerUnaryCall, type ServerWritableStream, type sendUnaryData, status } from "@grpc/grpc-js";
import { bufferView, HealthCheckRequestSchema, HealthCheckResponseSchema, healthPaths, ServingStatus, services } from "#proto/descriptors";

type Watcher = ServerWritableStream<Buffer, Buffer>;

const identity = (bytes: Buffer) => bytes;
const answer = (serving: ServingStatus) =>
  bufferView(toBinary(HealthCheckResponseSchema, create(HealthCheckResponseSchema, { status: serving })));
/** The empty name stands for the server as a whole. */
const known = new Set(["", ...services.map((service) => service.typeName)]);

export class HealthService {
  private serving: ServingStatus = ServingStatus.NOT_SERVING;
  private readonly watchers = new Map<Watcher, string>();

  addTo(server: Server): void {
    server.register(healthPaths.check, this.check as never, identity as never, identity as never, "unary");
    server.register(healthPaths.watch, this.watch as never, identity as never, identity as never, "serverStream");
  }

  get isServing(): boolean {
    return this.serving === ServingStatus.SERVING;
  }

  /** Tells all watchers. */
  set(isServing: boolean): void {
    const next = isServing ? ServingStatus.SERVING : ServingStatus.NOT_SERVING;
    if (next === this.serving) return;
    this.serving = next;
    for (const [watcher, service] of this.watchers) if (known.has(service)) watcher.write(answer(next));
  }

  /** Ends the watches, which would hold up a graceful shutdown. */
  close(): void {
    for (const watcher of this.watchers.keys()) watcher.end();
    this.watchers.clear();
  }

  private readonly check = (call: ServerUnaryCall<Buffer, Buffer>, callback: sendUnaryData<Buffer>): void => {
    const service = serviceOf(call.request);
    if (service === undefined) callback({ code: status.INVALID_ARGUMENT, details: "Cannot read the health request: it is malformed" });
    else if (known.has(service)) callback(null, answer(this.serving));
    else callback({ code: status.NOT_FOUND, details: `No service ${JSON.stringify(service.slice(0, 128))} is served here` });
  };

  private readonly watch = (call: Watcher): void => {
    const service = serviceOf(call.request);
    if (service === undefined) {
      call.emit("error", { code: status.INVALID_ARGUMENT, details: "Cannot read the health request: it is malformed" });
      return;
    }
    this.watchers.set(call, service);
    for (const event of ["cancelled", "close", "error"]) call.on(event, () => this.watchers.delete(call));
    call.write(answer(known.has(service) ? this.serving : ServingStatus.SERVICE_UNKNOWN));
  };
}

function serviceOf(request: Uint8Array): string | undefined {
  try {
    return fromBinary(HealthCheckRequestSchema, request).service;
  } catch {
    return undefined;
  }
}
