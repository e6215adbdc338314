/** One run, seen from outside. */
import type { DescribeReply, HistoryChunk } from "#proto";
import { type MethodType, nameOf, type QueryType, type SignalType } from "./message-types.ts";
import { completedValue, type Outcome } from "./outcome.ts";

export interface WaitOptions {
  /** Longest wait in milliseconds; left out: as long as it takes. */
  readonly waitMs?: number;
}

export interface HistoryOptions {
  /** First event wanted. */
  readonly fromSeq?: number;
  /** Goes on until the run ends. */
  readonly follow?: boolean;
  /** Of the schedule, or the channel, with that address. */
  readonly schedule?: boolean;
  readonly channel?: boolean;
  /** Of the activity's idempotency key with that address, `namespace:activity:key`. */
  readonly key?: boolean;
}

/** Something that a run's code yielded. */
export interface Chunk<T = unknown> {
  /** Where it stands in the stream: whoever has it goes on from the next one. */
  readonly offset: number;
  readonly value: T;
}

export interface StreamOptions {
  /** Chunks with this offset and later ones; left out: all. */
  readonly fromOffset?: number;
}

/** What a handle asks of its client. */
export interface RunOperations {
  outcome(run: string, options: WaitOptions & { readonly generation?: number }): Promise<Outcome>;
  signal(run: string, signal: { readonly name: string; readonly value?: unknown; readonly id?: string }): Promise<void>;
  query(run: string, query: { readonly name: string; readonly input?: unknown }): Promise<unknown>;
  call(run: string, call: { readonly method: string; readonly input?: unknown; readonly id?: string }): Promise<unknown>;
  cancel(run: string, reason: string): Promise<void>;
  terminate(run: string, reason: string): Promise<void>;
  pause(run: string, reason: string): Promise<void>;
  unpause(run: string, reason: string): Promise<void>;
  resume(run: string, options: { readonly bundle?: Uint8Array; readonly newest?: boolean }): Promise<Uint8Array>;
  describe(run: string): Promise<DescribeReply>;
  history(run: string, options: HistoryOptions): AsyncGenerator<HistoryChunk>;
  chunks(run: string, options: StreamOptions & { readonly generation?: number }): AsyncGenerator<Chunk>;
}

export class RunHandle<Output = unknown> {
  /** namespace:instance; of a start that was queued ticket@namespace:instance, which stays its own. */
  readonly id: string;
  /** Generation that a start made or attached to; 0 where it was queued, or the handle was made from an id. */
  readonly generation: number;
  /** Place in the queue that the start was given, from 1; 0 = it did not wait. */
  readonly queuePlace: number;
  /** The start met a run that was there already. */
  readonly isAttached: boolean;
  private readonly client: RunOperations;

  constructor(
    client: RunOperations,
    run: { readonly id: string; readonly generation?: number; readonly isAttached?: boolean; readonly queuePlace?: number },
  ) {
    this.client = client;
    this.id = run.id;
    this.generation = run.generation ?? 0;
    this.isAttached = run.isAttached ?? false;
    this.queuePlace = run.queuePlace ?? 0;
  }

  /**
   * Waits for the run's end and returns its value: that of the run which the start made or met, also
   * where another followed. Throws `WorkflowFailedError` where it did not complete, `HopError`
   * BUDGET_EXPIRED when `waitMs` are over before, or the start's own budget in the queue.
   */
  async result(options: WaitOptions = {}): Promise<Output> {
    return completedValue(this.id, await this.outcome(options)) as Output;
  }

  /** Waits like `result`, but tells how the run ended, or that it still runs, without throwing. */
  outcome(options: WaitOptions = {}): Promise<Outcome> {
    return this.client.outcome(this.id, { ...options, generation: this.generation });
  }

  /** Resolves when the signal is durable. `id`: the same one twice is one signal; left out, one is made. */
  signal(name: string, value?: unknown, options?: { readonly id?: string }): Promise<void>;
  signal<T>(type: SignalType<T>, value: T, options?: { readonly id?: string }): Promise<void>;
  signal(named: string | { readonly name: string }, value?: unknown, options: { readonly id?: string } = {}): Promise<void> {
    return this.client.signal(this.id, { name: nameOf(named), value, ...options });
  }

  /** Reads the run's state through a query of its code. */
  query<Answer = unknown>(name: string, input?: unknown): Promise<Answer>;
  query<I, O>(type: QueryType<I, O>, input: I): Promise<O>;
  query(named: string | { readonly name: string }, input?: unknown): Promise<unknown> {
    return this.client.query(this.id, { name: nameOf(named), input });
  }

  /**
   * Calls a method of the run's code and waits for its answer. It is made once, whatever fails on the
   * way; `id`: the same one twice is one call, with one answer. Throws `MethodFailedError` where the
   * method failed or its validator did not let the input pass, `HopError` RUN_CLOSED when the run
   * ended without an answer.
   */
  call<Answer = unknown>(method: string, input?: unknown, options?: { readonly id?: string }): Promise<Answer>;
  call<I, O>(type: MethodType<I, O>, input: I, options?: { readonly id?: string }): Promise<O>;
  call(named: string | { readonly name: string }, input?: unknown, options: { readonly id?: string } = {}): Promise<unknown> {
    return this.client.call(this.id, { method: nameOf(named), input, ...options });
  }

  /** Asks the run to end: its code is told at its next await and may clean up. */
  cancel(reason = ""): Promise<void> {
    return this.client.cancel(this.id, reason);
  }

  /** Ends the run at once; its code is not told. */
  terminate(reason = ""): Promise<void> {
    return this.client.terminate(this.id, reason);
  }

  /**
   * Holds the run: its code is told nothing and none of its activities begins. What is executing may end, signals are
   * taken, timers fire and limits go on; the code is told of all that when the run is unpaused, of a cancellation too.
   */
  pause(reason = ""): Promise<void> {
    return this.client.pause(this.id, reason);
  }

  /** Lets a paused run go on. */
  unpause(reason = ""): Promise<void> {
    return this.client.unpause(this.id, reason);
  }

  /** Lets a blocked run go on: on its own bundle, on another, or on the newest of its type. */
  resume(options: { readonly bundle?: Uint8Array; readonly newest?: boolean } = {}): Promise<Uint8Array> {
    return this.client.resume(this.id, options);
  }

  describe(): Promise<DescribeReply> {
    return this.client.describe(this.id);
  }

  /**
   * What the run's code yields, from the beginning or from an offset on, until the run ends: how it did, `result` says.
   * Several may consume a stream, each at its own pace, and a connection that is lost costs no chunk. Leave the loop to
   * leave the stream: where all have left, the run's code is told after a while.
   *
   * ```ts
   * for await (const { value } of run.stream<string>()) process.stdout.write(value);
   * ```
   */
  stream<T = unknown>(options: StreamOptions = {}): AsyncGenerator<Chunk<T>> {
    return this.client.chunks(this.id, { ...options, generation: this.generation }) as AsyncGenerator<Chunk<T>>;
  }

  /** Canonical event bytes in order; the last chunk carries the chain head that they lead to. */
  history(options: HistoryOptions = {}): AsyncGenerator<HistoryChunk> {
    return this.client.history(this.id, options);
  }
}
