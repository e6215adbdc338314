/**
 * Runs workflow code for one stream: activations and queries in, commands and answers out.
 *
 * Shard and handle name runs on this stream only, so an executor lives as long as its stream. A run is
 * always what its events make of it: whatever fails here, the server can send it from the start.
 */
import { HopError, limits, noBytes, toHex } from "#core/base";
import {
  type Activate,
  type ActivatedInit,
  ActivatedStatus,
  CodecError,
  type CommandInit,
  type Payload,
  type Query,
  type QueryAnswerInit,
  type RunStarted,
  type WorkerItemInit,
} from "#proto";
import { type History, type MissingBlob, markReplay, readHistory } from "./abi/history.ts";
import { ReplayCheck } from "./abi/replay.ts";
import type { BlobSource } from "./blob-source.ts";
import type { Activation, Delivery, GuestHost, QueryResult } from "./host/guest-host.ts";
import { type CachedRun, handleKey, RunCache, type RunHandle } from "./run-cache.ts";

export interface ExecutorParts {
  readonly host: GuestHost;
  readonly blobs: BlobSource;
  readonly send: (item: WorkerItemInit) => void;
  /** Runs kept between activations; it may change. */
  readonly runSlots: () => number;
  /** Keys for the host, unique over all executors that share it. */
  readonly nextKey: () => number;
}

type Failed = Pick<ActivatedInit, "status" | "problem">;

/** A replay reaches the host in parts of this many deliveries, so that a divergence is found near where it is. */
const replayPart = 256;

export class Executor {
  private readonly parts: ExecutorParts;
  private readonly runs = new RunCache();
  /** Activations whose later parts have not come yet, by what names the run. */
  private readonly partial = new Map<number, Activate>();
  /** Bundles that were in reach of the host once. */
  private readonly bundles = new Set<string>();
  private isClosed = false;

  constructor(parts: ExecutorParts) {
    this.parts = parts;
  }

  /** Runs that it holds. */
  get size(): number {
    return this.runs.size;
  }

  /** Throws `CodecError` where the events can't be read. */
  activate(message: Activate): void {
    const whole = this.joined(message);
    if (whole === undefined) return;
    const history = readHistory(whole.events);
    if (whole.fromStart) this.begin(whole, history);
    else this.proceed(whole, history);
  }

  query(message: Query): void {
    const run = this.runs.use(message);
    if (run === undefined) this.send({ kind: "queryAnswer", value: { query: message.query, shard: message.shard, notCached: true } });
    else if (run.isBusy) run.waiting.push(() => this.query(message));
    else this.ask(run, message);
  }

  /** Forgets the run. An activation under way for it is not answered; what waits behind it is, by its absence. */
  drop(handle: RunHandle): void {
    const run = this.runs.remove(handle);
    if (run === undefined) return;
    run.isDropped = true;
    this.parts.host.drop(run.key);
    for (const again of run.waiting.splice(0)) again();
  }

  /** The stream is gone: all its runs are dropped, and nothing is sent any more. */
  close(): void {
    this.isClosed = true;
    this.partial.clear();
    for (const run of this.runs.clear()) {
      run.isDropped = true;
      this.parts.host.drop(run.key);
    }
  }

  /** The activation once its last part is here. */
  private joined(message: Activate): Activate | undefined {
    const key = handleKey(message);
    const before = this.partial.get(key);
    const continues = before !== undefined && before.activation === message.activation;
    if (continues) for (const event of message.events) before.events.push(event);
    const whole = continues ? before : message;
    if (message.more) {
      this.partial.set(key, whole);
      return undefined;
    }
    this.partial.delete(key);
    return whole;
  }

  // Going on with a run that is here. The common case makes no promise but the host's own.

  private proceed(message: Activate, history: History): void {
    const run = this.runs.use(message);
    if (run === undefined) {
      this.answer(message, { status: ActivatedStatus.notCached, problem: "The worker does not hold the run" });
      return;
    }
    if (run.isBusy) {
      run.waiting.push(() => this.proceed(message, history));
      return;
    }
    run.isBusy = true;
    if (history.missing.length === 0) this.deliver(run, message, history);
    else this.fetchThenDeliver(run, message, history).catch(rethrow);
  }

