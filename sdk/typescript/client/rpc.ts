/** Calls outside the session: occasional ones, and streams of bytes. */
import type { Metadata, ServiceError } from "@grpc/grpc-js";
import { clientMethods, type Method } from "#proto/descriptors";
import type { Endpoints } from "./endpoints.ts";
import { HopError } from "./errors.ts";
import { statusError, withRetry } from "./retry.ts";

export interface Channel {
  readonly endpoints: Endpoints;
  readonly metadata: Metadata;
  /** How long an outage may last before a call fails. */
  readonly retryMs: number;
  /** Told after each call that was answered. */
  readonly onAnswered: () => void;
}

/** What `path` does, for messages: "StartWorkflow". */
const verbOf = (path: string) => `call ${path.slice(path.lastIndexOf("/") + 1)}`;

/** One call, tried again while the server is unavailable. Rejects with `HopError`. */
export function call<RequestInit, Q, R, Response>(
  channel: Channel,
  method: Method<RequestInit, Q, R, Response>,
  request: RequestInit,
): Promise<Response> {
  return withRetry(channel.retryMs, async () => {
    const { address } = channel.endpoints.current();
    try {
      return await callOnce(channel, method, request);
    } catch (error) {
      throw error instanceof HopError ? refusedBy(channel, address, error) : error;
    }
  });
}

/** One call to the node that is asked now, and to no other. Rejects with `HopError`. */
export function callOnce<RequestInit, Q, R, Response>(
  channel: Channel,
  method: Method<RequestInit, Q, R, Response>,
  request: RequestInit,
): Promise<Response> {
  const { address, client } = channel.endpoints.current();
  return new Promise((resolve, reject) => {
    const done = (error: ServiceError | null, response?: Response): void => {
      if (error !== null) {
        reject(statusError(error, `${verbOf(method.path)} at ${address}`));
        return;
      }
      channel.onAnswered();
      resolve(response as Response);
    };
    client.makeUnaryRequest(method.path, method.requestSerialize, method.responseDeserialize, request, channel.metadata, done);
  });
}

/** Asks the node of the next calls where the others are. It is no matter where it does not say. */
export function learnNodes({ endpoints, metadata }: Channel): void {
  const { path, requestSerialize, responseDeserialize } = clientMethods.listNodes;
  const { client } = endpoints.current();
  client.makeUnaryRequest(path, requestSerialize, responseDeserialize, {}, metadata, (_, nodes) => endpoints.learn(nodes?.address ?? []));
}

/** The refusal; the next call goes to another node where this one can't serve. */
function refusedBy({ endpoints }: Channel, address: string, error: HopError): HopError {
  if (error.reason === "STORE_UNAVAILABLE" || error.reason === "NOT_LEADER") endpoints.failed(address, error.message);
  return error;
}

/** Messages of a server stream. Leaving the loop early cancels the call. Throws `HopError`. */
export async function* stream<RequestInit, Q, R, Response>(
  channel: Channel,
  method: Method<RequestInit, Q, R, Response>,
  request: RequestInit,
): AsyncGenerator<Response> {
  const { endpoints, metadata } = channel;
  const { address, client } = endpoints.current();
  const call = client.makeServerStreamRequest(method.path, method.requestSerialize, method.responseDeserialize, request, metadata);
  try {
    for await (const message of call) yield message as Response;
  } catch (error) {
    throw isServiceError(error) ? refusedBy(channel, address, statusError(error, `${verbOf(method.path)} at ${address}`)) : error;
  } finally {
    // What a cancelled call emits afterwards is nobody's business any more.
    call.on("error", () => {});
    call.cancel();
  }
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "details" in error;
}
