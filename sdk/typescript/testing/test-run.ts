/** One run of a test environment, seen from outside. */
import { noBytes, type Reply, type RunId, toHex } from "#core/base";
import type { Command } from "#core/shard";
import { RunStatus, runStatusNames } from "#proto";
import type { Driver } from "./driver.ts";
import { errorOf, type HopError, MethodFailedError, RunStuckError, WorkflowFailedError } from "./errors.ts";
import { History } from "./history.ts";
import type { Outcome, RunStatusName } from "./options.ts";
import type { VirtualCore } from "./virtual-core.ts";
import type { VirtualWorker } from "./virtual-worker.ts";

/** What a run asks of its environment. @internal */
export interface RunParts {
  readonly core: VirtualCore;
  readonly worker: VirtualWorker;
  readonly driver: Driver;
  /** Numbers of ids that nobody gave. */
  nextId(): number;
}

/** Who consumes a run's stream. */
export interface TestConsumer {
  leave(): Promise<void>;
}

type Directed<C> = C extends { readonly kind: "start" } ? never : C extends Command ? Omit<C, "run" | "ticket"> : never;

export class TestRun<Output = unknown> {
  /** `namespace:instance` */
  readonly id: string;
  /** 0 = it waits in the queue of its name. */
  readonly generation: number;
  private readonly parts: RunParts;
  private readonly ticket: number;

  /** @internal */
  constructor(parts: RunParts, { id, generation, ticket }: { readonly id: string; readonly generation: number; readonly ticket: number }) {
    this.parts = parts;
    this.id = id;
    this.generation = generation;
    this.ticket = ticket;
  }

  /**
   * The run's value. Time passes by itself until then, as far as it is needed. Throws
   * `WorkflowFailedError` where it did not complete, `RunStuckError` where it never will.
   */
  async result(): Promise<Output> {
    const { status, value, failure } = await this.outcome();
    if (status === "completed") return value as Output;
    throw new WorkflowFailedError(this.id, status as Exclude<RunStatusName, "completed" | "running" | "paused" | "compensating">, failure);
  }

  /** As `result`, but tells how it ended without throwing for that. */
  async outcome(): Promise<Outcome<Output>> {
    const generation = this.ticket > 0 ? {} : { generation: this.generation };
    const reply = await this.awaited({ kind: "await-result", ...generation });
    if (reply.kind === "outcome") return outcomeOf(reply);
    throw refusalOf(reply);
  }

  /** Resolves when the signal is in the run's history, and the run has gone on as far as it can without time. */
  async signal(name: string, value?: unknown, options: { readonly id?: string } = {}): Promise<void> {
    const id = options.id ?? `signal-${this.parts.nextId()}`;
    await this.ask({ kind: "signal", name, payload: toPayload(value), id });
  }

  /** Reads the run's state through a query of its code. */
  async query<Answer = unknown>(name: string, input?: unknown): Promise<Answer> {
    const reply = await this.ask({ kind: "query", name, input: toPayload(input) });
    const { result } = reply as Extract<Reply, { kind: "queried" }>;
    return fromBytes(result?.data) as Answer;
  }

  /**
   * Calls a method of the run and waits for its answer; time passes by itself until then. Throws
   * `MethodFailedError` where the method throws or does not take its input, `RunStuckError` where no answer will come.
   */
  async call<Answer = unknown>(method: string, input?: unknown, options: { readonly id?: string } = {}): Promise<Answer> {
    const id = options.id ?? `call-${this.parts.nextId()}`;
    const reply = await this.awaited({ kind: "call", name: method, input: toPayload(input), id });
    if (reply.kind !== "called") throw refusalOf(reply);
    const { failure, rejected, result } = reply;
    if (failure !== undefined) throw new MethodFailedError(this.id, { method, failure, isRejected: rejected });
    return fromBytes(result?.data) as Answer;
  }

  /**
   * Consumes the run's stream until it is left: from then on the run is told that nobody is there, ten seconds later.
   * Time does not pass by this.
   */
  async consume(): Promise<TestConsumer> {
    const { core, driver } = this.parts;
    await driver.settle();
    const leave = core.consume(this.id as RunId, this.generation);
    await driver.settle();
    return {
      leave: async () => {
        leave();
        await driver.settle();
      },
    };
  }