  private async fetchThenDeliver(run: CachedRun, message: Activate, history: History): Promise<void> {
    const failed = await this.fetch(history.missing);
    if (failed === undefined) this.deliver(run, message, history);
    else this.fail(run, message, failed);
  }

  private deliver(run: CachedRun, message: Activate, history: History): void {
    if (run.isDropped) return;
    this.parts.host.activate(run.key, history.deliveries).then(
      (activation) => {
        if (activation.kind === "ok") this.finish(run, message, activation.commands);
        else this.fail(run, message, failedBy(activation));
      },
      (error: unknown) => this.fail(run, message, { status: ActivatedStatus.retry, problem: textOf(error) }),
    );
  }

  // Building a run from its first event.

  private begin(message: Activate, history: History): void {
    const { started } = history;
    if (started === undefined) throw new CodecError(`Cannot build run ${message.run}: its history does not begin with its start`);
    this.drop(message);
    markReplay(history, message.readOnly ? history.deliveries.length : history.toldCount);
    const run = this.runs.add(message, this.parts.nextKey());
    run.isBusy = true;
    this.makeRoom();
    this.rebuild(run, message, history, started).catch(rethrow);
  }

  private async rebuild(run: CachedRun, message: Activate, history: History, started: RunStarted): Promise<void> {
    const failed = (await this.fetchBundle(message.bundle)) ?? (history.missing.length > 0 ? await this.fetch(history.missing) : undefined);
    if (run.isDropped) return;
    if (failed !== undefined) return this.fail(run, message, failed);
    this.open(run, message, started);
    const bundle = toHex(message.bundle);
    const check = new ReplayCheck(history.recorded, bundle);
    const problem = await this.replay(run, history.deliveries, check);
    if (run.isDropped) return;
    if (problem !== undefined) this.fail(run, message, problem);
    else this.finish(run, message, message.readOnly ? [] : check.fresh);
  }

  private open(run: CachedRun, message: Activate, started: RunStarted): void {
    const { generation, seed } = started;
    this.parts.host.open({ key: run.key, run: message.run, generation, type: message.type, bundle: toHex(message.bundle), seed });
  }

  private async replay(run: CachedRun, deliveries: readonly Delivery[], check: ReplayCheck): Promise<Failed | undefined> {
    for (let at = 0; at < deliveries.length; at += replayPart) {
      let activation: Activation;
      try {
        activation = await this.parts.host.activate(run.key, deliveries.slice(at, at + replayPart));
      } catch (error) {
        return { status: ActivatedStatus.retry, problem: textOf(error) };
      }
      if (run.isDropped) return undefined;
      if (activation.kind !== "ok") return failedBy(activation);
      const problem = check.take(activation.commands);
      if (problem !== undefined) return { status: ActivatedStatus.diverged, problem };
    }
    const problem = check.finish();
    return problem === undefined ? undefined : { status: ActivatedStatus.diverged, problem };
  }

  /** A bundle that does not exist is the run's fault; one that can't be read now is not. */
  private async fetchBundle(bundle: Uint8Array): Promise<Failed | undefined> {
    const name = toHex(bundle);
    if (this.bundles.has(name)) return undefined;
    try {
      await this.parts.blobs(bundle);
    } catch (error) {
      const isMissing = error instanceof HopError && error.reason === "BLOB_NOT_FOUND";
      return {
        status: isMissing ? ActivatedStatus.broken : ActivatedStatus.retry,
        problem: `Cannot load bundle ${name.slice(0, 12)}: ${textOf(error)}`,
      };
    }
    this.bundles.add(name);
    return undefined;
  }

  private async fetch(missing: readonly MissingBlob[]): Promise<Failed | undefined> {
    try {
      await Promise.all(missing.map(async ({ ref, put }) => put(await this.parts.blobs(ref.sha256))));
      return undefined;
    } catch (error) {
      return { status: ActivatedStatus.retry, problem: textOf(error) };
    }
  }

  // Answers.

