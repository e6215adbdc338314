/** What this node does when it is asked, by name of the method; for other nodes and for itself. */
import { HopError, type NodeId } from "#core/base";
import { CallAsk, type Question } from "./ask.ts";
import type { CallHandler, CallOptions, ServeOptions, StreamHandler, StreamOptions } from "./peer-net.ts";

interface Served<Handler> {
  readonly handle: Handler;
  readonly forStrangers: boolean;
}

export class Methods {
  private readonly calls = new Map<string, Served<CallHandler>>();
  private readonly streams = new Map<string, Served<StreamHandler>>();

  serve(method: string, handle: CallHandler, { forStrangers = false }: ServeOptions = {}): void {
    this.calls.set(method, { handle, forStrangers });
  }

  serveStream(method: string, handle: StreamHandler, { forStrangers = false }: ServeOptions = {}): void {
    this.streams.set(method, { handle, forStrangers });
  }

  /** Throws `HopError` BAD_REQUEST for a method that is not served, or not to strangers. */
  call(method: string, from: NodeId): CallHandler {
    return admitted(this.calls.get(method), method, from);
  }

  stream(method: string, from: NodeId): StreamHandler {
    return admitted(this.streams.get(method), method, from);
  }

  /** A call of this node to itself. */
  callOwn(self: NodeId, question: Question, options: CallOptions): Promise<Uint8Array> {
    const gone = new AbortController();
    const ask = new CallAsk(question, options, { giveUp: () => gone.abort(), credit: () => {} });
    const run = async () => this.call(question.method, self)(self, question.body, gone.signal);
    run().then(
      (body) => ask.answer(body),
      (error: unknown) => ask.fail(error),
    );
    return ask.promise;
  }

  /** A stream of this node to itself: its reader pulls the handler's chunks. */
  streamOwn(self: NodeId, question: Question, options: StreamOptions): AsyncIterable<Uint8Array> {
    const find = () => this.stream(question.method, self);
    return {
      async *[Symbol.asyncIterator]() {
        const gone = new AbortController();
        const signal = options.signal === undefined ? gone.signal : AbortSignal.any([gone.signal, options.signal]);
        try {
          for await (const chunk of find()(self, question.body, signal)) {
            options.signal?.throwIfAborted();
            yield chunk;
          }
          options.signal?.throwIfAborted();
        } finally {
          gone.abort();
        }
      },
    };
  }
}

function admitted<Handler>(served: Served<Handler> | undefined, method: string, from: NodeId): Handler {
  if (served === undefined)
    throw new HopError("BAD_REQUEST", `Cannot answer ${JSON.stringify(method.slice(0, 64))}: this node serves no such method`);
  if (from === 0 && !served.forStrangers)
    throw new HopError("UNAUTHENTICATED", `Cannot answer ${method}: only members of the cluster may ask, and who asks is joining`);
  return served.handle;
}
