/**
 * Unary and server-streaming methods on a grpc-js server.
 *
 * Requests are decoded here, not in grpc-js, so that malformed bytes are answered like any other
 * bad request. A handler's error becomes a status in `status.ts` and nowhere else.
 */
import type { Metadata, Server, ServerUnaryCall, ServerWritableStream, sendUnaryData } from "@grpc/grpc-js";
import { HopError } from "#core/base";
import type { Method } from "#proto/descriptors";
import type { Caller } from "./calls.ts";
import type { IdentitySource } from "./identity.ts";
import { asHopError, toStatus } from "./status.ts";

export const epochHeader = "hop-epoch";

/** What all methods of a node share. */
export interface Edge {
  readonly identify: IdentitySource;
  /** The node shuts down: new calls are refused. */
  isDraining(): boolean;
  /** Why calls are not taken yet, as "this node is joining a cluster; …"; undefined = they are. */
  whyNotOpen?(): string | undefined;
  /** Told of each call that ended: its path, "OK" or the reason, and its duration in ms. */
  observe(path: string, result: string, ms: number): void;
  /** Told of errors that are bugs. */
  fault(path: string, error: unknown): void;
}

/** A caller and a signal that aborts when it goes away. */
export interface Call extends Caller {
  readonly gone: AbortSignal;
}

const identity = (bytes: Buffer) => bytes;

export function callerOf(edge: Edge, metadata: Metadata): Caller {
  if (edge.isDraining())
    throw new HopError("STORE_UNAVAILABLE", "Cannot take the call: this node is shutting down; try again on another one or later");
  const why = edge.whyNotOpen?.();
  if (why !== undefined) throw new HopError("STORE_UNAVAILABLE", `Cannot take the call: ${why}`);
  return { identity: edge.identify(metadata), epoch: epochOf(metadata) };
}

function epochOf(metadata: Metadata): number {
  const value = metadata.get(epochHeader)[0];
  if (value === undefined) return 0;
  const epoch = Number(value);
  if (Number.isSafeInteger(epoch) && epoch >= 0) return epoch;
  throw new HopError(
    "BAD_REQUEST",
    `Cannot take the call: header ${epochHeader} is ${JSON.stringify(String(value))}, want a shard-map epoch`,
  );
}

/** The refusal for whatever a handler threw; bugs are reported on the way. */
function refusal(edge: Edge, path: string, error: unknown): HopError {
  const refused = asHopError(error);
  if (refused.reason === "INTERNAL") edge.fault(path, refused);
  return refused;
}

export function addUnary<I, Request, ResponseInit, O>(
  server: Server,
  edge: Edge,
  method: Method<I, Request, ResponseInit, O>,
  handle: (request: Request, call: Call) => Promise<ResponseInit> | ResponseInit,
): void {
  const run = async (call: ServerUnaryCall<Buffer, Buffer>): Promise<Buffer> => {
    const caller = callerOf(edge, call.metadata);
    const controller = new AbortController();
    call.on("cancelled", () => controller.abort());
    return method.responseSerialize(await handle(method.requestDeserialize(call.request), { ...caller, gone: controller.signal }));
  };
  const serve = (call: ServerUnaryCall<Buffer, Buffer>, callback: sendUnaryData<Buffer>): void => {
    const startedMs = performance.now();
    run(call).then(
      (reply) => {
        edge.observe(method.path, "OK", performance.now() - startedMs);
        callback(null, reply);
      },
      (error: unknown) => {
        const refused = refusal(edge, method.path, error);
        edge.observe(method.path, refused.reason, performance.now() - startedMs);
        callback(toStatus(refused));
      },
    );
  };
  register(server, method.path, serve, "unary");
}

export function addServerStream<I, Request, ResponseInit, O>(
  server: Server,
  edge: Edge,
  method: Method<I, Request, ResponseInit, O>,
  handle: (request: Request, call: Call) => AsyncIterable<ResponseInit>,
): void {
  const run = async (call: ServerWritableStream<Buffer, Buffer>, gone: AbortSignal): Promise<void> => {
    const caller = callerOf(edge, call.metadata);
    for await (const message of handle(method.requestDeserialize(call.request), { ...caller, gone })) {
      if (gone.aborted) return;
      if (!call.write(method.responseSerialize(message))) await drained(call, gone);
    }
  };
  const serve = (call: ServerWritableStream<Buffer, Buffer>): void => {
    const startedMs = performance.now();
    const controller = new AbortController();
    // An error of the transport means the same, and would end the process if nobody listened.
    for (const event of ["cancelled", "close", "error"]) call.on(event, () => controller.abort());
    run(call, controller.signal).then(
      () => {
        edge.observe(method.path, "OK", performance.now() - startedMs);
        call.end();
      },
      (error: unknown) => {
        const refused = refusal(edge, method.path, error);
        edge.observe(method.path, refused.reason, performance.now() - startedMs);
        if (!controller.signal.aborted) call.emit("error", toStatus(refused));
      },
    );
  };
  register(server, method.path, serve, "serverStream");
}

function register(server: Server, path: string, serve: unknown, kind: string): void {
  if (!server.register(path, serve as never, identity as never, identity as never, kind))
    throw new Error(`Cannot serve ${path}: the server has it already`);
}

/** Resolves when the stream takes more, or the caller is gone. */
function drained(call: ServerWritableStream<Buffer, Buffer>, gone: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      call.off("drain", done);
      gone.removeEventListener("abort", done);
      resolve();
    };
    call.on("drain", done);
    gone.addEventListener("abort", done);
    if (gone.aborted) done();
  });
}