  private finish(run: CachedRun, message: Activate, commands: CommandInit[]): void {
    if (run.isDropped) return;
    const bytes = sizeOf(commands);
    if (bytes > limits.activationBytesMax) {
      const problem = `The commands of one activation hold ${bytes} bytes, at most ${limits.activationBytesMax} are allowed: let the workflow await some before it asks for more`;
      return this.fail(run, message, { status: ActivatedStatus.limit, problem });
    }
    this.send({ kind: "activated", value: { ...namesOf(message), commands } });
    this.settle(run);
  }

  /** A run whose activation failed is not what its history says: it is let go of. */
  private fail(run: CachedRun, message: Activate, failed: Failed): void {
    if (run.isDropped) return;
    this.answer(message, failed);
    this.drop(run);
  }

  private answer(message: Activate, failed: Failed): void {
    const problem = (failed.problem ?? "").slice(0, limits.failureBytesMax);
    this.send({ kind: "activated", value: { ...namesOf(message), status: failed.status, problem } });
  }

  private ask(run: CachedRun, message: Query): void {
    const { query, shard, name, input } = message;
    run.isBusy = true;
    const answer = (value: QueryAnswerInit) => {
      this.send({ kind: "queryAnswer", value: { ...value, query, shard } });
      this.settle(run);
    };
    this.inputOf(input)
      .then((data) => this.parts.host.query(run.key, name, data))
      .then(
        (result) => answer(answerOf(name, result)),
        (error: unknown) => answer({ failure: { type: "QueryError", message: textOf(error) } }),
      );
  }

  private async inputOf(payload: Payload | undefined): Promise<Uint8Array> {
    return payload?.ref === undefined ? (payload?.data ?? noBytes) : this.parts.blobs(payload.ref.sha256);
  }

  private send(item: WorkerItemInit): void {
    if (!this.isClosed) this.parts.send(item);
  }

  /** The run is idle again: what waited for that goes on. */
  private settle(run: CachedRun): void {
    run.isBusy = false;
    const next = run.waiting.shift();
    if (next !== undefined) next();
    else if (this.runs.size > this.parts.runSlots()) this.makeRoom();
  }

  /** Lets go of idle runs that are more than it may hold. */
  makeRoom(): void {
    while (this.runs.size > this.parts.runSlots()) {
      const run = this.runs.evict();
      if (run === undefined) return;
      run.isDropped = true;
      this.parts.host.drop(run.key);
      this.send({ kind: "evicted", value: { shard: run.shard, handle: run.handle } });
    }
  }
}

/** Nothing here may fail in a way that was not foreseen: the process hears of it. */
function rethrow(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}

const namesOf = ({ shard, handle, activation }: Activate) => ({ shard, handle, activation });

function failedBy(activation: Exclude<Activation, { readonly kind: "ok" }>): Failed {
  const { limit, broken, notCached } = ActivatedStatus;
  const status = { limit, broken, lost: notCached }[activation.kind];
  return { status, problem: activation.message };
}

function answerOf(name: string, result: QueryResult): QueryAnswerInit {
  switch (result.kind) {
    case "ok":
      if (result.value.length <= limits.payloadBytesMax) return { result: { data: result.value } };
      return {
        failure: {
          type: "PayloadTooLargeError",
          message: `The answer of query ${JSON.stringify(name)} has ${result.value.length} bytes, at most ${limits.payloadBytesMax} are allowed`,
        },
      };
    case "failed":
      return { failure: result.failure };
    case "lost":
      return { notCached: true };
    case "not-found": {
      const declared =
        result.declared.length === 0 ? "it declares none" : `it declares ${result.declared.map((each) => JSON.stringify(each)).join(", ")}`;
      return { failure: { type: "QueryNotFoundError", message: `The workflow has no query ${JSON.stringify(name)}: ${declared}` } };
    }
  }
}

function sizeOf(commands: readonly CommandInit[]): number {
  let bytes = 0;
  for (const command of commands) bytes += command.payload?.data?.length ?? 0;
  return bytes;
}

const textOf = (error: unknown) => (error instanceof Error ? error.message : String(error));