  /** What the run has yielded until now and somebody was given, or will be. */
  chunks<T = unknown>(): T[] {
    return [...this.history().chunks()].map((chunk) => fromBytes(chunk?.data) as T);
  }

  /** Keeps the run from going on, with all that happens to it meanwhile. */
  async pause(reason = ""): Promise<void> {
    await this.ask({ kind: "pause", reason });
  }

  /** Lets a paused run go on. */
  async unpause(reason = ""): Promise<void> {
    await this.ask({ kind: "unpause", reason });
  }

  /** Asks the run to end: its code is told at its next await and may clean up. */
  async cancel(reason = ""): Promise<void> {
    await this.ask({ kind: "cancel", reason });
  }

  /** Ends the run at once; its code is not told. */
  async terminate(reason = ""): Promise<void> {
    await this.ask({ kind: "terminate", reason });
  }

  /** How it stands now. */
  get status(): RunStatusName {
    const status = this.parts.core.describe(this.id as RunId)?.summary?.status ?? RunStatus.running;
    return (runStatusNames as Readonly<Record<number, RunStatusName>>)[status] ?? "running";
  }

  /** Everything that was recorded under its name until now. */
  history(): History {
    const { core } = this.parts;
    const hash = toHex(core.describe(this.id as RunId)?.lastHash ?? noBytes);
    return new History(this.id, [...core.history(this.id as RunId)], { hash });
  }

  private command(command: Directed<Command>): Promise<Reply> {
    const ticket = this.ticket > 0 ? { ticket: this.ticket } : {};
    return this.parts.core.command({ ...command, run: this.id as RunId, ...ticket } as Command);
  }

  /** An answer for which time may have to pass. */
  private async awaited(command: Directed<Command>): Promise<Reply> {
    const { driver } = this.parts;
    let reply: Reply | undefined;
    await driver.settle();
    const waited = this.command(command).then((got) => {
      reply = got;
      return got;
    });
    if (!(await driver.until(() => reply !== undefined))) throw new RunStuckError(this.stuckText());
    return waited;
  }

  private async ask(command: Directed<Command>): Promise<Reply> {
    const { driver } = this.parts;
    await driver.settle();
    const reply = this.command(command);
    await driver.settle();
    const got = await reply;
    if (got.kind === "rejected") throw refusalOf(got);
    return got;
  }

  private stuckText(): string {
    const { core, worker } = this.parts;
    const described = core.describe(this.id as RunId);
    const hanging = new Set(worker.hanging());
    const waits = (described?.pending ?? []).map(({ op, name, waitsFor }) => {
      if (waitsFor.startsWith("a worker")) return `activity ${JSON.stringify(name)} (operation ${op}), for which there is no mock`;
      if (hanging.has(name)) return `activity ${JSON.stringify(name)} (operation ${op}), which hangs`;
      return `${waitsFor.startsWith("signal ") ? `signal ${JSON.stringify(name)}` : waitsFor} (operation ${op})`;
    });
    const what =
      waits.length === 0
        ? "it waits for nothing that this environment knows of: a promise in it never settles"
        : `it waits for ${waits.join(", ")}`;
    return `Run ${this.id} will never end: ${what}, and nothing else is to happen`;
  }
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** @internal */
export const toPayload = (value: unknown) => {
  if (value === undefined) return undefined;
  const text = JSON.stringify(value) as string | undefined;
  if (text === undefined) throw new TypeError(`Cannot send a value of type ${typeof value}: JSON has no form for it`);
  return { data: encoder.encode(text), ref: undefined };
};

const fromBytes = (data: Uint8Array | undefined): unknown =>
  data === undefined || data.length === 0 ? undefined : JSON.parse(decoder.decode(data));

function outcomeOf<Output>({ outcome }: Extract<Reply, { kind: "outcome" }>): Outcome<Output> {
  const status = (runStatusNames as Readonly<Record<number, RunStatusName>>)[outcome.status] ?? "running";
  const value = status === "completed" ? (fromBytes(outcome.result?.data) as Output) : undefined;
  return { status, value, failure: outcome.failure };
}

export function refusalOf(reply: Reply): HopError {
  if (reply.kind !== "rejected") return errorOf("INTERNAL", `Core answered ${reply.kind}`);
  const { reject, message, retryAfterMs = 0 } = reply.rejection;
  return errorOf(reject, message, { retryAfterMs });
}
