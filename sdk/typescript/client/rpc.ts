/** Calls outside the session: occasional ones, and streams of bytes. */
import { type Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { clientMethods, type Method } from "#proto/descriptors";
import type { Endpoint, Endpoints } from "./endpoints.ts";
import { HopError, UnavailableError } from "./errors.ts";
import type { Pulse } from "./pulse.ts";
import { hasDetail, statusError, withRetry } from "./retry.ts";

export interface Channel {
  readonly endpoints: Endpoints;
  readonly metadata: Metadata;
  readonly pulse: Pulse;
  /** How long an outage may last before a call fails. */
  readonly retryMs: number;
  /** Told after each call that was answered, and with each message of a stream. */
  readonly onAnswered: () => void;
  /** Told why a call is tried again that has been for a while. */
  readonly onWaiting: (problem: string) => void;
}

/** What `path` does, for messages: "StartWorkflow". */
const verbOf = (path: string) => `call ${path.slice(path.lastIndexOf("/") + 1)}`;

/** One call, tried again while the server is unavailable. Rejects with `HopError`. */
export function call<RequestInit, Q, R, Response>(
  channel: Channel,
  method: Method<RequestInit, Q, R, Response>,
  request: RequestInit,
): Promise<Response> {
  const attempt = async (): Promise<Response> => {
    const { address } = channel.endpoints.current();
    try {
      return await callOnce(channel, method, request);
    } catch (error) {
      throw error instanceof HopError ? refusedBy(channel, address, error) : error;
    }
  };
  return withRetry(channel.retryMs, attempt, channel.onWaiting);
}

/** One call to the node that is asked now, and to no other. Rejects with `HopError`. */
export function callOnce<RequestInit, Q, R, Response>(
  channel: Channel,
  method: Method<RequestInit, Q, R, Response>,
  request: RequestInit,
): Promise<Response> {
  const endpoint = channel.endpoints.current();
  const doing = `${verbOf(method.path)} at ${endpoint.address}`;
  const { path, requestSerialize, responseDeserialize } = method;
  return new Promise((resolve, reject) => {
    const done = (error: ServiceError | null, response?: Response): void => {
      watched.done();
      if (error !== null) {
        reject(statusError(error, doing));
        return;
      }
      channel.onAnswered();
      resolve(response as Response);
    };
    const sent = endpoint.client.makeUnaryRequest(path, requestSerialize, responseDeserialize, request, channel.metadata, done);
    const watched = channel.pulse.watch(endpoint, (problem) => {
      reject(silence(doing, problem));
      sent.cancel();
    });
  });
}

const silence = (doing: string, problem: string) => new UnavailableError("STORE_UNAVAILABLE", `Cannot ${doing}: ${problem}`);

const learnMsMax = 5_000;
/** Codes of a call that nobody may have answered. */
const silentCodes: readonly status[] = [status.UNAVAILABLE, status.DEADLINE_EXCEEDED, status.CANCELLED];

/**
 * Asks a node where the others are. It is no matter where it does not say; `heard` is called where it
 * answered at all, if only that it can't.
 */
export function learnNodes(
  { endpoints, metadata }: Pick<Channel, "endpoints" | "metadata">,
  { client }: Endpoint = endpoints.current(),
  heard = () => {},
): void {
  const { path, requestSerialize, responseDeserialize } = clientMethods.listNodes;
  const options = { deadline: Date.now() + learnMsMax };
  client.makeUnaryRequest(path, requestSerialize, responseDeserialize, {}, metadata, options, (error, nodes) => {
    endpoints.learn(nodes?.address ?? []);
    if (error === null || !silentCodes.includes(error.code) || hasDetail(error)) heard();
  });
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
  const { endpoints, metadata, pulse } = channel;
  const endpoint = endpoints.current();
  const { address, client } = endpoint;
  const doing = `${verbOf(method.path)} at ${address}`;
  const call = client.makeServerStreamRequest(method.path, method.requestSerialize, method.responseDeserialize, request, metadata);
  let silent: HopError | undefined;
  const watched = pulse.watch(endpoint, (problem) => {
    silent = silence(doing, problem);
    call.cancel();
  });
  try {
    for await (const message of call) {
      watched.heard();
      // A client that only reads is to know of other nodes too.
      channel.onAnswered();
      yield message as Response;
    }
  } catch (error) {
    throw silent ?? (isServiceError(error) ? refusedBy(channel, address, statusError(error, doing)) : error);
  } finally {
    watched.done();
    // What a cancelled call emits afterwards is nobody's business any more.
    call.on("error", () => {});
    call.cancel();
  }
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "details" in error;
}
