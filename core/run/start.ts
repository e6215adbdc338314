/** Start of a run: a new name, the next generation of one, a place in its queue, or attaching to what is there. */
import { bytesEqual, instanceOf, type Rejection, seedOf } from "#core/base";
import { type Contender, EventKind, type Payload, type RunStarted, RunStatus, type StartedBy, StreamState } from "#proto";
import { tellStarter } from "./child.ts";
import { clearOperations } from "./close.ts";
import type { RunEvent } from "./event.ts";
import { instancePrefix } from "./instance.ts";
import { keepOutcome, refuseFull, takeOut, useKey } from "./queue.ts";
import type { SignalRequest } from "./signal.ts";
import { isLive, type Run } from "./state.ts";

/** What a start does where a run of its name is live. */
export const contentions = ["attach", "reject", "queue", "supersede"] as const;
export type Contention = (typeof contentions)[number];

export interface StartRequest {
  readonly type: string;
  readonly bundle: Uint8Array;
  readonly input: Payload | undefined;
  readonly contention: Contention;
  readonly idempotencyKey: string;
  readonly deadlineMs: number;
  /** Longest time in the queue, in milliseconds; left out or 0 = as long as it takes. */
  readonly budgetMs?: number;
  /** Why the live run is ended: a start that supersedes must say. */
  readonly overrideReason?: string;
  /** Received by the run that the start makes or meets, or held with it in the queue. */
  readonly signal?: SignalRequest | undefined;
  /** Whose operation asks; left out: a client does. */
  readonly startedBy?: StartedBy | undefined;
}

/** The start is one that was made before: it began this generation (0 = none yet, or never), or attaches to it. */
export interface Attach {
  readonly attach: number;
  /** 0 = it was not queued. */
  readonly ticket: number;
}

/**
 * A start that is to supersede comes back queued: who decides so goes on with the live run's end.
 * `inputHash` is over type and input; it is compared only where an idempotency key is used.
 */
export function decideStart(run: Run, request: StartRequest, inputHash: Uint8Array): RunEvent | Attach | Rejection {
  if (request.contention === "supersede" && (request.overrideReason ?? "") === "") {
    return { reject: "BAD_REQUEST", message: `Cannot start ${run.run} to supersede what is live: it gives no override reason` };
  }
  if (run.status === RunStatus.unspecified) return begin(run, request, 0);
  return madeBefore(run, request, inputHash) ?? (isLive(run) ? contend(run, request) : begin(run, request, 0));
}

/** The start that waited longest begins. */
export function decideNext(run: Run, contender: Contender): RunEvent {
  return begin(run, contender, contender.ticket);
}

type Begun = Pick<StartRequest, "type" | "bundle" | "input" | "deadlineMs" | "idempotencyKey" | "startedBy">;

function begin(run: Run, { type, bundle, input, deadlineMs, idempotencyKey, startedBy }: Begun, ticket: number): RunEvent {
  const generation = run.generation + 1;
  const seed = seedOf(`${run.run}#${generation}`);
  return { kind: EventKind.runStarted, body: { generation, type, bundle, input, deadlineMs, idempotencyKey, seed, ticket, startedBy } };
}

function madeBefore(run: Run, { idempotencyKey }: StartRequest, inputHash: Uint8Array): Attach | Rejection | undefined {
  const used = idempotencyKey === "" ? undefined : usedKey(run, idempotencyKey);
  if (used !== undefined) {
    if (bytesEqual(used.inputHash, inputHash)) return { attach: used.generation, ticket: used.ticket };
    return {
      reject: "IDEMPOTENCY_CONFLICT",
      message: `Cannot start ${run.run}: idempotency key "${idempotencyKey}" was used with another type or input`,
    };
  }
  // A made-up name belongs to one start: meeting it again is that start, sent again.
  return instanceOf(run.run).startsWith(instancePrefix) ? { attach: run.generation, ticket: 0 } : undefined;
}

/** Keys of starts that wait are known as long as they wait, however many there are. */
function usedKey(run: Run, key: string): Pick<Run["usedKeys"][number], "inputHash" | "generation" | "ticket"> | undefined {
  const waiting = run.queue.find((one) => one.idempotencyKey === key);
  return waiting === undefined ? run.usedKeys.find((one) => one.key === key) : { ...waiting, generation: 0 };
}

function contend(run: Run, request: StartRequest): RunEvent | Attach | Rejection {
  const { contention, type, bundle, input, deadlineMs, idempotencyKey, budgetMs = 0, startedBy } = request;
  if (contention === "attach") return { attach: run.generation, ticket: 0 };
  if (contention === "reject") {
    return { reject: "INSTANCE_LIVE", message: `Cannot start ${run.run}: generation ${run.generation} of it is live` };
  }
  const queued = { type, bundle, input, deadlineMs, idempotencyKey, startedBy };
  // It waits for nobody.
  if (contention === "supersede") return { kind: EventKind.startQueued, body: { ...queued, budgetMs: 0 } };
  return refuseFull(run, [input, request.signal?.payload]) ?? { kind: EventKind.startQueued, body: { ...queued, budgetMs } };
}

export function applyStarted(run: Run, body: RunStarted, at: { seq: number; timeMs: number }, inputHash: Uint8Array): void {
  keepOutcome(run, body.ticket);
  const contender = body.ticket > 0 ? takeOut(run, body.ticket) : undefined;
  run.ticket = body.ticket;
  run.generation = body.generation;
  run.type = body.type;
  run.bundle = body.bundle.slice();
  run.status = RunStatus.running;
  run.seed = body.seed;
  run.startedMs = at.timeMs;
  run.deadlineAtMs = body.deadlineMs > 0 ? at.timeMs + body.deadlineMs : 0;
  run.closedMs = 0;
  const { idempotencyKey, ticket } = body;
  useKey(run, { idempotencyKey, inputHash: contender?.inputHash ?? inputHash, ticket }, body.generation);
  run.cancelRequested = false;
  run.nextOp = 1;
  run.firstSeq = at.seq;
  run.deliveredSeq = at.seq;
  run.compensations = [];
  run.decided = undefined;
  clearOperations(run);
  run.result = undefined;
  run.failure = undefined;
  run.note = "";
  run.startedBy = body.startedBy;
  tellStarter(run, { startedBy: body.startedBy, ticket: body.ticket, isQueued: false });
  run.lastCall = 0;
  run.searchable.clear();
  run.stream = StreamState.unspecified;
}
