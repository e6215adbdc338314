/** Calls outside the session: occasional ones, and streams of bytes. */
import type { Client, Metadata, ServiceError } from "@grpc/grpc-js";
import type { Method } from "#proto/descriptors";
import { statusError, withRetry } from "./retry.ts";

export interface Channel {
  readonly client: Client;
  readonly metadata: Metadata;
  /** How long an outage may last before a call fails. */
  readonly retryMs: number;
}

/** What `path` does, for messages: "StartWorkflow". */
const verbOf = (path: string) => `call ${path.slice(path.lastIndexOf("/") + 1)}`;

/** One call, tried again while the server is unavailable. Rejects with `HopError`. */
export function call<RequestInit, Q, R, Response>(
  channel: Channel,
  method: Method<RequestInit, Q, R, Response>,
  request: RequestInit,
): Promise<Response> {
  const { client, metadata, retryMs } = channel;
  const attempt = (): Promise<Response> =>
    new Promise((resolve, reject) => {
      const done = (error: ServiceError | null, response?: Response): void => {
        if (error !== null) reject(statusError(error, verbOf(method.path)));
        else resolve(response as Response);
      };
      client.makeUnaryRequest(method.path, method.requestSerialize, method.responseDeserialize, request, metadata, done);
    });
  return withRetry(retryMs, attempt);
}

/** Messages of a server stream. Leaving the loop early cancels the call. Throws `HopError`. */
export async function* stream<RequestInit, Q, R, Response>(
  channel: Channel,
  method: Method<RequestInit, Q, R, Response>,
  request: RequestInit,
): AsyncGenerator<Response> {
  const { client, metadata } = channel;
  const call = client.makeServerStreamRequest(method.path, method.requestSerialize, method.responseDeserialize, request, metadata);
  try {
    for await (const message of call) yield message as Response;
  } catch (error) {
    throw isServiceError(error) ? statusError(error, verbOf(method.path)) : error;
  } finally {
    // What a cancelled call emits afterwards is nobody's business any more.
    call.on("error", () => {});
    call.cancel();
  }
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "details" in error;
}
