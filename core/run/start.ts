/** Start of a run: a new name, the next generation of one, or attaching to what is there. */
import { bytesEqual, instanceOf, limits, type Rejection, seedOf } from "#core/base";
import { EventKind, type Payload, type RunStarted, RunStatus } from "#proto";
import type { RunEvent } from "./event.ts";
import { instancePrefix } from "./instance.ts";
import { isLive, type Run } from "./state.ts";

export interface StartRequest {
  readonly type: string;
  readonly bundle: Uint8Array;
  readonly input: Payload | undefined;
  readonly contention: "attach" | "reject";
  readonly idempotencyKey: string;
  readonly deadlineMs: number;
}

/** The start is one that was made before: it began this generation. */
export interface Attach {
  readonly attach: number;
}

/** `inputHash` is over type and input; it is compared only where an idempotency key is used. */
export function decideStart(run: Run, request: StartRequest, inputHash: Uint8Array): RunEvent | Attach | Rejection {
  if (run.status !== RunStatus.unspecified) {
    const known = attachOrRefuse(run, request, inputHash);
    if (known !== undefined) return known;
  }
  const generation = run.generation + 1;
  return {
    kind: EventKind.runStarted,
    body: {
      generation,
      type: request.type,
      bundle: request.bundle,
      input: request.input,
      deadlineMs: request.deadlineMs,
      idempotencyKey: request.idempotencyKey,
      seed: seedOf(`${run.run}#${generation}`),
    },
  };
}

function attachOrRefuse(run: Run, request: StartRequest, inputHash: Uint8Array): Attach | Rejection | undefined {
  const used = request.idempotencyKey === "" ? undefined : run.usedKeys.find((one) => one.key === request.idempotencyKey);
  if (used !== undefined) {
    if (bytesEqual(used.inputHash, inputHash)) return { attach: used.generation };
    return {
      reject: "IDEMPOTENCY_CONFLICT",
      message: `Cannot start ${run.run}: idempotency key "${request.idempotencyKey}" was used with another type or input`,
    };
  }
  // A made-up name belongs to one start: meeting it again is that start, sent again.
  if (instanceOf(run.run).startsWith(instancePrefix)) return { attach: run.generation };
  if (!isLive(run)) return undefined;
  if (request.contention === "attach") return { attach: run.generation };
  return { reject: "INSTANCE_LIVE", message: `Cannot start ${run.run}: generation ${run.generation} of it is live` };
}

export function applyStarted(run: Run, body: RunStarted, at: { seq: number; timeMs: number }, inputHash: Uint8Array): void {
  run.generation = body.generation;
  run.type = body.type;
  run.bundle = body.bundle.slice();
  run.status = RunStatus.running;
  run.seed = body.seed;
  run.startedMs = at.timeMs;
  run.deadlineAtMs = body.deadlineMs > 0 ? at.timeMs + body.deadlineMs : 0;
  run.closedMs = 0;
  if (body.idempotencyKey !== "") {
    run.usedKeys.push({ key: body.idempotencyKey, inputHash, generation: body.generation });
    if (run.usedKeys.length > limits.usedKeysKept) run.usedKeys.shift();
  }
  run.cancelRequested = false;
  run.nextOp = 1;
  run.firstSeq = at.seq;
  run.pending.clear();
  run.result = undefined;
  run.failure = undefined;
  run.note = "";
  run.unclaimed.clear();
}
