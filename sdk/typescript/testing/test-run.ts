/** One run of a test environment, seen from outside. */
import { noBytes, type Reply, type RunId, toHex } from "#core/base";
import type { Command } from "#core/shard";
import { type Failure, RunStatus, runStatusNames } from "#proto";
import { HopError, WorkflowFailedError } from "#sdk/client/errors";
import type { Driver } from "./driver.ts";
import { History } from "./history.ts";
import type { VirtualCore } from "./virtual-core.ts";
import type { VirtualWorker } from "./virtual-worker.ts";

export type RunStatusName = (typeof runStatusNames)[keyof typeof runStatusNames];

/** How a run ended. `value` is set where it completed, `failure` where it did not. */
export interface Outcome<Output = unknown> {
  readonly status: RunStatusName;
  readonly value: Output | undefined;
  readonly failure: Failure | undefined;
}

/** What a run asks of its environment. */
export interface RunParts {
  readonly core: VirtualCore;
  readonly worker: VirtualWorker;
  readonly driver: Driver;
  nextSignal(): number;
}

type Directed<C> = C extends { readonly kind: "start" } ? never : C extends Command ? Omit<C, "run" | "ticket"> : never;

/** The run will not end: what it waits for never happens. */
export class RunStuckError extends Error {
  override name = "RunStuckError";
}

export class TestRun<Output = unknown> {
  /** `namespace:instance` */
  readonly id: string;
  /** 0 = it waits in the queue of its name. */
  readonly generation: number;
  private readonly parts: RunParts;
  private readonly ticket: number;

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
    let reply: Reply | undefined;
    const { core, driver } = this.parts;
    const generation = this.ticket > 0 ? {} : { generation: this.generation };
    const waited = core.command({ kind: "await-result", run: this.id as RunId, ticket: this.ticket, ...generation }).then((got) => {
      reply = got;
    });
    if (!(await driver.until(() => reply !== undefined))) throw new RunStuckError(this.stuckText());
    await waited;
    const { kind } = reply as unknown as Reply;
    if (kind === "outcome") return outcomeOf(reply as unknown as Extract<Reply, { kind: "outcome" }>);
    throw refusalOf(reply as unknown as Reply);
  }

  /** Resolves when the signal is in the run's history, and the run has gone on as far as it can without time. */
  async signal(name: string, value?: unknown, options: { readonly id?: string } = {}): Promise<void> {
    const id = options.id ?? `signal-${this.parts.nextSignal()}`;
    await this.ask({ kind: "signal", name, payload: toPayload(value), id });
  }

  /** Reads the run's state through a query of its code. */
  async query<Answer = unknown>(name: string, input?: unknown): Promise<Answer> {
    const reply = await this.ask({ kind: "query", name, input: toPayload(input) });
    const { result } = reply as Extract<Reply, { kind: "queried" }>;
    return fromBytes(result?.data) as Answer;
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

  private async ask(command: Directed<Command>): Promise<Reply> {
    const { core, driver } = this.parts;
    await driver.settle();
    const reply = core.command({ ...command, run: this.id as RunId, ...(this.ticket > 0 ? { ticket: this.ticket } : {}) } as Command);
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
  if (reply.kind !== "rejected") return new HopError("INTERNAL", `Core answered ${reply.kind}`);
  return new HopError(reply.rejection.reject, reply.rejection.message);
}
